/** A provider of Vercel's AI SDK that runs models in this process. Re-exports only. */
export type { LowbitOptions } from "./call-options.ts";
export type { LowbitEmbeddingOptions } from "./embedding-model.ts";
export type { LowbitSettings } from "./loaded-models.ts";
export { createLowbit, type LowbitProvider, lowbit } from "./provider.ts";
export type { LowbitRerankingOptions } from "./reranking-model.ts";
