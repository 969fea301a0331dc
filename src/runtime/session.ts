/** A session: state of one sequence (its KV cache), and calls of the program's methods on it. */
import { checkOptions } from "../arguments.ts";
import { viewOf } from "../dtype.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import { Interpreter, isInterpreted } from "../executorch/interpreter.ts";
import { checkIndices } from "../ops/operator.ts";
import { type Method, SCRATCH_MEMORY } from "../program/program.ts";
import { type Tensor, zeroTensor } from "../tensor.ts";
import { blamed } from "./blame.ts";
import { checkInput, checkInputCount, copyInput } from "./calls/method-values.ts";
import { allocate, freeWith, Holdings } from "./memory.ts";
import { ReadyRuns, type RunsProgram } from "./ready-runs.ts";

/** What a session needs of its program. */
export interface SessionProgram extends RunsProgram {
  /** Name of the program's file, for messages. */
  readonly file: string;
  /** Bytes of one session's state. */
  readonly stateBytes: number;
  /** UnsupportedError once the program was disposed of. */
  checkUsable(): void;
  /** The method of a name. InvalidArgumentError when there is none. */
  method(name: string): Method;
  /** Runs `work` after all earlier work on the program has ended. */
  exclusive<R>(work: () => Promise<R>): Promise<R>;
}

/**
 * State of one sequence (usually its KV cache) and calls of the program's methods on it. Sessions of one program take
 * turns: a call waits until the one before it has ended.
 */
export class Session {
  readonly #program: SessionProgram;
  readonly #state: Uint8Array;
  readonly #ready: ReadyRuns;
  /** Copies of outputs, by method and index. */
  readonly #copies = new Map<string, Uint8Array>();
  readonly #interpreters = new Map<string, Interpreter>();
  readonly #holdings = new Holdings();
  /** Number of runs under way. */
  #runs = 0;
  #isDisposed = false;

  constructor(program: SessionProgram) {
    const { memory } = program;
    const state = allocate(memory, `${program.file}: state`, program.stateBytes);
    this.#program = program;
    this.#state = state;
    this.#ready = new ReadyRuns(program, state, this.#holdings);
    this.#holdings.add(() => memory.free(state));
    freeWith(this, this.#holdings);
  }

  /** Frees the state after the runs under way; the session must not be used any more. */
  async dispose(): Promise<void> {
    this.#isDisposed = true;
    await this.#program.exclusive(async () => this.#holdings.releaseAll());
  }

  /** UnsupportedError after the session or its program was disposed of, since their memory may belong to another by now. */
  #checkUsable(): void {
    this.#program.checkUsable();
    if (this.#isDisposed) throw new UnsupportedError("the session was disposed of");
  }

  /** Zeroes the state. InvalidArgumentError while a run is under way, which uses it. */
  reset(): void {
    this.#checkUsable();
    if (this.#runs > 0)
      throw new InvalidArgumentError("session: expected reset after its runs but found one under way; await it first");
    this.#state.fill(0);
    for (const interpreter of this.#interpreters.values()) interpreter.reset();
  }

  /**
   * Executes a method. Its outputs are overwritten by the session's next call of the method. The event loop gets turns
   * between kernels; an abort takes effect there and throws the signal's reason.
   */
  run(name: string, inputs: readonly Tensor[], signal?: AbortSignal): Promise<readonly Tensor[]> {
    return this.use(name, inputs, (outputs) => outputs.map((output, i) => this.#copy(name, i, output)), signal);
  }

  /**
   * Executes a method as `run` does and gives what `read` makes of the outputs, without copying them: they lie where the
   * program's next call, of any session, writes, so they must not be used after `read` has returned.
   */
  async use<R>(
    name: string,
    inputs: readonly Tensor[],
    read: (outputs: readonly Tensor[]) => R,
    signal?: AbortSignal,
  ): Promise<R> {
    this.#checkUsable();
    checkOptions({ signal, read });
    this.#runs++;
    try {
      return await this.#program.exclusive(async () => {
        this.#program.checkUsable();
        const outputs = await this.#run(name, inputs, signal).catch((error) => {
          throw blamed(this.#program.file, signal, error);
        });
        this.#program.checkUsable();
        return read(outputs);
      });
    } finally {
      this.#runs--;
    }
  }

  /** The file decides what runs, so errors name it. */
  async #run(name: string, inputs: readonly Tensor[], signal?: AbortSignal): Promise<readonly Tensor[]> {
    const method = this.#program.method(name);
    this.#checkInputs(method, inputs);
    const interpreter = this.#interpreterOf(method);
    if (interpreter) {
      interpreter.setInputs(inputs);
      return interpreter.run(signal);
    }
    const { ends, calls, times } = this.#ready.of(method, inputs);
    for (const [i, target] of ends.inputs.entries()) copyInput(method, i, inputs[i]!, target);
    ends.checks.forEach(checkIndices);
    await calls.run(signal, times);
    return ends.outputs;
  }

  /** Inputs of wrong sizes are the caller's errors; inputs that nobody could give are errors of the file. */
  #checkInputs(method: Method, inputs: readonly Tensor[]): void {
    checkInputCount(method, inputs);
    try {
      for (const [i, { shape }] of inputs.entries()) checkInput(method, i, shape);
    } catch (error) {
      throw error instanceof UnsupportedError ? blamed(this.#program.file, undefined, error) : error;
    }
  }

  /** The session's copy of an output: one array for all sizes, as large as the longest so far. */
  #copy(name: string, i: number, { dtype, shape, data }: Tensor): Tensor {
    const key = `${name} ${i}`;
    let bytes = this.#copies.get(key);
    if (!bytes || bytes.byteLength < data.byteLength) {
      bytes = new Uint8Array(zeroTensor(dtype, shape).data.buffer);
      this.#copies.set(key, bytes);
    }
    const copy = viewOf(dtype, bytes.buffer, 0, data.length);
    (copy as Uint8Array).set(data as Uint8Array);
    return { dtype, shape, data: copy };
  }

  /** The interpreter of a method that cannot be made ready; it has scratch of its own, in which it may keep state. */
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
}
