/** Checks options beside `--qmode` of an encoding such as aqlm-2x8, which has options of its own. */
import { type ChosenEncoding, encodingOf } from "../tools/index.ts";
import type { QuantizationOptions } from "./quantization-options.ts";
import { UsageError } from "./usage-error.ts";

/** The encoding of `--qmode`; null where it names none. UsageError for options that have no effect beside it. */
export function encodingFor(options: QuantizationOptions): ChosenEncoding | null {
  const encoding = options.qmode === undefined ? null : encodingOf(options.qmode);
  if (!encoding) return null;
  const refused = Object.entries(refusals(options)).find(([, reason]) => reason !== null);
  if (refused) throw new UsageError(`${refused[0]} does not go with --qmode ${options.qmode}${refused[1]}`);
  return encoding;
}

/** Ends of error messages by option; null for options that are absent or have an effect. */
function refusals(options: QuantizationOptions): Readonly<Record<string, string | null>> {
  const { head, embedding, sharedEmbedding, recipe, quantizeHead, groupSize, scaleDtype, layout } = options;
  const given = (value: unknown, reason = "") => (value === undefined ? null : reason);
  const hasOthers = [head, embedding, sharedEmbedding, recipe].some((value) => value !== undefined);
  const needsOthers = (value: unknown) =>
    hasOthers
      ? null
      : given(value, ": expected --head, --embedding or --shared-embedding, to whose weights it would apply");
  return {
    "--mapping-type": given(options.mappingType),
    "--algorithm": given(options.algorithm),
    "--smoothquant": given(options.smoothquant),
    "--size": given(options.size),
    "--no-quantize-head": quantizeHead ? null : ", which leaves the head float without --head",
    "--shared-embedding":
      sharedEmbedding === true
        ? " without bits and group size of its own: expected --shared-embedding 4,32 or the like"
        : null,
    "--group-size": head === undefined ? given(groupSize, ": expected --head, whose groups it would size") : null,
    "--scale-dtype": needsOthers(scaleDtype),
    "--layout": needsOthers(layout),
  };
}
