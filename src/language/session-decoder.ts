/** Decoder of a program with a contiguous KV cache: prompts in chunks, tokens one by one. */
import { checkIds, checkOptions } from "../arguments.ts";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import { blamedForInputs } from "../runtime/blame.ts";
import type { LoadedProgram } from "../runtime/program.ts";
import type { Session } from "../runtime/session.ts";
import type { Tensor } from "../tensor.ts";
import type { ComputeOptions } from "../text/decoder.ts";
import { logitsOf } from "./logits.ts";
import { LONG_METHOD, type ProgramDecoder } from "./program-decoder.ts";
import { TokenContext } from "./token-context.ts";

/** One sequence of a program whose KV cache is in states of its session, such as one for ExecuTorch. */
export class SessionDecoder implements ProgramDecoder {
  readonly file: string;
  readonly contextLength: number;
  /** Number of logits of a token (V). */
  readonly vocabularySize: number;
  readonly logitRows: number;
  /** Most tokens of one call; longer prompts are run in chunks. */
  readonly #chunkLength: number;
  readonly #program: LoadedProgram;
  readonly #session: Session;
  readonly #position: Tensor = { dtype: "i64", shape: [1], data: new BigInt64Array(1) };
  readonly #single: Tensor = { dtype: "i64", shape: [1, 1], data: new BigInt64Array(1) };
  /** Sequences of more tokens than this are computed by `LONG_METHOD`, from their first token on. */
  readonly #longFrom: number;
  readonly #context: TokenContext;
  /**
   * Number of ids, from the first on, whose keys and values the session holds; `#long`: whether `LONG_METHOD` computed
   * them.
   */
  #held = 0;
  #isDisposed = false;
  #long = false;

  /** `context`: ids to begin with, which are computed again when the decoder is used. */
  constructor(program: LoadedProgram, context?: TokenContext) {
    this.file = program.file;
    this.#program = program;
    this.#chunkLength = program.count("get_max_seq_len");
    this.contextLength = program.count("get_max_context_len", this.#chunkLength);
    this.vocabularySize = program.count("get_vocab_size");
    const { values, outputs } = program.method("forward");
    const output = values[outputs[0] ?? -1];
    if (output?.kind !== "tensor" || output.dtype !== "f32" || output.sizes.at(-1) !== this.vocabularySize)
      throw new InvalidFileError(program.file, `expected forward to give f32 logits [.., ${this.vocabularySize}]`);
    this.logitRows = output.sizes.length === 3 ? this.#chunkLength : 0;
    const { contextLength, vocabularySize } = this;
    const remedy = "export the program for a longer context";
    this.#context = context ?? new TokenContext({ contextLength, vocabularySize, remedy });
    this.#longFrom = program.count("get_long_context_from", Number.POSITIVE_INFINITY);
    this.#session = program.createSession();
  }

  /** Frees the session's state; the decoder must not be used any more. */
  dispose(): Promise<void> {
    this.#isDisposed = true;
    return this.#session.dispose();
  }

  get position(): number {
    return this.#context.ids.length;
  }

  /**
   * Forgets all tokens from `position` on. InvalidArgumentError while a call is under way, since its tokens are not
   * appended yet.
   */
  rewind(position: number): void {
    this.#context.rewind(position);
    this.#held = Math.min(this.#held, position);
  }

  /** The fork has a session of its own, so it computes the tokens again. */
  fork(): SessionDecoder {
    if (this.#isDisposed) throw new InvalidArgumentError("decoder: was disposed of");
    return new SessionDecoder(this.#program, this.#context.fork());
  }

  /**
   * Appends tokens and gives the logits after the last. After an abort, whole chunks may have been appended: see
   * `position`. Other errors append nothing.
   */
  prefill(ids: readonly number[], options: ComputeOptions = {}): Promise<Float32Array> {
    return this.#context.alone(async () => {
      checkIds("prefill", ids);
      checkOptions(options);
      const tokens = this.#tokens(ids);
      await this.#chooseMethod(ids.length, options);
      let logits: Float32Array | undefined;
      for (const chunk of this.#chunks(tokens)) logits = await this.#append(chunk, options);
      if (!logits) throw new InvalidArgumentError("prefill: expected at least one token");
      return this.#lastRow(logits);
    });
  }

  /** Appends one token and gives the logits after it. */
  step(id: number, options: ComputeOptions = {}): Promise<Float32Array> {
    return this.#context.alone(async () => {
      this.#context.check([id]);
      checkOptions(options);
      (this.#single.data as BigInt64Array)[0] = BigInt(id);
      await this.#chooseMethod(1, options);
      return this.#lastRow(await this.#append(this.#single, options));
    });
  }

  /** Appends `ids` and gives the logits [T, V] of each, by a program compiled with logits "all". */
  allLogits(ids: readonly number[], options: ComputeOptions = {}): Promise<Float32Array> {
    return this.#context.alone(async () => {
      checkIds("allLogits", ids);
      checkOptions(options);
      const tokens = this.#tokens(ids);
      await this.#chooseMethod(ids.length, options);
      return this.#append(tensorOf(tokens), options);
    });
  }

  #lastRow(logits: Float32Array): Float32Array {
    return this.logitRows > 0 ? logits.subarray(-this.vocabularySize) : logits;
  }

  /**
   * Chooses the method for `count` more tokens, and computes what the session does not hold: all tokens when the method
   * changes.
   */
  async #chooseMethod(count: number, options: ComputeOptions): Promise<void> {
    const long = this.position + count > this.#longFrom;
    if (long !== this.#long) this.#held = 0;
    this.#long = long;
    // All tokens after a change of the method, or those that an abort left; otherwise none.
    if (this.#held === this.position) return;
    const missing = BigInt64Array.from(this.#context.ids.slice(this.#held), BigInt);
    for (const chunk of this.#chunks(missing)) await this.#compute(chunk, options);
  }

  async #append(tokens: Tensor, options: ComputeOptions): Promise<Float32Array> {
    const logits = await this.#compute(tokens, options);
    for (const id of tokens.data) this.#context.ids.push(Number(id));
    return logits;
  }

  /** Computes tokens after those whose keys and values the session holds. */
  async #compute(tokens: Tensor, { signal }: ComputeOptions): Promise<Float32Array> {
    (this.#position.data as BigInt64Array)[0] = BigInt(this.#held);
    const method = this.#long ? LONG_METHOD : "forward";
    // What a call gives follows from the file, so an error about it names the file.
    const [logits] = await this.#session.run(method, [tokens, this.#position], signal).catch((error) => {
      throw blamedForInputs(this.file, signal, error);
    });
    const rows = this.logitRows > 0 ? null : 1;
    const values = logitsOf(logits, { file: this.file, method, vocabularySize: this.vocabularySize, rows });
    this.#held += tokens.data.length;
    return values;
  }

  #chunks(tokens: BigInt64Array): Tensor[] {
    const count = Math.ceil(tokens.length / this.#chunkLength);
    return Array.from({ length: count }, (_, i) =>
      tensorOf(tokens.subarray(i * this.#chunkLength, (i + 1) * this.#chunkLength)),
    );
  }

  /** Ids as int64, after checking them and that the context has room for them. */
  #tokens(ids: readonly number[]): BigInt64Array {
    this.#context.check(ids);
    return BigInt64Array.from(ids, BigInt);
  }
}

const tensorOf = (ids: BigInt64Array): Tensor => ({ dtype: "i64", shape: [1, ids.length], data: ids });
