/** A session: the state (KV cache) of one conversation, and calls of the program's methods on it. */
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { KernelMemory } from "../kernels/contract.ts";
import { checkIndices } from "../ops/operator.ts";
import { type Method, SCRATCH_MEMORY } from "../program/program.ts";
import { type Tensor, zeroTensor } from "../tensor.ts";
import { blamed } from "./blame.ts";
import { Interpreter, type InterpreterContext, isInterpreted } from "./interpreter.ts";
import { allocate, freeWith, Holdings } from "./memory.ts";
import { checkInput, checkInputCount, copyInput, type ReadyMethod, readyMethod } from "./method.ts";
import type { MethodCalls } from "./method-calls.ts";
import { RunList, type RunPlace } from "./run-list.ts";

/** Sizes for which methods are kept ready, besides those that are always kept. */
const READY_MAX = 6;

interface ReadyRun {
  /** Whether it is kept for as long as the session lives. */
  readonly isKept: boolean;
  readonly ready: ReadyMethod;
  readonly calls: RunList;
  /** The session's own copies: scratch is overwritten by the next call. */
  readonly outputs: readonly Tensor[];
  readonly free: () => void;
}

/** What a session needs of the loaded program that it runs. */
export interface SessionProgram extends InterpreterContext, RunPlace {
  /** Name of the program's file, for messages. */
  readonly file: string;
  /** Memory for constants, scratch and state. */
  readonly memory: KernelMemory;
  /** Bytes of the constants, by their indices in the program. */
  readonly constants: readonly Uint8Array[];
  /** Value that stands for the table of sequences; null for a program that knows none. */
  readonly sequences: Tensor | null;
  /** Bytes of one session's state. */
  readonly stateBytes: number;
  /** UnsupportedError once the program was disposed of. */
  checkUsable(): void;
  /** The method of a name; InvalidArgumentError when there is none. */
  method(name: string): Method;
  /** The planned calls of a method. */
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
   * Executes a method. The outputs are overwritten by the session's next call of the same sizes.
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
    for (const [i, target] of run.ready.inputs.entries()) copyInput(method, i, inputs[i]!, target);
    run.ready.checks.forEach(checkIndices);
    await this.#ofFile(signal, () => run.calls.run(signal));
    this.#program.checkUsable();
    for (const [i, output] of run.ready.outputs.entries())
      (run.outputs[i]!.data as Uint8Array).set(output.data as Uint8Array);
    return run.outputs;
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
    const memory = { scratch, state: this.#state, sequences: program.sequences, constants: program.constants };
    const interpreter = new Interpreter(method, memory, program);
    this.#interpreters.set(method.name, interpreter);
    return interpreter;
  }

  #readyFor(method: Method, inputs: readonly Tensor[]): ReadyRun {
    const key = `${method.name} ${inputs.map(({ shape }) => shape.join("x")).join(" ")}`;
    const known = this.#ready.get(key);
    if (known) return known;
    this.#forgetOldest();
    try {
      const run = this.#makeReady(method, inputs);
      this.#ready.set(key, run);
      return run;
    } catch (error) {
      throw blamed(this.#program.file, undefined, error);
    }
  }

  /** Of sizes such as those of the ends of prompts, when there are many. */
  #forgetOldest(): void {
    const passing = [...this.#ready].filter(([, { isKept }]) => !isKept);
    if (passing.length < READY_MAX) return;
    const [key, { free }] = passing[0]!;
    free();
    this.#ready.delete(key);
  }

  #makeReady(method: Method, inputs: readonly Tensor[]): ReadyRun {
    const program = this.#program;
    const memory = {
      scratch: program.scratchOf(method),
      state: this.#state,
      sequences: program.sequences,
      constants: program.constants,
    };
    const sizes = inputs.map(({ shape }) => shape);
    const ready = readyMethod(program.callsOf(method), sizes, memory, program);
    program.noteKernels(ready.calls);
    const times = program.profile?.track(ready.calls, {
      label: `${method.name} ${sizes.map((shape) => `[${shape.join(", ")}]`).join(" ")}`,
      planned: { method, places: ready.places },
    });
    const calls = new RunList(ready.calls, program, times);
    const outputs = ready.outputs.map(({ dtype, shape }) => zeroTensor(dtype, shape));
    return { isKept: isKept(method, sizes), ready, calls, outputs, free: this.#holdings.add(calls.release) };
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
