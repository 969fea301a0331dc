/** The interface that the generate loop drives: a language model with a context that tokens are appended to. */

export interface ComputeOptions {
  /** Aborts the computation, which throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** A language model with a context that tokens are appended to. */
export interface Decoder {
  /** Context length in tokens. */
  readonly contextLength: number;
  /** Number of tokens in the context. */
  readonly position: number;
  /** Appends one or more tokens and returns the logits [vocabulary] after the last. The next call may reuse the array. */
  prefill(ids: readonly number[], options: ComputeOptions): Promise<Float32Array>;
  /** Appends one token and returns the logits [vocabulary] after it. */
  step(id: number, options: ComputeOptions): Promise<Float32Array>;
  /** Tokens of the last `prefill` that were in the KV cache already. Default 0. */
  readonly cachedTokens?: number | undefined;
  /** Model file to name in errors about the logits. Default: errors name the argument. */
  readonly file?: string | undefined;
  /** Number of logits. Default: as many as the tokenizer has ids. */
  readonly vocabularySize?: number | undefined;
  /**
   * Most tokens that the next call may append with drafts, counting the drawn one; 1 for no drafts. Drafts need `allLogits` and
   * `rewind`. Default 1.
   */
  readonly draftRows?: number | undefined;
  /** Appends tokens and returns the logits after each, [ids, vocabulary]. The next call may reuse the array. */
  allLogits?(ids: readonly number[], options: ComputeOptions): Promise<Float32Array>;
  /**
   * Logits after `ids` by the model's own draft head. `ids` are drawn or drafted tokens, which this does not append;
   * consecutive calls extend them by one id each. The next call may reuse the array. Null where the head has no hidden state to
   * start from; absent for a model without a draft head.
   */
  readonly draft?: ((ids: readonly number[], options?: ComputeOptions) => Promise<Float32Array | null>) | undefined;
  /** Removes the tokens from a position on. */
  rewind?(position: number): void;
  /** Tokens of the context that the next call computes again, because `rewind` could not keep their state. Default 0. */
  readonly recomputed?: number | undefined;
}
