/**
 * Low-bit weights as integers, scales and zero points, without a byte layout. Quantizers make them, packed layouts store
 * them.
 */

export type ScaleDType = "f32" | "f16";

/**
 * Types of one-byte scales, multiplied by a factor that several groups share: integers, or floats with 4 exponent and 3
 * fraction bits.
 */
export type FactoredScale = "i8" | "e4m3";

/** Weights along k that share a factor, where scales are integers. */
export const SUPER_GROUP = 256;

/**
 * Activations of low-bit weights: quantized to 8 bits with a scale for each block of 32 values ("int8"), or with one scale
 * and zero point a token as in TorchAO ("int8_per_token"), or float.
 */
export type ActivationKind = "int8" | "int8_per_token" | "float";

/** Facts about quantized weights before their values are known: enough to size buffers and select layouts and kernels. */
export interface WeightSpec {
  /** Bits of one weight, 1..8. */
  readonly bits: number;
  /** Output channels. */
  readonly n: number;
  /** Input features. */
  readonly k: number;
  /** Weights along k that share a scale; `k` or more means one scale a row. The last group may be shorter. */
  readonly groupSize: number;
  /** Whether groups have zero points. */
  readonly hasZeros: boolean;
  /** Whether the integers are indices into `levels`, a codebook of 2^bits int8 levels. */
  readonly hasLevels: boolean;
  /** Whether groups have minima: a weight is then scale * integer (from 0 on) + minimum. Absent for none. */
  readonly hasMinima?: boolean;
  /**
   * Type of scales and minima. "i8": integers times a float16 factor for each row and `SUPER_GROUP` weights. "e4m3": 8-bit
   * floats times a float32 factor for each row.
   */
  readonly scaleDType: ScaleDType | FactoredScale;
  /**
   * Zero point of groups whose integer scale is odd; that of the others is 0. So a codebook is shifted or not, as in
   * ik_llama.cpp's IQ4_KS, and zero points take no bytes. All levels minus it are -128..127. Absent: zero points are stored.
   */
  readonly oddZero?: number;
}

/**
 * Weights of shape [n, k]: `w[r][c] = (level(q[r][c]) - zero[r][g]) * scale[r][g]` with `g = floor(c / groupSize)`
 * and `level(q) = levels ? levels[q + 2^(bits-1)] : q`; with minima,
 * `w[r][c] = (q[r][c] + 2^(bits-1)) * scale[r][g] + minimum[r][g]`.
 */
export interface QuantizedWeights extends WeightSpec {
  /** Integers [n, k], each in -2^(bits-1) .. 2^(bits-1)-1. */
  readonly qvals: Int8Array;
  /** Scales [n, groups], exactly representable in `scaleDType`. */
  readonly scales: Float32Array;
  /** Zero points [n, groups]; null when all are zero. */
  readonly zeros: Int8Array | null;
  /** Codebook [2^bits]; null when the integers are the levels themselves. */
  readonly levels: Int8Array | null;
  /** Minima [n, groups]; absent for none. */
  readonly minima?: Float32Array;
  /** Factors [n, `superGroupCount`] of one-byte scales. */
  readonly superScales?: Float32Array;
  /** Factors [n, `superGroupCount`] of integer minima. */
  readonly superMinima?: Float32Array;
}

/** Groups along k: ceil(k / groupSize). */
export function groupCount(spec: { k: number; groupSize: number }): number {
  return Math.ceil(spec.k / spec.groupSize);
}

/** Number of factors of a row with one-byte scales: one for e4m3, one for each `SUPER_GROUP` weights for integers. */
export function superGroupCount({ k, scaleDType }: Pick<WeightSpec, "k" | "scaleDType">): number {
  return scaleDType === "e4m3" ? 1 : Math.ceil(k / SUPER_GROUP);
}

/** Whether zero points are stored, rather than told by the parity of integer scales. */
export function storesZeros({ hasZeros, oddZero }: Pick<WeightSpec, "hasZeros" | "oddZero">): boolean {
  return hasZeros && oddZero === undefined;
}

/** Whether scales have one byte and factors. */
export function hasFactors({ scaleDType }: Pick<WeightSpec, "scaleDType">): boolean {
  return scaleDType === "i8" || scaleDType === "e4m3";
}

/** Rows of the weights by their indices, in the order of `rows`. */
export function pickRows(weights: QuantizedWeights, rows: ArrayLike<number>): QuantizedWeights {
  const pick = <A extends Int8Array | Float32Array>(values: A): A => {
    const width = values.length / weights.n;
    const picked = new (values.constructor as new (length: number) => A)(rows.length * width);
    for (let i = 0; i < rows.length; i++)
      picked.set(values.subarray(rows[i]! * width, (rows[i]! + 1) * width), i * width);
    return picked;
  };
  const { minima, superScales, superMinima } = weights;
  return {
    ...weights,
    n: rows.length,
    qvals: pick(weights.qvals),
    scales: pick(weights.scales),
    zeros: weights.zeros && pick(weights.zeros),
    ...(minima && { minima: pick(minima) }),
    ...(superScales && { superScales: pick(superScales) }),
    ...(superMinima && { superMinima: pick(superMinima) }),
  };
}

/** Rows `first` to `first` + `count` - 1. */
export function rangeOfWeights(weights: QuantizedWeights, first: number, count: number): QuantizedWeights {
  return pickRows(
    weights,
    Array.from({ length: count }, (_, i) => first + i),
  );
}

/**
 * The weights with columns of zeros added at the end, for inputs that are padded. Groups of other columns are unchanged.
 */
export function padColumns(weights: QuantizedWeights, { k, groupSize }: WeightSpec): QuantizedWeights {
  if (k === weights.k) return weights;
  const qvals = new Int8Array(weights.n * k);
  for (let r = 0; r < weights.n; r++) qvals.set(weights.qvals.subarray(r * weights.k, (r + 1) * weights.k), r * k);
  return { ...weights, k, groupSize, qvals };
}

/** Float32 values [n, k] of quantized weights: the definition that every kernel approximates. */
export function dequantize(weights: QuantizedWeights): Float32Array {
  const { n, k, groupSize, bits, qvals, scales, zeros, levels, minima } = weights;
  const groups = groupCount(weights);
  const offset = 1 << (bits - 1);
  const result = new Float32Array(n * k);
  for (let r = 0; r < n; r++) {
    for (let c = 0; c < k; c++) {
      const group = r * groups + Math.floor(c / groupSize);
      const q = qvals[r * k + c]!;
      if (minima) {
        result[r * k + c] = Math.fround((q + offset) * scales[group]!) + minima[group]!;
        continue;
      }
      const level = levels ? levels[q + offset]! : q;
      result[r * k + c] = (level - (zeros ? zeros[group]! : 0)) * scales[group]!;
    }
  }
  return result;
}
