/**
 * Interpreter: runs a method instruction by instruction, for programs in which sizes, positions or control flow depend on
 * values that are known only at run time. A call keeps its kernel and arguments while its numbers and sizes stay the same.
 */
import { byteSize, viewOf } from "../dtype.ts";
import { ShapeError, UnsupportedError } from "../errors.ts";
import { isTurnDue, takeTurn } from "../event-loop.ts";
import type { Cpu } from "../kernels/contract.ts";
import { type Argument, Arguments, checkSpec, type TensorSpec } from "../ops/call-arguments.ts";
import { checkOverlaps } from "../ops/call-memory.ts";
import { checkIndices, type KernelCall } from "../ops/operator.ts";
import type { NumberOperator, OperatorRegistry, Routine } from "../ops/operator-registry.ts";
import { type Default, qualifiedName } from "../ops/schema.ts";
import type { Instruction, Method, TensorValue } from "../program/program.ts";
import { argumentOf, type CurrentValues, checkWrites, type Literal, literalOf } from "../runtime/calls/call-values.ts";
import { splitArguments, tensorsAt } from "../runtime/calls/method-calls.ts";
import { checkInput, checkPlanned, copyInput, type MethodMemory, viewValue } from "../runtime/calls/method-values.ts";
import type { Profile, RunTimes } from "../runtime/calls/profile.ts";
import { bytesOf, elementCount, type Tensor, zeroTensor } from "../tensor.ts";

/**
 * Most instructions that a run repeats: more than loops over the tokens of a prompt need, and done in seconds on any
 * backend.
 */
const REPEATED_MAX = 1 << 16;

/** Most multiplications of a call: native kernels on two threads take a minute for this many. */
const CALL_MULTIPLICATIONS_MAX = 2 ** 40;

export interface InterpreterContext {
  /** Operators that the method may use. */
  readonly registry: OperatorRegistry;
  /** CPU whose kernels are selected. */
  readonly cpu: Cpu;
  /** Threads of the kernels. */
  readonly threads: number;
  /** Profile that collects the times of calls; undefined without one. */
  readonly profile?: Profile | undefined;
  /** Called with calls whose kernels were selected, for the log. */
  noteKernels(calls: readonly KernelCall[]): void;
}

/** Whether a method needs the interpreter. */
export function isInterpreted(method: Method, registry: OperatorRegistry): boolean {
  const names = method.operators.map(qualifiedName);
  const special = names.some(
    (name) => registry.number(name) ?? registry.routine(name) ?? registry.find(name)?.isPacking,
  );
  const unplanned = method.inputs.some((index) => {
    const value = method.values[index];
    return value?.kind === "tensor" && value.allocation === null;
  });
  return special || unplanned || method.instructions.some(({ kind }) => kind !== "kernel");
}

type KernelInstruction = Extract<Instruction, { kind: "kernel" }>;

/** The part of a call that does not change between runs. */
interface PreparedCall {
  readonly name: string;
  readonly number: NumberOperator | undefined;
  readonly routine: Routine | undefined;
  /** Input values; then defaults of further inputs, and the values that are written. */
  readonly inputs: readonly number[];
  readonly rest: readonly Default[];
  readonly outs: readonly number[];
}

/** A call with its arguments, as it was made last. */
interface Made {
  readonly inputs: readonly Argument<Tensor>[];
  readonly out: Tensor;
  /** Times of the call; undefined without a profile. */
  readonly times: RunTimes | undefined;
  run(): void;
  check(): void;
}

export class Interpreter {
  readonly #method: Method;
  readonly #memory: MethodMemory;
  readonly #context: InterpreterContext;
  /** Present values of literals, by index. */
  #literals: Literal[];
  #tensors: (Tensor | undefined)[] = [];
  /** Constant tensors, by index of their values. */
  readonly #constants: (Tensor | undefined)[];
  readonly #inputs = new Map<number, Uint8Array>();
  readonly #prepared: (PreparedCall | undefined)[] = [];
  readonly #made: (Made | undefined)[] = [];
  readonly #current: CurrentValues = {
    tensor: (index) => this.#tensor(index),
    literal: (index) => this.#literals[index]!,
  };
  #scratch: Uint8Array = new Uint8Array(0);

  constructor(method: Method, memory: MethodMemory, context: InterpreterContext) {
    this.#method = method;
    this.#memory = memory;
    this.#context = context;
    this.#literals = method.values.map(literalOf);
    this.#constants = new Array(method.values.length);
  }

  /** Zeroes its scratch. */
  reset(): void {
    this.#memory.scratch.fill(0);
  }

  /** Sets the inputs of the next run, of any sizes that the method allows. */
  setInputs(inputs: readonly Tensor[]): void {
    this.#tensors = this.#constants.slice();
    for (const [i, tensor] of inputs.entries()) this.#setInput(i, tensor);
  }

  /** Runs the method. Outputs stay in place, and the next run overwrites them. */
  async run(signal?: AbortSignal): Promise<readonly Tensor[]> {
    const { instructions, outputs } = this.#method;
    const before = this.#literals.slice();
    try {
      let steps = 0;
      for (let place = 0; place < instructions.length; ) {
        if (++steps > instructions.length + REPEATED_MAX)
          throw new UnsupportedError(
            `method ${this.#method.name} does not end: expected at most ${REPEATED_MAX} repeated instructions in a run`,
          );
        place = this.#step(place);
        if (isTurnDue()) await takeTurn(signal);
      }
    } catch (error) {
      // A program resets its loop counters at the ends of loops, which this run did not reach.
      this.#literals = before;
      throw error;
    }
    return outputs.map((index) => this.#tensor(index));
  }

  #setInput(i: number, input: Tensor): void {
    const { shape } = input;
    checkInput(this.#method, i, shape);
    const index = this.#method.inputs[i]!;
    const value = this.#method.values[index] as TensorValue;
    const target = value.allocation ? viewValue(value, shape, this.#memory) : this.#ownInput(index, value, shape);
    copyInput(this.#method, i, input, target);
    this.#tensors[index] = target;
  }

  /** Memories that calls may write to. */
  get #writable(): readonly Uint8Array[] {
    const { scratch, state, sequences } = this.#memory;
    return [scratch, state, ...this.#inputs.values(), ...(sequences ? [bytesOf(sequences.data)] : [])];
  }

  /**
   * Copies an input in the caller's memory to the same buffer each time, so that calls on it stay valid until a larger one
   * comes.
   */
  #ownInput(index: number, value: TensorValue, shape: readonly number[]): Tensor {
    let bytes = this.#inputs.get(index);
    if (!bytes || bytes.length < elementCount(shape) * byteSize(value.dtype)) {
      bytes = new Uint8Array(zeroTensor(value.dtype, shape).data.buffer);
      this.#inputs.set(index, bytes);
    }
    return { dtype: value.dtype, shape, data: viewOf(value.dtype, bytes.buffer, 0, elementCount(shape)) };
  }

  /** Executes the instruction at index `place`, and returns the index of the next. */
  #step(place: number): number {
    const instruction = this.#method.instructions[place]!;
    switch (instruction.kind) {
      case "kernel":
        this.#call(place, instruction);
        break;
      case "move":
        this.#move(instruction.from, instruction.to);
        break;
      case "jumpFalse":
        if (!this.#holds(instruction.condition)) return instruction.destination;
        break;
      case "free":
        this.#tensors[instruction.value] = undefined;
        break;
      default:
        throw new UnsupportedError(`method ${this.#method.name}: instruction ${instruction.kind} is not supported`);
    }
    return place + 1;
  }

  /** A jump's condition: a boolean, or a tensor of booleans that must all be true. ShapeError for other values. */
  #holds(index: number): boolean {
    const { kind } = this.#method.values[index]!;
    const value = kind === "tensor" ? this.#tensor(index) : this.#literals[index]!;
    if (typeof value === "boolean") return value;
    if (typeof value === "object" && value?.dtype === "bool")
      return (value.data as Uint8Array).every((item) => item !== 0);
    const found = typeof value === "object" && value ? `a tensor of ${value.dtype}` : `a value of kind ${kind}`;
    throw new ShapeError(
      `method ${this.#method.name}: expected a truth value as condition of a jump but found ${found}`,
    );
  }

  /** Makes value `to` the same memory as value `from`. ShapeError for values of different kinds. */
  #move(from: number, to: number): void {
    const sorts = [from, to].map((index) => this.#method.values[index]!.kind);
    const [source, target] = sorts.map((kind) => (kind === "tensor" || kind.endsWith("List") ? kind : "literal"));
    if (source !== target || source!.endsWith("List"))
      throw new ShapeError(`method ${this.#method.name}: moves a value of kind ${sorts[0]} to one of kind ${sorts[1]}`);
    if (source === "tensor") this.#tensors[to] = this.#tensor(from);
    else this.#literals[to] = this.#literals[from]!;
  }

  #call(place: number, instruction: KernelInstruction): void {
    this.#prepared[place] ??= this.#prepare(instruction);
    const { name, number, routine, inputs: indices, rest, outs } = this.#prepared[place];
    const inputs = indices.map((index) => argumentOf(this.#method, index, this.#current));
    if (rest.length > 0) inputs.push(...rest);
    if (number) this.#literals[outs[0]!] = number.evaluate(new Arguments(number.schema, inputs));
    else if (routine) this.#runRoutine(routine, inputs, outs);
    else this.#runOperator(place, name, inputs, outs[0]!);
  }

  #prepare({ operator: index, args: indices }: KernelInstruction): PreparedCall {
    const { registry } = this.#context;
    const name = qualifiedName(this.#method.operators[index]!);
    const split = splitArguments(this.#method, name, registry.schema(name), indices);
    const { given: inputs, rest } = split;
    const number = registry.number(name);
    const routine = registry.routine(name);
    if (!number) {
      // Only routines write lists, which may be empty.
      const outs = routine ? split.outs.flatMap((index) => tensorsAt(this.#method, index)) : split.outs;
      return { name, number, routine, inputs, rest, outs };
    }
    const out = split.returned;
    const kind = out === undefined ? "none" : this.#method.values[out]!.kind;
    if (kind === "none" || kind === "tensor" || kind.endsWith("List"))
      throw new ShapeError(`${name}: expected a value for its number but method ${this.#method.name} gives ${kind}`);
    return { name, number, routine, inputs, rest, outs: [out!] };
  }

  #runRoutine(routine: Routine, inputs: readonly Argument<Tensor>[], outs: readonly number[]): void {
    const planned = outs.map((out) => this.#tensorValue(out, routine.name).dtype);
    const specs = routine.outs(new Arguments<TensorSpec>(routine.schema, inputs), planned);
    if (specs.length !== outs.length)
      throw new ShapeError(`${routine.name}: gives ${specs.length} tensors but the program planned ${outs.length}`);
    if (!routine.run) {
      const self = inputs[0] as Tensor;
      this.#tensors[outs[0]!] = { ...specs[0]!, data: self.data };
      return;
    }
    for (const spec of specs) checkSpec(routine.name, spec);
    const results = outs.map((out, i) => this.#place(out, specs[i]!, routine.name));
    const isList = routine.schema.args.at(-1)!.type === "Tensor[]";
    const args = new Arguments(routine.schema, isList ? [...inputs, results] : [...inputs, ...results]);
    checkWrites(args, this.#writable);
    checkOverlaps(args, { inPlace: routine.inPlace, readFirst: [] });
    routine.run(args);
  }

  #runOperator(place: number, name: string, inputs: readonly Argument<Tensor>[], out: number): void {
    let made = this.#made[place];
    if (!made || !sameArguments(made.inputs, inputs)) {
      made = this.#make(name, inputs, out);
      this.#made[place] = made;
    }
    this.#tensors[out] = made.out;
    made.check();
    const { times } = made;
    const start = times ? performance.now() : 0;
    times?.startPart(0);
    made.run();
    if (!times) return;
    times.nanoseconds[0]! += 1e6 * (performance.now() - start);
    times.addRun(start);
  }

  #make(name: string, inputs: readonly Argument<Tensor>[], out: number): Made {
    const { registry, cpu, threads, profile } = this.#context;
    const operator = registry.get(name);
    const planned = this.#tensorValue(out, name).dtype;
    const spec = operator.shape(new Arguments<TensorSpec>(operator.schema, inputs), planned);
    const result = this.#place(out, spec, name);
    const args = new Arguments(operator.schema, [...inputs, result]);
    checkWrites(args, this.#writable);
    const call = operator.resolve(args, cpu);
    // Such a call would block the thread, so that abort signals are not seen.
    if (call.multiplications > CALL_MULTIPLICATIONS_MAX)
      throw new UnsupportedError(`${name}: takes ${call.multiplications} multiplications in one call, more than 2^40`);
    this.#context.noteKernels([call]);
    const bytes = call.scratchBytes(threads);
    if (bytes > this.#scratch.length) this.#scratch = zeroTensor("u8", [bytes]).data as Uint8Array;
    const { indexCheck } = call;
    return {
      inputs,
      out: result,
      times: profile?.track([call], { label: this.#method.name, planned: null }),
      run: call.bind(this.#scratch, threads),
      check: indexCheck ? () => checkIndices(indexCheck) : () => {},
    };
  }

  /** The out tensor of a result, which must fit what the program planned. */
  #place(index: number, spec: TensorSpec, name: string): Tensor {
    const value = checkPlanned(this.#method, name, index, spec);
    const tensor = viewValue(value, spec.shape, this.#memory);
    this.#tensors[index] = tensor;
    return tensor;
  }

  #tensorValue(index: number, name: string): TensorValue {
    const value = this.#method.values[index]!;
    if (value.kind !== "tensor") throw new ShapeError(`${name}: expected a tensor to write to but found ${value.kind}`);
    return value;
  }

  #tensor(index: number): Tensor {
    const known = this.#tensors[index];
    if (known) return known;
    const value = this.#method.values[index]!;
    if (value.kind !== "tensor") throw new ShapeError(`method ${this.#method.name}: value ${index} is no tensor`);
    const tensor = viewValue(value, value.sizes, this.#memory);
    this.#tensors[index] = tensor;
    if (value.constant !== null) this.#constants[index] = tensor;
    return tensor;
  }
}

/** Whether arguments agree in everything that a made call depends on: numbers, sizes and places. */
function sameArguments(before: readonly Argument<Tensor>[], now: readonly Argument<Tensor>[]): boolean {
  return before.length === now.length && before.every((argument, i) => sameArgument(argument, now[i]!));
}

function sameArgument(a: Argument<Tensor>, b: Argument<Tensor>): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if ("shape" in a)
    return (
      "shape" in b &&
      a.data.byteOffset === b.data.byteOffset &&
      a.data.buffer === b.data.buffer &&
      a.dtype === b.dtype &&
      a.shape.length === b.shape.length &&
      a.shape.every((size, dim) => size === b.shape[dim])
    );
  return !("shape" in b) && sameArguments(a as readonly Argument<Tensor>[], b as readonly Argument<Tensor>[]);
}
