/** All families of kernels: lists, best first. Written by `npm run families`. */
export {
  attendPacked,
  attention,
  poolPacked,
  rope,
  ropeAngles,
  ropeUpdateAndAttend,
  updateAndAttend,
} from "./attention/kernels.ts";
export { gatherColumns, joinColumns, select } from "./copy/kernels.ts";
export { add } from "./elementwise/add.ts";
export { gelu } from "./elementwise/gelu.ts";
export { scale } from "./elementwise/scale.ts";
export { scaleRows } from "./elementwise/scale-rows.ts";
export { sigmoid } from "./elementwise/sigmoid.ts";
export { softcap } from "./elementwise/softcap.ts";
export { softplus } from "./elementwise/softplus.ts";
export { embeddingFloat, embeddingPacked, embeddingShared } from "./embedding/kernels.ts";
export {
  combineExperts,
  expertLinearFloat,
  expertLinearPacked,
  expertRows,
  route,
  scatterExperts,
} from "./experts/kernels.ts";
export { clampedGate } from "./gate/clamped-gate.ts";
export { gate } from "./gate/gate.ts";
export { gateHalves } from "./gate/gate-halves.ts";
export {
  linearA8,
  linearA8Blocks,
  linearA8BlocksSwiglu,
  linearA8Swiglu,
  linearFloat,
  linearWeightOnly,
} from "./linear/kernels.ts";
export { addRmsNorm } from "./norm/add-rms-norm.ts";
export { layerNorm } from "./norm/layer-norm.ts";
export { rmsNorm } from "./norm/rms-norm.ts";
export { int4Pack } from "./packing/kernels.ts";
export { linearRecurrence, shortConvolution } from "./recurrent/kernels.ts";
export { argmax } from "./reduction/argmax.ts";
export { groupSums } from "./reduction/group-sums.ts";
export { softmax } from "./reduction/softmax.ts";
export { /** @public */ vocabularyMaxima, /** @public */ vocabularyWeights } from "./sampling/kernels.ts";
