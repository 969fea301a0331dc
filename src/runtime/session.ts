/** A session: the state (KV cache) of one conversation, and calls of the program's methods on it. */
import { viewOf } from "../dtype.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { KernelMemory } from "../kernels/contract.ts";
import { type BoundCall, checkIndices } from "../ops/operator.ts";
import { type Method, SCRATCH_MEMORY } from "../program/program.ts";
import { isSameShape, type Tensor, zeroTensor } from "../tensor.ts";
import { blamed } from "./blame.ts";
import { Interpreter, type InterpreterContext, isInterpreted } from "./interpreter.ts";
import { allocate, freeWith, Holdings } from "./memory.ts";
import { checkInput, checkInputCount, copyInput, type ReadyMethod, readyMethod } from "./method.ts";
import type { MethodCalls } from "./method-calls.ts";
import type { RunTimes } from "./profile.ts";
import { type CallsOfSizes, callsAt, RunList, type RunPlace } from "./run-list.ts";
import { inputPattern, type MethodEnds, SizedMethod } from "./sized-method.ts";

/** Sizes for which methods are kept ready one by one, besides those that are always kept. */
const READY_MAX = 6;

/** Calls that are ready, and what they read and write at their present sizes. */
interface ReadyRun {
  /** Whether it is kept for as long as the session lives. */
  readonly isKept: boolean;
  readonly calls: RunList;
  ends: MethodEnds;
  /** The session's own copies: scratch is overwritten by the next call. */
  copies: readonly Tensor[] | null;
  times: RunTimes | undefined;
  readonly free: () => void;
}

/** What a session needs of the loaded program that it runs. */
export interface SessionProgram extends InterpreterContext, RunPlace {
  /** Name of the program's file, for messages. */
  readonly file: string;
  /** Where constants, scratch and state are. */
  readonly memory: KernelMemory;
  readonly constants: readonly Uint8Array[];
  /** Bytes of one session's state. */
  readonly stateBytes: number;
  /** UnsupportedError once the program was disposed of. */
  checkUsable(): void;
  /** The method of a name; InvalidArgumentError when there is none. */
  method(name: string): Method;
  callsOf(method: Method): MethodCalls;
  /** Scratch of a method, shared by all sessions. */
  scratchOf(method: Method): Uint8Array;
  /** Runs `work` when all earlier work on the program has ended. */
  exclusive<R>(work: () => Promise<R>): Promise<R>;
}

/**
 * The state of one sequence (its keys and values, as a rule) and calls of the program's methods on it. Sessions of one program
 * take turns: a call waits until the one before it has ended.
 */
export class Session {
  readonly #program: SessionProgram;
  readonly #state: Uint8Array;
  readonly #ready = new Map<string, ReadyRun>();
  /** By patterns of sizes; null where each size is resolved by itself. */
  readonly #sized = new Map<string, SizedMethod | null>();
  /** By classes of sizes; null likewise. */
  readonly #classes = new Map<string, ReadyRun | null>();
  readonly #copies = new Map<string, Uint8Array>();
  readonly #times = new Map<string, RunTimes>();
  readonly #interpreters = new Map<string, Interpreter>();
  readonly #holdings = new Holdings();
  /** Those that have not ended. */
  #runs = 0;
  #isDisposed = false;

  constructor(program: SessionProgram) {
    const { memory } = program;
    const state = allocate(memory, `${program.file}: state`, program.stateBytes);
    this.#program = program;
    this.#state = state;
    this.#holdings.add(() => memory.free(state));
    freeWith(this, this.#holdings);
  }

  /** Frees the state when the runs so far have ended; the session must not be used any more. */
  async dispose(): Promise<void> {
    this.#isDisposed = true;
    await this.#program.exclusive(async () => this.#holdings.releaseAll());
  }

  /** UnsupportedError once the session or its program was disposed of: their memory may belong to another by now. */
  #checkUsable(): void {
    this.#program.checkUsable();
    if (this.#isDisposed) throw new UnsupportedError("the session was disposed of");
  }

  /** Zeroes the state. InvalidArgumentError while a run is under way, which reads and writes it. */
  reset(): void {
    this.#checkUsable();
    if (this.#runs > 0)
      throw new InvalidArgumentError("session: expected reset after its runs but found one under way; await it first");
    this.#state.fill(0);
    for (const interpreter of this.#interpreters.values()) interpreter.reset();
  }

  /**
   * Executes a method. The outputs are overwritten by the session's next call of the method.
   * Between kernels the event loop gets its turn; the signal is honoured there with its own reason.
   */
  async run(name: string, inputs: readonly Tensor[], signal?: AbortSignal): Promise<readonly Tensor[]> {
    this.#checkUsable();
    this.#runs++;
    try {
      return await this.#program.exclusive(() => this.#run(name, inputs, signal));
    } finally {
      this.#runs--;
    }
  }

  async #run(name: string, inputs: readonly Tensor[], signal?: AbortSignal): Promise<readonly Tensor[]> {
    this.#program.checkUsable();
    const method = this.#program.method(name);
    checkInputCount(method, inputs);
    for (const [i, { shape }] of inputs.entries()) checkInput(method, i, shape);
    const interpreter = this.#interpreterOf(method);
    if (interpreter) {
      interpreter.setInputs(inputs);
      return this.#ofFile(signal, () => interpreter.run(signal));
    }
    const run = this.#readyFor(method, inputs);
    const { ends } = run;
    for (const [i, target] of ends.inputs.entries()) copyInput(method, i, inputs[i]!, target);
    ends.checks.forEach(checkIndices);
    await this.#ofFile(signal, () => run.calls.run(signal, run.times));
    this.#program.checkUsable();
    run.copies ??= ends.outputs.map((output, i) => this.#copyOf(method, i, output));
    for (const [i, output] of ends.outputs.entries())
      (run.copies[i]!.data as Uint8Array).set(output.data as Uint8Array);
    return run.copies;
  }

  /** Room for a copy of an output: one for all sizes, as long as the longest so far. */
  #copyOf(method: Method, i: number, { dtype, shape, data }: Tensor): Tensor {
    const key = `${method.name} ${i}`;
    let bytes = this.#copies.get(key);
    if (!bytes || bytes.byteLength < data.byteLength) {
      bytes = new Uint8Array(zeroTensor(dtype, shape).data.buffer);
      this.#copies.set(key, bytes);
    }
    return { dtype, shape, data: viewOf(dtype, bytes.buffer, 0, data.length) };
  }

  /** Runs what the file says: its errors name it. */
  async #ofFile<R>(signal: AbortSignal | undefined, work: () => Promise<R>): Promise<R> {
    try {
      return await work();
    } catch (error) {
      throw blamed(this.#program.file, signal, error);
    }
  }

  /** For a method that cannot be made ready once and for all; it has scratch of its own, where it may keep state. */
  #interpreterOf(method: Method): Interpreter | undefined {
    const program = this.#program;
    const known = this.#interpreters.get(method.name);
    if (known || !isInterpreted(method, program.registry)) return known;
    const scratch = allocate(program.memory, `${program.file}: scratch`, method.memorySizes[SCRATCH_MEMORY] ?? 0);
    this.#holdings.add(() => program.memory.free(scratch));
    const memory = { scratch, state: this.#state, constants: program.constants };
    const interpreter = new Interpreter(method, memory, program);
    this.#interpreters.set(method.name, interpreter);
    return interpreter;
  }

  #readyFor(method: Method, inputs: readonly Tensor[]): ReadyRun {
    const sizes = inputs.map(({ shape }) => shape);
    try {
      return this.#readyForAny(method, sizes) ?? this.#readyForOne(method, sizes);
    } catch (error) {
      throw blamed(this.#program.file, undefined, error);
    }
  }

  /** Calls that are ready for all sizes that the same kernels serve; null where they must be resolved for each. */
  #readyForAny(method: Method, inputSizes: readonly (readonly number[])[]): ReadyRun | null {
    const pattern = inputPattern(method, inputSizes);
    const { sizes } = pattern;
    if (sizes.length === 0) return null;
    const key = `${method.name} ${pattern.key}`;
    const resolve = (inputs: readonly (readonly number[])[]) => this.#resolve(method, inputs);
    let sized = this.#sized.get(key);
    if (sized === undefined) {
      sized = SizedMethod.of(pattern, this.#program.cpu, resolve);
      this.#sized.set(key, sized);
    }
    if (!sized) return null;
    const classKey = `${key} in ${sized.classKey(sizes)}`;
    let run = this.#classes.get(classKey);
    if (run === undefined) {
      const calls = sized.classOf(sizes);
      run = calls && this.#makeReady(calls, sized.ends(calls.range.smallest));
      this.#classes.set(classKey, run);
      if (calls) this.#program.noteKernels(callsAt(calls, sizes));
    }
    if (!run) return null;
    if (!isSameShape(run.calls.sizes, sizes)) {
      if (!run.calls.resize(sizes)) {
        run.free();
        this.#classes.set(classKey, null);
        return null;
      }
      run.ends = sized.ends(sizes);
      run.copies = null;
    }
    run.times = this.#timesFor(method, inputSizes);
    return run;
  }

  #readyForOne(method: Method, inputSizes: readonly (readonly number[])[]): ReadyRun {
    const key = `${method.name} ${inputSizes.map((shape) => shape.join("x")).join(" ")}`;
    const known = this.#ready.get(key);
    if (known) return known;
    this.#forgetOldest();
    const ready = this.#resolve(method, inputSizes);
    this.#program.noteKernels(ready.calls);
    const run = this.#makeReady(ready.calls, ready, isKept(method, inputSizes));
    run.times = this.#timesFor(method, inputSizes, ready);
    this.#ready.set(key, run);
    return run;
  }

  /** Of sizes such as those of the ends of prompts, when there are many. */
  #forgetOldest(): void {
    const passing = [...this.#ready].filter(([, { isKept }]) => !isKept);
    if (passing.length < READY_MAX) return;
    const [key, { free }] = passing[0]!;
    free();
    this.#ready.delete(key);
  }

  #resolve(method: Method, inputSizes: readonly (readonly number[])[]): ReadyMethod {
    const program = this.#program;
    const memory = { scratch: program.scratchOf(method), state: this.#state, constants: program.constants };
    return readyMethod(program.callsOf(method), inputSizes, memory, program);
  }

  #makeReady(
    calls: readonly BoundCall[] | CallsOfSizes,
    { inputs, outputs, checks }: MethodEnds,
    isKept = true,
  ): ReadyRun {
    const list = new RunList(calls, this.#program);
    const ends = { inputs, outputs, checks };
    const free = this.#holdings.add(list.release);
    return { isKept, calls: list, ends, copies: null, times: undefined, free };
  }

  /** Where a profile is kept: the times of calls of these sizes. */
  #timesFor(method: Method, inputSizes: readonly (readonly number[])[], ready?: ReadyMethod): RunTimes | undefined {
    const { profile } = this.#program;
    if (!profile) return undefined;
    const label = `${method.name} ${inputSizes.map((shape) => `[${shape.join(", ")}]`).join(" ")}`;
    const known = this.#times.get(label);
    if (known) return known;
    const { calls, places } = ready ?? this.#resolve(method, inputSizes);
    const times = profile.track(calls, { label, planned: { method, places } });
    this.#times.set(label, times);
    return times;
  }
}

/** Whether sizes are the largest that the method takes, those of whole chunks, or the smallest, those of decoding. */
function isKept(method: Method, inputSizes: readonly (readonly number[])[]): boolean {
  const all = (rule: (size: number, largest: number, isStatic: boolean) => boolean) =>
    method.inputs.every((index, i) => {
      const value = method.values[index]!;
      if (value.kind !== "tensor") return false;
      return value.sizes.every((largest, dim) => rule(inputSizes[i]![dim]!, largest, value.dynamism === "static"));
    });
  return all((size, largest) => size === largest) || all((size, _, isStatic) => isStatic || size === 1);
}
