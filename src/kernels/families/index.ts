/** All families of kernels that are declared. Written by `npm run families`. */
export { add } from "./elementwise/add.ts";
export { gelu } from "./elementwise/gelu.ts";
export { scale } from "./elementwise/scale.ts";
export { scaleRows } from "./elementwise/scale-rows.ts";
export { sigmoid } from "./elementwise/sigmoid.ts";
export { softcap } from "./elementwise/softcap.ts";
export { softplus } from "./elementwise/softplus.ts";
export { clampedGate } from "./gate/clamped-gate.ts";
export { gate } from "./gate/gate.ts";
export { gateHalves } from "./gate/gate-halves.ts";
export { addRmsNorm } from "./norm/add-rms-norm.ts";
export { layerNorm } from "./norm/layer-norm.ts";
export { rmsNorm } from "./norm/rms-norm.ts";
export { argmax } from "./reduction/argmax.ts";
export { groupSums } from "./reduction/group-sums.ts";
export { softmax } from "./reduction/softmax.ts";
