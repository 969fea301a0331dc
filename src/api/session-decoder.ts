/** A session of a loaded program as the decoder that the generate loop drives: prompts in chunks, tokens one by one. */
import { ContextLengthError, InvalidArgumentError, InvalidFileError } from "../errors.ts";
import type { LoadedProgram } from "../runtime/program.ts";
import type { Session } from "../runtime/session.ts";
import type { Tensor } from "../tensor.ts";
import type { ComputeOptions, Decoder } from "../text/generate.ts";

/** Method that serves sequences longer than metadata `get_long_context_from`, in programs that have that. */
export const LONG_METHOD = "forward_long";

export class SessionDecoder implements Decoder {
  readonly contextLength: number;
  readonly vocabularySize: number;
  /** Most tokens of one call; longer prompts are run in chunks. */
  readonly chunkLength: number;
  /** Whether the program gives logits of the last token only, or of all. */
  readonly logits: "last" | "all";
  readonly #session: Session;
  readonly #position: Tensor = { dtype: "i64", shape: [1], data: new BigInt64Array(1) };
  readonly #single: Tensor = { dtype: "i64", shape: [1, 1], data: new BigInt64Array(1) };
  /** Sequences of more tokens are computed by `LONG_METHOD`, from their first token on. */
  readonly #longFrom: number;
  #used = 0;
  /** Ids whose keys and values the session holds, and whether those are of `LONG_METHOD`. */
  #ids: number[] = [];
  #long = false;
  #isBusy = false;

  constructor(program: LoadedProgram) {
    this.chunkLength = program.number("get_max_seq_len");
    this.contextLength = program.number("get_max_context_len", this.chunkLength);
    this.vocabularySize = program.number("get_vocab_size");
    const { values, outputs } = program.method("forward");
    const output = values[outputs[0] ?? -1];
    if (output?.kind !== "tensor" || output.dtype !== "f32" || output.sizes.at(-1) !== this.vocabularySize)
      throw new InvalidFileError("program", `expected forward to give f32 logits [.., ${this.vocabularySize}]`);
    this.logits = output.sizes.length === 3 ? "all" : "last";
    this.#longFrom = program.number("get_long_context_from", Number.POSITIVE_INFINITY);
    this.#session = program.createSession();
  }

  /** Frees the session's state; the decoder must not be used any more. */
  dispose(): Promise<void> {
    return this.#session.dispose();
  }

  get position(): number {
    return this.#used;
  }

  /** Forgets all tokens from `position` on. */
  rewind(position: number): void {
    if (!Number.isInteger(position) || position < 0 || position > this.#used)
      throw new InvalidArgumentError(`rewind: expected a position up to ${this.#used} but found ${position}`);
    this.#used = position;
  }

  prefill(ids: readonly number[], options: ComputeOptions = {}): Promise<Float32Array> {
    return this.#alone(async () => {
      await this.#chooseMethod(ids.length, options);
      let logits: Float32Array | undefined;
      for (let start = 0; start < ids.length; start += this.chunkLength)
        logits = await this.#append(ids.slice(start, start + this.chunkLength), options);
      if (!logits) throw new InvalidArgumentError("prefill: expected at least one token");
      return this.#lastRow(logits);
    });
  }

  step(id: number, options: ComputeOptions = {}): Promise<Float32Array> {
    return this.#alone(async () => {
      (this.#single.data as BigInt64Array)[0] = this.#checked(id);
      await this.#chooseMethod(1, options);
      return this.#lastRow(await this.#run(this.#single, options));
    });
  }

  /** Logits of every token of `ids`, [T, V], from a program compiled with logits "all". */
  allLogits(ids: readonly number[], options: ComputeOptions = {}): Promise<Float32Array> {
    return this.#alone(async () => {
      await this.#chooseMethod(ids.length, options);
      return this.#append(ids, options);
    });
  }

  /** Each call begins where the one before it ended: InvalidArgumentError while that is under way. */
  async #alone<R>(work: () => Promise<R>): Promise<R> {
    if (this.#isBusy)
      throw new InvalidArgumentError("decoder: expected one call at a time; await the last, or make another decoder");
    this.#isBusy = true;
    try {
      return await work();
    } finally {
      this.#isBusy = false;
    }
  }

  #lastRow(logits: Float32Array): Float32Array {
    return this.logits === "all" ? logits.subarray(-this.vocabularySize) : logits;
  }

  /** For `count` more tokens; what the session holds is computed again when it is of the other method. */
  async #chooseMethod(count: number, options: ComputeOptions): Promise<void> {
    const long = this.#used + count > this.#longFrom;
    if (long === this.#long) return;
    const ids = this.#ids.slice(0, this.#used);
    this.#used = 0;
    this.#long = long;
    for (let start = 0; start < ids.length; start += this.chunkLength)
      await this.#append(ids.slice(start, start + this.chunkLength), options);
  }

  #append(ids: readonly number[], options: ComputeOptions): Promise<Float32Array> {
    const data = BigInt64Array.from(ids, (id) => this.#checked(id));
    return this.#run({ dtype: "i64", shape: [1, ids.length], data }, options);
  }

  async #run(tokens: Tensor, { signal }: ComputeOptions): Promise<Float32Array> {
    const count = tokens.data.length;
    if (this.#used + count > this.contextLength)
      throw new ContextLengthError(
        `expected at most ${this.contextLength} tokens but found ${this.#used + count}; export the program for a longer context`,
      );
    (this.#position.data as BigInt64Array)[0] = BigInt(this.#used);
    const method = this.#long ? LONG_METHOD : "forward";
    const [logits] = await this.#session.run(method, [tokens, this.#position], signal);
    this.#ids.length = this.#used;
    for (const id of tokens.data) this.#ids.push(Number(id));
    this.#used += count;
    return logits!.data as Float32Array;
  }

  #checked(id: number): bigint {
    if (!Number.isInteger(id) || id < 0 || id >= this.vocabularySize)
      throw new InvalidArgumentError(`token id: expected 0..${this.vocabularySize - 1} but found ${id}`);
    return BigInt(id);
  }
}
