/**
 * Runs texts through an encoder as packed sequences: texts of several calls share steps, as many as a step has room for.
 */
import { InvalidArgumentError, InvalidFileError, UnsupportedError } from "../errors.ts";
import { blamedForInputs } from "../runtime/blame.ts";
import type { LoadedProgram } from "../runtime/program.ts";
import type { Session } from "../runtime/session.ts";
import type { Tensor } from "../tensor.ts";
import { encoderInputs, type TokenSequence } from "./encoder-inputs.ts";

interface Waiting {
  readonly text: TokenSequence;
  readonly signal: AbortSignal | undefined;
  resolve(values: Float32Array): void;
  reject(error: unknown): void;
}

/** Tokens of a step: with more, a token takes no less time, and other calls wait longer. */
const STEP_TOKENS = 512;

export class EncoderBatches {
  /** Most tokens of a text. */
  readonly maxTokens: number;
  /** Number of values of a text. */
  readonly size: number;
  readonly #program: LoadedProgram;
  readonly #session: Session;
  readonly #method: string;
  readonly #vocabularySize: number;
  readonly #firstPosition: number;
  readonly #hasTypes: boolean;
  readonly #stepTokens: number;
  readonly #waiting: Waiting[] = [];
  #isRunning = false;

  /** InvalidFileError for a program whose method has other inputs or outputs. */
  constructor(program: LoadedProgram, method: "embed" | "rank") {
    const rows = program.count("get_max_seq_len");
    this.#program = program;
    this.#method = method;
    this.maxTokens = Math.min(rows, program.count("get_max_context_len", rows));
    this.#vocabularySize = program.count("get_vocab_size");
    const first = program.metadata.get("get_first_position") ?? 0;
    this.#firstPosition = Number.isSafeInteger(first) ? (first as number) : 0;
    this.#hasTypes = program.count("get_token_types", 1) > 1;
    this.#stepTokens = Math.min(rows, STEP_TOKENS);
    const { inputs, outputs, values } = program.method(method);
    const output = values[outputs[0] ?? -1];
    if (output?.kind !== "tensor" || output.dtype !== "f32" || output.sizes.length !== 2)
      throw new InvalidFileError(program.file, `expected ${method} to give f32 values [texts, size] of each text`);
    if (inputs.length !== (this.#hasTypes ? 4 : 3))
      throw new InvalidFileError(
        program.file,
        `expected ${method} to take ${this.#hasTypes ? "tokens, positions, offsets and types" : "tokens, positions and offsets"} but found ${inputs.length} inputs`,
      );
    this.size = output.sizes[1]!;
    this.#session = program.createSession();
  }

  /**
   * Computes the values [size] of each text. InvalidArgumentError for ids beyond the vocabulary; an abort throws the
   * signal's reason.
   */
  async run(texts: readonly TokenSequence[], signal?: AbortSignal): Promise<Float32Array[]> {
    signal?.throwIfAborted();
    this.#program.checkUsable();
    for (const [i, { ids }] of texts.entries()) this.#check(i, ids);
    const all = texts.map(
      (text) =>
        new Promise<Float32Array>((resolve, reject) => {
          this.#waiting.push({ text, signal, resolve, reject });
        }),
    );
    if (!this.#isRunning) void this.#work();
    // All are awaited, so that no later failure is an unhandled rejection.
    const ended = await Promise.allSettled(all);
    return ended.map((one) => {
      if (one.status === "rejected") throw one.reason;
      return one.value;
    });
  }

  #check(index: number, ids: readonly number[]): void {
    if (ids.length === 0) throw new InvalidArgumentError(`text ${index}: expected at least one token but found none`);
    const wrong = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= this.#vocabularySize);
    if (wrong !== undefined)
      throw new InvalidArgumentError(
        `text ${index}: expected token ids from 0 to ${this.#vocabularySize - 1} but found ${wrong}`,
      );
  }

  async #work(): Promise<void> {
    this.#isRunning = true;
    try {
      // Calls of the same turn of the event loop share the first step.
      await Promise.resolve();
      while (this.#waiting.length > 0) await this.#step();
    } finally {
      this.#isRunning = false;
    }
  }

  async #step(): Promise<void> {
    const taken = this.#take();
    if (taken.length === 0) return;
    const signal = taken.every((one) => one.signal === taken[0]!.signal) ? taken[0]!.signal : undefined;
    const inputs = encoderInputs(
      taken.map(({ text }) => text),
      { firstPosition: this.#firstPosition, hasTypes: this.#hasTypes },
    );
    try {
      const values = await this.#session.use(this.#method, inputs, ([out]) => this.#values(out!), signal);
      for (const [i, one] of taken.entries()) this.#give(one, values.slice(i * this.size, (i + 1) * this.size));
    } catch (error) {
      const blame = blamedForInputs(this.#program.file, signal, error);
      for (const one of taken) one.reject(blame);
    }
  }

  /** Gives a text its values. InvalidFileError where they are not finite, since only the file can cause that. */
  #give({ resolve, reject }: Waiting, values: Float32Array): void {
    const wrong = values.findIndex((value) => !Number.isFinite(value));
    const problem = `method ${this.#method}: expected finite values but found ${values[wrong]} at ${wrong}`;
    if (wrong < 0) resolve(values);
    else reject(new InvalidFileError(this.#program.file, problem));
  }

  #values({ data }: Tensor): Float32Array {
    if (!(data instanceof Float32Array)) throw new UnsupportedError(`${this.#program.file}: expected float32 values`);
    return data.slice();
  }

  /** Takes the texts of the next step in order of arrival: the first, and those after it that fit. */
  #take(): Waiting[] {
    const taken: Waiting[] = [];
    let rows = 0;
    while (this.#waiting.length > 0) {
      const [next] = this.#waiting as [Waiting];
      if (next.signal?.aborted) {
        next.reject(next.signal.reason);
      } else {
        rows += next.text.ids.length;
        if (taken.length > 0 && rows > this.#stepTokens) break;
        taken.push(next);
      }
      this.#waiting.shift();
    }
    return taken;
  }

  /** Ends the session; texts that wait end with an error. */
  async dispose(): Promise<void> {
    for (const one of this.#waiting.splice(0)) one.reject(new UnsupportedError("the program was disposed of"));
    await this.#session.dispose();
  }
}
