/**
 * AQLM: weights of about 2 bits as sums of codebook vectors. Importing this registers its operators, its weight format, how
 * checkpoints store it, and its encoder, all through the public ways for packages beside lowbit.
 */
import "./register.ts";
import { registerWeightFormat } from "lowbit/extension";
import { registerWeightEncoding, registerWeightStorage } from "lowbit/extension/checkpoint";
import { aqlmEncoding } from "./checkpoint/encoding.ts";
import { aqlmStorage } from "./checkpoint/storage.ts";
import { aqlmLowering } from "./weight.ts";

registerWeightFormat(aqlmLowering);
registerWeightStorage(aqlmStorage);
registerWeightEncoding(aqlmEncoding);

export { type EncodeOptions, encodeAqlm } from "./checkpoint/encode.ts";
export { type AqlmMode, hasAqlmWeights, parseAqlmMode } from "./checkpoint/mode.ts";
export { type AqlmForm, type AqlmWeights, aqlmBitsPerWeight } from "./form.ts";
export { packCodes, unpackCodes } from "./layout.ts";
export { dequantizeAqlm } from "./reference.ts";
export { type AqlmFormat, type AqlmWeight, aqlmWeight } from "./weight.ts";
