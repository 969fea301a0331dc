/** What packages that add operators and weight formats import; re-exports only. AQLM is built on nothing else. */
export { type LinearLayer, type LinearVisitor, visitLinearLayers, type WalkOptions } from "../api/calibrate/walk.ts";
export { checkFiniteInputs, finiteFloats } from "../api/finite.ts";
export { Model, type ModelHooks } from "../api/model.ts";
export {
  isSameMethod,
  quantMethod,
  registerWeightStorage,
  type StoredWeight,
  type WeightStorage,
} from "../api/weight-storage.ts";
export type { DType, TypedArray } from "../dtype.ts";
export { InvalidArgumentError, InvalidFileError, LowbitError, ShapeError, UnsupportedError } from "../errors.ts";
export { nextMacrotask } from "../event-loop.ts";
export type { Checkpoint } from "../formats/checkpoint.ts";
export { writeSafetensors } from "../formats/safetensors-writer.ts";
export { openTensorFile } from "../formats/shards.ts";
export type { TensorInfo, TensorSource } from "../formats/tensor-source.ts";
export { f16Table, f32ToF16 } from "../half.ts";
export type { Cpu, CpuFeature, Kernel, KernelQuery, NativeCall } from "../kernels/contract.ts";
export { cpuWith, hostCpu } from "../kernels/cpu.ts";
export { checksum } from "../kernels/layout/header.ts";
export { type ArgumentNames, type NativeArguments, orderArguments } from "../kernels/native/families.ts";
export { loadNativeKernels, nativeKernels } from "../kernels/native/rows.ts";
export { columnsOf, type Matrix, matrix, transpose } from "../matrix.ts";
export { moduleOf, type WeightSlot } from "../model/decoder.ts";
export { makeFolder } from "../node-file.ts";
export type { Builder, LazyConstant } from "../ops/builder.ts";
export type { Argument, Arguments, TensorSpec } from "../ops/call-arguments.ts";
export { EagerBuilder } from "../ops/eager.ts";
export { vectorConstant } from "../ops/lowering.ts";
export type { Operator, OperatorDefinition, StoredMatrix } from "../ops/operator.ts";
export { multiplyTransposed } from "../ops/product.ts";
export { operators, registerOperator } from "../ops/registry.ts";
export { registerWeightFormat, type Weight, type WeightFormat, type WeightLowering } from "../ops/weight.ts";
export { cholesky, solveCholesky } from "../quantize/cholesky.ts";
export { isSameShape, type Tensor, toFloat32 } from "../tensor.ts";
