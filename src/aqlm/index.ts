/**
 * AQLM, 2-bit weights as sums of codebook vectors, as an operator package would bring it: importing this registers the
 * operators and the weight format through the public API.
 */
import "./register.ts";
import { registerWeightFormat } from "../extension/index.ts";
import { aqlmLowering } from "./weight.ts";

registerWeightFormat(aqlmLowering);

export { type AqlmForm, type AqlmWeights, aqlmBitsPerWeight } from "./form.ts";
export { packCodes, unpackCodes } from "./layout.ts";
export { dequantizeAqlm } from "./reference.ts";
export { type AqlmFormat, type AqlmWeight, aqlmWeight } from "./weight.ts";
