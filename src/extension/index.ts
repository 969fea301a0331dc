/**
 * Entry for packages that add operators and weight formats, also for web pages; re-exports only. AQLM is built on nothing
 * else.
 */
export { checkOptions, checkWhole } from "../arguments.ts";
export type { DType, TypedArray } from "../dtype.ts";
export { InvalidArgumentError, InvalidFileError, LowbitError, ShapeError, UnsupportedError } from "../errors.ts";
export { f16Table, f32ToF16 } from "../half.ts";
export type { Cpu, CpuFeature, Kernel, KernelQuery, NativeCall } from "../kernels/contract.ts";
export { cpuWith, hostCpu } from "../kernels/cpu.ts";
export {
  type ArgumentsOf,
  type ArrayField,
  boolean,
  type ChoiceField,
  type NativeArguments,
  type NumberField,
  nativeArguments,
  type RecordField,
  unsized,
  whole,
} from "../kernels/declaration.ts";
export { checksum } from "../kernels/layout/header.ts";
export type { NativeRow } from "../kernels/native/interface.ts";
export { loadKernelsBesideAddon, loadNativeKernels, nativeKernels } from "../kernels/native/rows.ts";
export type { Builder, LazyConstant } from "../ops/builder.ts";
export type { Argument, Arguments, TensorSpec } from "../ops/call-arguments.ts";
export { EagerBuilder } from "../ops/eager.ts";
export { vectorConstant } from "../ops/lowering.ts";
export type { Operator, OperatorDefinition, StoredMatrix } from "../ops/operator.ts";
export { OperatorRegistry } from "../ops/operator-registry.ts";
export { Ops } from "../ops/ops.ts";
export { registerWeightFormat, type Weight, type WeightFormat, type WeightLowering } from "../ops/weight.ts";
export { operators } from "../registry/operators.ts";
export { registerOperator } from "../registry/register.ts";
export { isSameShape, type Tensor, toFloat32 } from "../tensor.ts";
