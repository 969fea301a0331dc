/** lowbit's public API. */

export type { CompileModelOptions, ExportOptions } from "./api/compile-model.ts";
export { checkCompiles, compileModel, EagerModel, exportProgram } from "./api/compile-model.ts";
export { type MethodGraph, modelGraphs, programGraphs } from "./api/graphs.ts";
export {
  type InspectOptions,
  inspectProgram,
  type MethodReport,
  type ProgramReport,
  type WeightReport,
} from "./api/inspect.ts";
export {
  type KernelChoice,
  type KernelRow,
  type KernelTable,
  kernelTable,
  type ServingKernel,
} from "./api/kernel-table.ts";
export { loadCompiled } from "./api/load-compiled.ts";
export { loadProgram } from "./api/load-program.ts";
export { exportMethods, loadMethods } from "./api/methods.ts";
export type { ProgramFileOptions } from "./api/program-file.ts";
export { type SaveGgufOptions, saveGguf } from "./api/save-gguf.ts";
export { saveTorchao } from "./api/save-torchao.ts";
export { bitsPerWeight, type ListedWeight, listWeights } from "./api/weight-list.ts";
export * from "./aqlm/checkpoint/index.ts";
export * from "./aqlm/index.ts";
export { type Bundle, type BundledFile, bundleProgram } from "./bundle/bundle.ts";
export { type CalibrateOptions, calibrate } from "./checkpoint/calibrate/calibrate.ts";
export { isCheckpoint, isHubName, loadCheckpoint } from "./checkpoint/model.ts";
export { type QuantizeOptions, quantize, quantizeByRecipe, weightsInRecipe } from "./checkpoint/quantize.ts";
export { describeOrigins, isQuantizedApart, type WeightOrigin, weightOrigins } from "./checkpoint/weight-origins.ts";
export { capture, type InputSpec, type MethodSource } from "./compile/capture.ts";
export { type CompileOptions, compile, type Target, targets } from "./compile/compile.ts";
export { formatGraph, type Graph } from "./compile/graph.ts";
export { ContextLengthError } from "./errors.ts";
export * from "./extension/checkpoint/index.ts";
export * from "./extension/index.ts";
export { HubError } from "./hub/request.ts";
export { type HubSettings, hubSettings } from "./hub/settings.ts";
export { type PullOptions, pullModel } from "./hub/snapshot.ts";
export { knownCpus } from "./kernels/known-cpus.ts";
export { layouts } from "./kernels/layout/packed.ts";
export { wasmKernelText } from "./kernels/wasm/row-text.ts";
export { type Benchmark, type BenchmarkOptions, benchmark } from "./language/benchmark.ts";
export { Conversation } from "./language/conversation.ts";
export { evaluatePerplexity, type Perplexity, type PerplexityOptions } from "./language/evaluate.ts";
export { LanguageModel, loadProgramObject } from "./language/language-model.ts";
export { SessionDecoder } from "./language/session-decoder.ts";
export type { Generation } from "./language/token-stream.ts";
export { checkOutput, checkOutputFolder, openFile, writeFileWhole } from "./node-file.ts";
export { type KvCacheType, kvCacheTypes } from "./ops/kv-cache.ts";
export { OperatorRegistry } from "./ops/operator-registry.ts";
export { Ops } from "./ops/ops.ts";
export { claimPath } from "./path-claim.ts";
export type { Program } from "./program/program.ts";
export { type ReadOptions, readProgram } from "./program/read.ts";
export { saveProgram } from "./program/save.ts";
export {
  embedding,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  type QuantizationConfig,
  sharedEmbedding,
} from "./quantize/config.ts";
export { knownQmodes, parseEmbedding, parseGroupSize, parseQmode } from "./quantize/qmode.ts";
export { makeRecipe, parseRecipe, type Recipe } from "./quantize/recipe.ts";
export { algorithms, mappingTypes, needsActivations, scaleDTypes } from "./quantize/scheme.ts";
export type { QuantizedWeights, WeightSpec } from "./quantized.ts";
export type { MemoryOccupancy } from "./runtime/memory-occupancy.ts";
export { Profile, type ProfileEntry, type ProfileOptions } from "./runtime/profile.ts";
export { LoadedProgram, type LoadOptions } from "./runtime/program.ts";
export type { Session } from "./runtime/session.ts";
export type { Trace, TraceEvent } from "./runtime/trace.ts";
export type { Message, TemplateLimits } from "./text/chat-template.ts";
export type { GenerateOptions, GenerationResult } from "./text/generate.ts";
