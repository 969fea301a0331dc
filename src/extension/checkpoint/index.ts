/** Entry for packages that read or encode checkpoint weights, beside the operators; re-exports only. */
export {
  type LinearLayer,
  type LinearVisitor,
  visitLinearLayers,
  type WalkOptions,
} from "../../checkpoint/calibrate/walk.ts";
export { type AbortOptions, checkModel, Model } from "../../checkpoint/model.ts";
export { checkFiniteInputs, finiteFloats } from "../../checkpoint/stored/finite.ts";
export {
  isSameMethod,
  quantMethod,
  registerWeightStorage,
  type StoredWeight,
  type WeightStorage,
} from "../../checkpoint/stored/weight-storage.ts";
export { type EncodingOptions, registerWeightEncoding, type WeightEncoding } from "../../checkpoint/weight-encoding.ts";
export { nextMacrotask } from "../../event-loop.ts";
export type { Checkpoint } from "../../formats/contract.ts";
export { writeSafetensors } from "../../formats/safetensors-writer.ts";
export { openTensorFile } from "../../formats/shards.ts";
export type { TensorInfo, TensorSource } from "../../formats/tensor-source.ts";
export { columnsOf, type Matrix, matrix, transpose } from "../../matrix.ts";
export { moduleOf, type WeightSlot } from "../../model/decoder.ts";
export { makeFolder } from "../../node-file.ts";
export { multiplyTransposed } from "../../ops/product.ts";
export { cholesky, solveCholesky } from "../../quantize/cholesky.ts";
