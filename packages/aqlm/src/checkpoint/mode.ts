/** The quantization mode `aqlm-2x8` and its like: codebooks times bits. */

import { InvalidArgumentError } from "lowbit/extension";
import { checkModel, type Model } from "lowbit/extension/checkpoint";
import { type AqlmForm, BITS_MAX, CODEBOOKS_MAX, formName } from "../form.ts";
import type { AqlmFormat } from "../weight.ts";

/** What an AQLM mode says of weights; inputs come in groups of 8, outputs one by one. */
export type AqlmMode = Pick<AqlmForm, "codebooks" | "bits">;

/** The mode of a name such as `aqlm-2x8`; null when the name is not of AQLM. InvalidArgumentError for a bad one. */
export function parseAqlmMode(qmode: string): AqlmMode | null {
  if (typeof qmode !== "string") throw new InvalidArgumentError("qmode: expected a string, such as aqlm-2x8");
  if (!qmode.startsWith("aqlm-")) return null;
  const match = /^aqlm-(\d{1,2})x(\d{1,2})$/.exec(qmode);
  const [codebooks, bits] = [Number(match?.[1]), Number(match?.[2])];
  if (!(codebooks >= 1 && codebooks <= CODEBOOKS_MAX && bits >= 1 && bits <= BITS_MAX))
    throw new InvalidArgumentError(
      `qmode "${qmode}": expected aqlm-<codebooks 1..${CODEBOOKS_MAX}>x<bits 1..${BITS_MAX}>, such as aqlm-2x8`,
    );
  return { codebooks, bits };
}

/**
 * Whether the checkpoint of a model has AQLM weights, which are then what the mode names. InvalidArgumentError when
 * it has them in another form.
 */
export function hasAqlmWeights(model: Model, mode: AqlmMode): boolean {
  checkModel(model);
  if (!(mode?.codebooks >= 1)) throw new InvalidArgumentError("mode: expected one of parseAqlmMode()");
  const stored = model.network.slots.filter(({ name }) => model.storedFormat(name) === "aqlm");
  for (const { name } of stored) {
    const { form } = model.weight(name).format as AqlmFormat;
    if (form.codebooks !== mode.codebooks || form.bits !== mode.bits)
      throw new InvalidArgumentError(
        `${name}: is stored as aqlm-${formName(form)}, not as aqlm-${mode.codebooks}x${mode.bits}`,
      );
  }
  return stored.length > 0;
}
