/** AQLM weights of checkpoints and their encoder: importing this registers how checkpoints store them. */
import "../index.ts";
import { registerWeightStorage } from "../../extension/checkpoint/index.ts";
import { aqlmStorage } from "./storage.ts";

registerWeightStorage(aqlmStorage);

export { type EncodeOptions, encodeAqlm } from "./encode.ts";
export { type AqlmMode, hasAqlmWeights, knownAqlmModes, parseAqlmMode } from "./mode.ts";
