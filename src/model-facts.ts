/** What is known of a model before it is loaded. */
export interface ModelFacts {
  /** What it makes of texts. */
  readonly makes: "text" | "embeddings" | "scores";
  /** What its files are, such as "pte". */
  readonly format: string;
  /** Name of its architecture; null where its file does not say it. */
  readonly architecture: string | null;
  /** Numbers in its weights. */
  readonly parameters: number;
  /** Bits that a weight takes with its scales; null where that is decided when it is loaded. */
  readonly bitsPerWeight: number | null;
  /** Tokens that a text of it may have; null where its file does not say it. */
  readonly contextLength: number | null;
  /** Chat template that came with it; null without one. */
  readonly template: string | null;
}
