/**
 * Entry for command lines, converters and benchmarks: programs as values, graphs, lists of weights and kernels, names of
 * options. Re-exports only; the command line imports nothing else.
 */

export {
  type CalibrationText,
  type CalibrationTextOptions,
  writeCalibrationText,
} from "../api/calibration-text.ts";
export { checkCompiles, compileModel } from "../api/compile-model.ts";
export { type Target, targets } from "../api/compile-options.ts";
export { type Diagnosis, diagnose } from "../api/diagnosis.ts";
export { type FileProgramOptions, keepingRefusal, withFileProgram } from "../api/file-program.ts";
export { type FitSizeOptions, type FittedSize, fitSize, type UniformChoice } from "../api/fit-size.ts";
export { type MethodGraph, modelGraphs, programGraphs } from "../api/graphs.ts";
export {
  DEFAULT_QUANTIZATION,
  type DownloadPlan,
  type HubProgramOptions,
  hubProgram,
  quantizeByDefault,
} from "../api/hub-program.ts";
export type { InspectOptions, MethodReport, WeightReport } from "../api/inspect.ts";
export {
  type KernelChoice,
  type KernelRow,
  type KernelTable,
  kernelTable,
  type ServingKernel,
} from "../api/kernel-table.ts";
export { loadProgramObject } from "../api/load-program-object.ts";
export { modelFactsOf } from "../api/model-facts.ts";
export { PrefixCache, type PrefixCacheOptions } from "../api/prefix-cache.ts";
export { restorePrefix, savePrefix } from "../api/prefix-file.ts";
export {
  type CachedProgram,
  type CacheKey,
  listCachedPrograms,
  programCache,
  removeCachedPrograms,
} from "../api/program-cache.ts";
export type { ProgramFileOptions } from "../api/program-file.ts";
export { bitsPerWeight, type ListedWeight, listWeights, parameterCount } from "../api/weight-list.ts";
export type { Bundle, BundledFile } from "../bundle/bundle.ts";
export { isCheckpoint, isHubName } from "../checkpoint/load.ts";
export { formatRecipe, weightsInRecipe } from "../checkpoint/quantize.ts";
export { type ChosenEncoding, type EncodingOptions, encodingModes, encodingOf } from "../checkpoint/weight-encoding.ts";
export { describeOrigins, isQuantizedApart, type WeightOrigin, weightOrigins } from "../checkpoint/weight-origins.ts";
export { capture, type InputSpec } from "../compile/capture.ts";
export { type CompileOptions, type CompileTarget, compile } from "../compile/compile.ts";
export { formatGraph, type Graph } from "../compile/graph.ts";
export { executorchTarget } from "../executorch/compile/lowering.ts";
export { type HubSettings, hubSettings } from "../hub/settings.ts";
export type { PullOptions } from "../hub/snapshot.ts";
export { knownCpus } from "../kernels/known-cpus.ts";
export { layouts } from "../kernels/layout/packed.ts";
export { kvCacheTypes } from "../kernels/sequence-table.ts";
export { wasmKernelText } from "../kernels/wasm/row-text.ts";
export { type Comparison, compareEach, compareModels, type Distribution } from "../language/compare.ts";
export type { ExecutableTool } from "../language/conversation-tools.ts";
export { createDecoder } from "../language/decoders.ts";
export { samplingDefaults } from "../language/generation-settings.ts";
export { type McpClient, mcpTools } from "../language/mcp-tools.ts";
export type { ProgramDecoder } from "../language/program-decoder.ts";
export {
  cannotWrite,
  checkOutput,
  checkOutputFolder,
  readFileWhole,
  writeFileWhole,
} from "../node-file.ts";
export { claimPath } from "../path-claim.ts";
export type { Program } from "../program/program.ts";
export type { ReadOptions } from "../program/read.ts";
export type { SaveOptions } from "../program/save.ts";
export { knownQmodes, parseEmbedding, parseGroupSize, parseRowBits, searched } from "../quantize/qmode.ts";
export { algorithms, mappingTypes, needsActivations, scaleDTypes } from "../quantize/scheme.ts";
export type { QuantizedWeights, WeightSpec } from "../quantized.ts";
export type { MemoryOccupancy } from "../runtime/calls/memory-occupancy.ts";
export type { ProfileEntry, ProfileOptions } from "../runtime/calls/profile.ts";
export type { Trace, TraceEvent } from "../runtime/calls/trace.ts";
export { LoadedProgram, type LoadOptions } from "../runtime/program.ts";
export type { AddedTokenMatcher } from "../text/added-tokens.ts";
export { ChatTemplate, type RenderOptions, type TemplateLimits, type TemplateMessage } from "../text/chat-template.ts";
export { type Draft, drafts } from "../text/draft-source.ts";
export { encodeChat } from "../text/encode-chat.ts";
export { logitsProblem } from "../text/finite-logits.ts";
export { takesTools } from "../text/template-input.ts";
export type { Padding } from "../text/tokenizer/padding.ts";
export type { Truncation } from "../text/tokenizer/truncation.ts";
export type { TokenizerLimits } from "../text/tokenizer/work-limit.ts";
export { type DecodeOptions, type EncodeTextOptions, type NamedToken, Tokenizer } from "../text/tokenizer.ts";
export { version } from "../version.ts";
