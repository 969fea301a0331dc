/** What the generate loop drives: a model with a context that tokens are appended to. */

export interface ComputeOptions {
  /** Ends the computation; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
  /**
   * What tokens are of, which some CPUs compute in two ways: `prefill` computes those of a prompt unless this says other, `step` and
   * `allLogits` those of an answer.
   */
  readonly of?: "prompt" | "answer" | undefined;
}

/** A language model with a context that tokens are appended to. */
export interface Decoder {
  /** Tokens that the context can hold. */
  readonly contextLength: number;
  /** Tokens that the context holds now. */
  readonly position: number;
  /** Appends at least one id and gives the logits [vocabulary] after the last. They may be reused by the next call. */
  prefill(ids: readonly number[], options: ComputeOptions): Promise<Float32Array>;
  /** Appends one token and gives the logits behind it. */
  step(id: number, options: ComputeOptions): Promise<Float32Array>;
  /** Tokens of the last `prefill` that were found computed already. Default 0. */
  readonly cachedTokens?: number | undefined;
  /** File that the logits follow from, which errors about them name. Default: errors name the argument. */
  readonly file?: string | undefined;
  /** Number of logits. Default: as many as the tokenizer has ids. */
  readonly vocabularySize?: number | undefined;
  /**
   * Most tokens that the next call may append for drafts, the one that was drawn included; 1 for none. Drafts need the two
   * methods below. Default 1.
   */
  readonly draftRows?: number | undefined;
  /** Appends ids and gives the logits behind each, [ids, vocabulary]. They may be reused by the next call. */
  allLogits?(ids: readonly number[], options: ComputeOptions): Promise<Float32Array>;
  /**
   * Logits behind `ids`, tokens that were drawn or drafted and are not appended by that, as the model's own head for drafts
   * guesses them: calls in a row add one id each. They may be reused by the next call. Null where it has nothing to guess from.
   * Absent for a model without such a head.
   */
  readonly draft?: ((ids: readonly number[], options?: ComputeOptions) => Promise<Float32Array | null>) | undefined;
  /** Forgets the tokens from a position on. */
  rewind?(position: number): void;
  /** Tokens of the context that the next call computes again, since a rewind could not keep what was computed of them. Default 0. */
  readonly recomputed?: number | undefined;
}
