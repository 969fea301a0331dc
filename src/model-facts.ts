/** Facts about a model that are known before it is loaded. */
export interface ModelFacts {
  /** What it gives: generated text, or embeddings or scores of texts. */
  readonly makes: "text" | "embeddings" | "scores";
  /** Format of its files, such as "pte". */
  readonly format: string;
  /** Name of its architecture; null where its file does not tell. */
  readonly architecture: string | null;
  /** Number of its weights' elements (parameters). */
  readonly parameters: number;
  /** Mean bits of a weight, scales included; null where loading decides that. */
  readonly bitsPerWeight: number | null;
  /** Context length in tokens; null where its file does not tell. */
  readonly contextLength: number | null;
  /** Chat template that came with it; null without one. */
  readonly template: string | null;
}
