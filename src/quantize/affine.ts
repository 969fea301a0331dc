/** Rounds float32 weights to integers with a scale (and zero point) for each group along k. Knows no byte layout. */
import { InvalidArgumentError, ShapeError } from "../errors.ts";
import { f16Table, f32ToF16 } from "../half.ts";
import { groupCount, type QuantizedWeights, type ScaleDType, type WeightSpec } from "../quantized.ts";
import { roundHalfEven } from "../rounding.ts";
import { hqqScale, hqqStart, laneSum, SUM_LANES } from "./hqq.ts";
import { checkScheme, type MappingType, type Scheme, weightSpec } from "./scheme.ts";

const { fround, max, min } = Math;

/** Range of usable scales: the normal numbers of float32 (TorchAO's eps), all finite numbers of binary16. */
const scaleRange = {
  f32: { smallest: 2 ** -126, largest: (2 - 2 ** -23) * 2 ** 127 },
  f16: { smallest: 2 ** -24, largest: 65504 },
} as const satisfies Record<ScaleDType, unknown>;

export interface AffineOptions extends Scheme {
  /** Rows (output channels). */
  readonly n: number;
  /** Columns (input features). */
  readonly k: number;
}

/**
 * Quantizes weights [n, k] as TorchAO does, in its float32 arithmetic: `q = clamp(roundHalfEven(w * (1/s)) + zero)` in
 * `-2^(bits-1) .. 2^(bits-1)-1`, with s and zero of each group from its range widened to include 0:
 * - symmetric: `s = max|w| / ((qmax - qmin) / 2)`;
 * - symmetric_no_clipping_err: `s = max(min / qmin, max / qmax)`;
 * - asymmetric: `s = (max - min) / (qmax - qmin)`, `zero = clamp(qmin - roundHalfEven(min / s))`;
 * - hqq_scale_only, for both symmetric mappings: the least-squares scale, see `hqqScale`.
 *
 * One bit with a symmetric mapping is where TorchAO yields only zeros; here its integers index the levels -1 and +1
 * and the scale is mean|w|, the least-squares optimum of sign quantization (XNOR-Net, Rastegari et al. 2016).
 *
 * A last group shorter than the others is like one filled up with zeros (but its 1-bit mean is over the true weights).
 * An f16 scale is rounded, kept within 2^-24 .. 65504, and the weights are quantized with the rounded scale; the zero
 * point stays that of the unrounded one. Its reciprocal is a float32, where TorchAO's is rounded to binary16 too.
 *
 * Throws InvalidArgumentError for options out of range and weights that are not finite, ShapeError for a wrong length.
 */
export function quantizeAffine(weights: Float32Array, options: AffineOptions): QuantizedWeights {
  const { n, k, bits, mappingType, algorithm } = options;
  checkScheme("quantizeAffine", options);
  if (algorithm !== "affine" && algorithm !== "hqq_scale_only")
    throw new InvalidArgumentError(
      `quantizeAffine: algorithm "${algorithm}" is none of TorchAO's: expected "affine" or "hqq_scale_only"`,
    );
  checkSizes("quantizeAffine", weights, options);
  const spec = weightSpec(n, k, options);
  if (spec.hasLevels) return quantizeSigns(weights, spec);
  const useHqq = algorithm === "hqq_scale_only";
  return quantizeGroups(weights, spec, (low, high, group) =>
    useHqq ? hqqScale(group(), bits, hqqStart(max(-low, high), bits)) : affineScale(low, high, bits, mappingType),
  );
}

/** Throws InvalidArgumentError, beginning with `caller`, for invalid sizes, ShapeError for a wrong number of weights. */
export function checkSizes(caller: string, weights: Float32Array, { n, k }: Pick<AffineOptions, "n" | "k">): void {
  for (const [name, size] of Object.entries({ n, k }))
    if (!Number.isSafeInteger(size) || size < 1)
      throw new InvalidArgumentError(`${caller}: ${name} must be a whole number of at least 1, got ${size}`);
  if (weights.length !== n * k)
    throw new ShapeError(`${caller}: expected ${n} x ${k} = ${n * k} weights, got ${weights.length}`);
}

/** Chooses the scale, not yet rounded, of a group with all weights in `low <= 0 .. high >= 0`. */
type ChooseScale = (low: number, high: number, group: () => Float32Array) => number;

function affineScale(low: number, high: number, bits: number, mappingType: MappingType): number {
  const qmin = -(2 ** (bits - 1));
  const qmax = -qmin - 1;
  if (mappingType === "symmetric") return fround(max(-low, high) / ((qmax - qmin) / 2));
  if (mappingType === "asymmetric") return fround(fround(high - low) / (qmax - qmin));
  return max(fround(low / qmin), fround(high / qmax));
}

function quantizeGroups(weights: Float32Array, spec: WeightSpec, chooseScale: ChooseScale): QuantizedWeights {
  const { bits, n, k, groupSize, hasZeros, scaleDType } = spec;
  const qmin = -(2 ** (bits - 1));
  const qmax = -qmin - 1;
  const qvals = new Int8Array(n * k);
  const scales = new Float32Array(n * groupCount(spec));
  const zeros = hasZeros ? new Int8Array(scales.length) : null;
  let group = 0;
  for (let rowStart = 0; rowStart < n * k; rowStart += k) {
    for (let start = rowStart; start < rowStart + k; start += groupSize) {
      const end = min(start + groupSize, rowStart + k);
      let low = 0;
      let high = 0;
      for (let i = start; i < end; i++) {
        low = min(low, weights[i]!);
        high = max(high, weights[i]!);
      }
      if (!(high - low < Number.POSITIVE_INFINITY)) throw notFinite("quantizeAffine", weights, start, k);
      const exactScale = clampScale(
        chooseScale(low, high, () => weights.subarray(start, end)),
        "f32",
      );
      const scale = scaleDType === "f16" ? roundScaleToF16(exactScale) : exactScale;
      const zero = hasZeros ? clamp(qmin - roundHalfEven(fround(low / exactScale)), qmin, qmax) : 0;
      const inverse = fround(1 / scale);
      for (let i = start; i < end; i++) {
        const rounded = roundHalfEven(fround(weights[i]! * inverse));
        qvals[i] = max(qmin, min(qmax, rounded + zero));
      }
      scales[group] = scale;
      if (zeros) zeros[group] = zero;
      group++;
    }
  }
  return { ...spec, qvals, scales, zeros, levels: null };
}

/** One bit: q = -1 (level -1) for negative weights, else 0 (level +1); the scale of a group of zeros is 0. */
function quantizeSigns(weights: Float32Array, spec: WeightSpec): QuantizedWeights {
  const { n, k, groupSize, scaleDType } = spec;
  const qvals = new Int8Array(n * k);
  const scales = new Float32Array(n * groupCount(spec));
  const sums = new Float64Array(SUM_LANES);
  let group = 0;
  for (let rowStart = 0; rowStart < n * k; rowStart += k) {
    for (let start = rowStart; start < rowStart + k; start += groupSize) {
      const end = min(start + groupSize, rowStart + k);
      sums.fill(0);
      for (let i = start; i < end; i++) {
        const w = weights[i]!;
        sums[(i - start) % SUM_LANES]! += Math.abs(w);
        qvals[i] = w < 0 ? -1 : 0;
      }
      const sum = laneSum(sums);
      if (!(sum < Number.POSITIVE_INFINITY)) throw notFinite("quantizeAffine", weights, start, k);
      const mean = fround(sum / (end - start));
      scales[group++] = scaleDType === "f16" && mean > 0 ? roundScaleToF16(mean) : mean;
    }
  }
  return { ...spec, qvals, scales, zeros: null, levels: Int8Array.of(-1, 1) };
}

/** Rounds a positive scale to its stored type. */
export function storedScale(scale: number, dtype: ScaleDType): number {
  return dtype === "f16" ? roundScaleToF16(scale) : fround(clampScale(scale, dtype));
}

function roundScaleToF16(scale: number): number {
  return f16Table()[f32ToF16(clampScale(scale, "f16"))]!;
}

function clampScale(scale: number, dtype: ScaleDType): number {
  return clamp(scale, scaleRange[dtype].smallest, scaleRange[dtype].largest);
}

function clamp(value: number, low: number, high: number): number {
  return max(low, min(high, value));
}

/** The error for weights [n, k] that are not finite; names the first such weight from `start` on. */
export function notFinite(caller: string, weights: Float32Array, start: number, k: number): InvalidArgumentError {
  let index = start;
  while (Number.isFinite(weights[index])) index++;
  const place = `row ${Math.floor(index / k)}, column ${index % k}`;
  return new InvalidArgumentError(`${caller}: weights must be finite, got ${weights[index]} in ${place}`);
}
