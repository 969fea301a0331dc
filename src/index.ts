/**
 * lowbit: API for programs that use language models. Quantize a checkpoint, export it, load the program, generate text.
 * `lowbit/tools` has more for command lines and tools, `lowbit/extension` for authors of operators, `lowbit/web` for web
 * pages.
 */
import "lowbit/aqlm";

export type { CompileModelOptions } from "./api/compile-options.ts";
export { EagerModel } from "./api/eager-model.ts";
export { type ExportOptions, exportProgram } from "./api/export-program.ts";
export { inspectProgram, type ProgramReport } from "./api/inspect.ts";
export { loadCompiled } from "./api/load-compiled.ts";
export { loadProgram } from "./api/load-program.ts";
export { exportMethods, loadMethods } from "./api/methods.ts";
export { type SaveGgufOptions, saveGguf } from "./api/save-gguf.ts";
export { saveTorchao } from "./api/save-torchao.ts";
export { bundleProgram } from "./bundle/bundle.ts";
export { type CalibrateOptions, calibrate } from "./checkpoint/calibrate/calibrate.ts";
export { loadCheckpoint } from "./checkpoint/load.ts";
export type { Model } from "./checkpoint/model.ts";
export { type QuantizeOptions, quantize, quantizeByRecipe } from "./checkpoint/quantize.ts";
export type { MethodSource } from "./compile/capture.ts";
export {
  ContextLengthError,
  InvalidArgumentError,
  InvalidFileError,
  LimitError,
  LowbitError,
  ShapeError,
  UnsupportedError,
} from "./errors.ts";
export { HubError } from "./hub/request.ts";
export { pullModel } from "./hub/snapshot.ts";
export type { Cpu } from "./kernels/contract.ts";
export { cpuWith, hostCpu } from "./kernels/cpu.ts";
export type { KvCacheType } from "./kernels/sequence-table.ts";
export { type Benchmark, type BenchmarkOptions, benchmark } from "./language/benchmark.ts";
export type { ChatEvent, ChatOptions, ChatResult, ChatStream } from "./language/chat-options.ts";
export type { Conversation } from "./language/conversation.ts";
export { benchmarkDrafts, type DraftBenchmark, type DraftBenchmarkOptions } from "./language/draft-benchmark.ts";
export type { EmbeddingModel, EmbedOptions } from "./language/embedding-model.ts";
export { evaluatePerplexity, type Perplexity } from "./language/evaluate.ts";
export type { LanguageModel } from "./language/language-model.ts";
export type { RankOptions, Reranker } from "./language/reranker.ts";
export type { ResultStream } from "./language/result-stream.ts";
export type { PerplexityOptions } from "./language/scored-rows.ts";
export { openFile } from "./node-file.ts";
export { Ops } from "./ops/ops.ts";
export { readProgram } from "./program/read.ts";
export { saveProgram } from "./program/save.ts";
export {
  embedding,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  type QuantizationConfig,
  sharedEmbedding,
} from "./quantize/config.ts";
export { parseQmode } from "./quantize/qmode.ts";
export { makeRecipe, parseRecipe, type Recipe } from "./quantize/recipe.ts";
export { Profile } from "./runtime/calls/profile.ts";
export type { LoadedProgram } from "./runtime/program.ts";
export type { Session } from "./runtime/session.ts";
export type { Tensor } from "./tensor.ts";
export type { Message, Tool, ToolCall, ToolChoice } from "./text/chat-messages.ts";
export type { GenerateOptions, GenerationResult } from "./text/generate.ts";
