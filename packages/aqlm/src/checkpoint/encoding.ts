/** The encoder as the command line finds it by its modes, such as `--qmode aqlm-2x8`. */
import type { WeightEncoding } from "lowbit/extension/checkpoint";
import { BITS_MAX, CODEBOOKS_MAX } from "../form.ts";
import { encodeAqlm } from "./encode.ts";
import { type AqlmMode, hasAqlmWeights, parseAqlmMode } from "./mode.ts";

export const aqlmEncoding: WeightEncoding<AqlmMode> = {
  modes: `aqlm-{1..${CODEBOOKS_MAX}}x{1..${BITS_MAX}}`,
  parse: parseAqlmMode,
  isStored: hasAqlmWeights,
  encode: (model, mode, options) => encodeAqlm(model, { ...options, ...mode }),
};
