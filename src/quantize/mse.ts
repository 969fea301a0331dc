/** Rounds each weight independently, with the least-squared-error grid of its group. */
import { InvalidArgumentError, ShapeError } from "../errors.ts";
import { groupCount, hasFactors, type QuantizedWeights, superGroupCount } from "../quantized.ts";
import { type AffineOptions, checkSizes, notFinite, quantizeAffine } from "./affine.ts";
import { GroupFit } from "./group-fit.ts";
import { checkScheme } from "./scheme.ts";

/**
 * Quantizes weights [n, k] as a scheme says: by `quantizeAffine` where its algorithm is TorchAO's, else by `quantizeMse`.
 * Errors are those of the two.
 */
export function quantizeWeights(
  weights: Float32Array,
  options: AffineOptions,
  importance: Float32Array | null = null,
  levels: Int8Array | null = null,
): QuantizedWeights {
  const { algorithm } = options;
  if (algorithm === "affine" || algorithm === "hqq_scale_only") return quantizeAffine(weights, options);
  return quantizeMse(weights, options, importance, levels);
}

/**
 * Quantizes weights [n, k] so that the sum of importance[column] * error^2 of each group is the least of the grids that
 * `GroupFit` tries; without importance, all errors count alike. Scales may be negative, and 0 for a group of zeros of a
 * codebook or with integer scales. `levels` are those of a codebook that is not one of `codebooks`.
 *
 * Throws InvalidArgumentError for options out of range, and for weights or importance that are not finite, ShapeError for a
 * wrong length.
 */
export function quantizeMse(
  weights: Float32Array,
  options: AffineOptions,
  importance: Float32Array | null = null,
  levels: Int8Array | null = null,
): QuantizedWeights {
  checkScheme("quantizeMse", options);
  checkSizes("quantizeMse", weights, options);
  const { n, k } = options;
  if (importance) checkImportance(importance, k);
  const bad = weights.findIndex((weight) => !Number.isFinite(weight));
  if (bad >= 0) throw notFinite("quantizeMse", weights, bad, k);
  const fit = new GroupFit(n, k, options, levels);
  const result = emptyWeights(fit);
  const columns = fit.factorColumns;
  let group = 0;
  for (let r = 0, factor = 0; r < n; r++)
    for (let c = 0; c < k; c += columns, factor++) {
      const end = Math.min(k, c + columns);
      fit.fitGroups(weights, r * k + c, r * k + end, importance?.subarray(c, end) ?? null, (first, last) => {
        result.scales[group] = fit.scale;
        if (result.zeros) result.zeros[group] = fit.zero;
        for (let i = first; i < last; i++) result.qvals[i] = fit.round(weights[i]!);
        group++;
      });
      if (result.superScales) result.superScales[factor] = fit.factor;
    }
  return result;
}

/** InvalidArgumentError for importance that is not finite or negative, ShapeError for another number than k. */
function checkImportance(importance: Float32Array, k: number): void {
  if (importance.length !== k)
    throw new ShapeError(`importance: expected a number for each of ${k} columns but found ${importance.length}`);
  const at = importance.findIndex((value) => !(value >= 0 && value < Number.POSITIVE_INFINITY));
  if (at >= 0)
    throw new InvalidArgumentError(
      `importance: expected finite numbers of at least 0 but found ${importance[at]} for column ${at}`,
    );
}

/** Allocates integers, scales, their factors and zero points. */
export function emptyWeights({ spec, levels }: Pick<GroupFit, "spec" | "levels">) {
  const scales = new Float32Array(spec.n * groupCount(spec));
  return {
    ...spec,
    qvals: new Int8Array(spec.n * spec.k),
    scales,
    zeros: spec.hasZeros ? new Int8Array(scales.length) : null,
    levels,
    ...(hasFactors(spec) && { superScales: new Float32Array(spec.n * superGroupCount(spec)) }),
  };
}
