/** A server of language models with the APIs of OpenAI, Anthropic and Ollama, to be embedded in other programs. */
export {
  type AnswererOptions,
  type BatchAnswerer,
  type BatchOptions,
  type BatchResult,
  type LocalAnswerer,
  localAnswerer,
  runBatch,
} from "./batch/batch.ts";
export type { BatchRequest, BatchSummary } from "./batch/input.ts";
export type { BatchAnswer } from "./batch/output.ts";
export { type QueueOptions, queueAnswerer, startWorker } from "./batch/queue.ts";
export type { UnseenPolicy } from "./contents.ts";
export { type ApiKey, parseKeys } from "./keys.ts";
export { defaultLimits, type ServerLimits } from "./limits.ts";
export { type RunningServer, type ServerOptions, serveModels } from "./listen.ts";
export type { ListedModel, ModelSource } from "./models.ts";
export { type NamedPrompt, parsePrompts } from "./named-prompts.ts";
export type { PullModel } from "./serving.ts";
