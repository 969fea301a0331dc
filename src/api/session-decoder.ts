/** A session of a loaded program as the decoder that the generate loop drives: prompts in chunks, tokens one by one. */
import { ContextLengthError, InvalidArgumentError, InvalidFileError } from "../errors.ts";
import type { LoadedProgram } from "../runtime/program.ts";
import type { Session } from "../runtime/session.ts";
import type { Tensor } from "../tensor.ts";
import type { ComputeOptions, Decoder } from "../text/generate.ts";

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
  #used = 0;

  constructor(program: LoadedProgram) {
    this.chunkLength = program.number("get_max_seq_len");
    this.contextLength = program.number("get_max_context_len", this.chunkLength);
    this.vocabularySize = program.number("get_vocab_size");
    const { values, outputs } = program.method("forward");
    const output = values[outputs[0] ?? -1];
    if (output?.kind !== "tensor" || output.dtype !== "f32" || output.sizes.at(-1) !== this.vocabularySize)
      throw new InvalidFileError("program", `expected forward to give f32 logits [.., ${this.vocabularySize}]`);
    this.logits = output.sizes.length === 3 ? "all" : "last";
    this.#session = program.createSession();
  }

  get position(): number {
    return this.#used;
  }

  /** Forgets all tokens from `position` on. */
  rewind(position: number): void {
    if (position < 0 || position > this.#used)
      throw new InvalidArgumentError(`rewind: expected a position up to ${this.#used} but found ${position}`);
    this.#used = position;
  }

  async prefill(ids: readonly number[], options: ComputeOptions = {}): Promise<Float32Array> {
    let logits: Float32Array | undefined;
    for (let start = 0; start < ids.length; start += this.chunkLength)
      logits = await this.#append(ids.slice(start, start + this.chunkLength), options);
    if (!logits) throw new InvalidArgumentError("prefill: expected at least one token");
    return this.#lastRow(logits);
  }

  async step(id: number, options: ComputeOptions = {}): Promise<Float32Array> {
    (this.#single.data as BigInt64Array)[0] = this.#checked(id);
    return this.#lastRow(await this.#run(this.#single, options));
  }

  /** Logits of every token of `ids`, [T, V], from a program compiled with logits "all". */
  async allLogits(ids: readonly number[], options: ComputeOptions = {}): Promise<Float32Array> {
    return this.#append(ids, options);
  }

  #lastRow(logits: Float32Array): Float32Array {
    return this.logits === "all" ? logits.subarray(-this.vocabularySize) : logits;
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
    const [logits] = await this.#session.run("forward", [tokens, this.#position], signal);
    this.#used += count;
    return logits!.data as Float32Array;
  }

  #checked(id: number): bigint {
    if (!Number.isInteger(id) || id < 0 || id >= this.vocabularySize)
      throw new InvalidArgumentError(`token id: expected 0..${this.vocabularySize - 1} but found ${id}`);
    return BigInt(id);
  }
}
