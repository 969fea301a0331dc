/**
 * AQLM, 2-bit weights as sums of codebook vectors, as an operator package would bring it: importing this registers the
 * operators, the weight format and the checkpoint storage through the public API.
 */
import "./register.ts";
import { registerWeightFormat, registerWeightStorage } from "../extension/index.ts";
import { aqlmStorage } from "./checkpoint.ts";
import { aqlmLowering } from "./weight.ts";

registerWeightFormat(aqlmLowering);
registerWeightStorage(aqlmStorage);

export { type EncodeOptions, encodeAqlm } from "./encode/model.ts";
export { type AqlmForm, type AqlmWeights, aqlmBitsPerWeight } from "./form.ts";
export { packCodes, unpackCodes } from "./layout.ts";
export { type AqlmMode, hasAqlmWeights, knownAqlmModes, parseAqlmMode } from "./mode.ts";
export { dequantizeAqlm } from "./reference.ts";
export { type AqlmFormat, type AqlmWeight, aqlmWeight } from "./weight.ts";
