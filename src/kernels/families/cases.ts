/** The cases of the families that have some. Written by `npm run families`. */
export {
  attendPackedCases as attendPacked,
  attentionCases as attention,
  ropeAnglesCases as ropeAngles,
  ropeCases as rope,
} from "./attention/cases.ts";
export {
  gatherColumnsCases as gatherColumns,
  joinColumnsCases as joinColumns,
  selectCases as select,
} from "./copy/cases.ts";
export { cases as add } from "./elementwise/add.ts";
export { cases as gelu } from "./elementwise/gelu.ts";
export { cases as scale } from "./elementwise/scale.ts";
export { cases as scaleRows } from "./elementwise/scale-rows.ts";
export { cases as sigmoid } from "./elementwise/sigmoid.ts";
export { cases as softcap } from "./elementwise/softcap.ts";
export { cases as softplus } from "./elementwise/softplus.ts";
export { cases as clampedGate } from "./gate/clamped-gate.ts";
export { cases as gate } from "./gate/gate.ts";
export { cases as gateHalves } from "./gate/gate-halves.ts";
export { cases as addRmsNorm } from "./norm/add-rms-norm.ts";
export { cases as layerNorm } from "./norm/layer-norm.ts";
export { cases as rmsNorm } from "./norm/rms-norm.ts";
export { cases as argmax } from "./reduction/argmax.ts";
export { cases as groupSums } from "./reduction/group-sums.ts";
export { cases as softmax } from "./reduction/softmax.ts";
