/** Attention of ExecuTorch's custom operators, beyond the causal float case, in double precision. */
import type { Tensor } from "../../tensor.ts";
import { denseKernel, numbersOf } from "./dense.ts";

/** Quantized rows, each with a scale and a zero point: (q - zero) * scale. */
interface QuantizedRows {
  readonly scales: Tensor;
  readonly zeros: Tensor;
}

export interface SdpaArgs {
  /** Queries [1, T, heads, D]. */
  readonly q: Tensor;
  /** Keys and values [1, positions, kvHeads, D]. */
  readonly k: Tensor;
  readonly v: Tensor;
  readonly quantized: { readonly q: QuantizedRows; readonly k: QuantizedRows; readonly v: QuantizedRows } | null;
  /**
   * Position of the first query. Each query sees all keys before `start` and the new ones; if causal, only those up to its
   * own.
   */
  readonly start: number;
  readonly causal: boolean;
  /** Added to the scores, [T, start + T]. */
  readonly mask: Tensor | null;
  readonly scale: number;
  readonly out: Tensor;
}

function floatsOf(tensor: Tensor, quantized: QuantizedRows | undefined): ArrayLike<number> {
  const values = numbersOf(tensor);
  if (!quantized) return values;
  const scales = numbersOf(quantized.scales);
  const zeros = numbersOf(quantized.zeros);
  const dim = tensor.shape.at(-1)!;
  return Float64Array.from(values, (value, i) => {
    const row = Math.floor(i / dim);
    return (value - zeros[row]!) * scales[row]!;
  });
}

/**
 * Sums of values by the softmax of scores, which it overwrites: out[d] of value p at index first + p * stride + d. Zeros where all
 * scores are -infinity.
 */
function mixValues(
  scores: Float64Array,
  values: ArrayLike<number>,
  { first, stride }: { readonly first: number; readonly stride: number },
  out: Float32Array,
): void {
  const max = scores.reduce((most, score) => Math.max(most, score), Number.NEGATIVE_INFINITY);
  let total = 0;
  for (let p = 0; p < scores.length; p++) {
    scores[p] = max === Number.NEGATIVE_INFINITY ? 0 : Math.exp(scores[p]! - max);
    total += scores[p]!;
  }
  for (let d = 0; d < out.length; d++) {
    let sum = 0;
    for (let p = 0; p < scores.length; p++) sum += scores[p]! * values[first + p * stride + d]!;
    out[d] = total === 0 ? 0 : sum / total;
  }
}

/** The sum of a[i + d] b[j + d] for `length` values. */
function dot(a: ArrayLike<number>, i: number, b: ArrayLike<number>, j: number, length: number): number {
  let sum = 0;
  for (let d = 0; d < length; d++) sum += a[i + d]! * b[j + d]!;
  return sum;
}

export const sdpaReference = denseKernel<SdpaArgs>("sdpa", (args) => {
  const { start, causal, scale, quantized } = args;
  const [, tokens, heads, dim] = args.q.shape as [number, number, number, number];
  const kvHeads = args.k.shape[2]!;
  const stride = kvHeads * dim;
  const q = floatsOf(args.q, quantized?.q);
  const k = floatsOf(args.k, quantized?.k);
  const v = floatsOf(args.v, quantized?.v);
  const mask = args.mask ? numbersOf(args.mask) : null;
  const out = args.out.data as Float32Array;
  const keys = start + tokens;
  const weights = new Float64Array(keys);
  for (let t = 0; t < tokens; t++)
    for (let h = 0; h < heads; h++) {
      const query = (t * heads + h) * dim;
      const head = Math.floor((h * kvHeads) / heads) * dim;
      const scores = weights.subarray(0, causal ? start + t + 1 : keys);
      for (let p = 0; p < scores.length; p++)
        scores[p] = dot(q, query, k, p * stride + head, dim) * scale + (mask ? mask[t * keys + p]! : 0);
      mixValues(scores, v, { first: head, stride }, out.subarray(query, query + dim));
    }
});

export interface CachedSdpaArgs {
  /** Queries [1, heads, T, D]. */
  readonly q: Tensor;
  /** New keys [1, kvHeads, T, D], and values [1, kvHeads, T, their width]. */
  readonly k: Tensor;
  readonly v: Tensor;
  /** Cells of the new keys and values, one a token; query t sees the cells up to its own. */
  readonly position: BigInt64Array;
  readonly scale: number;
  /** Caches [1, kvHeads, capacity, D] and [1, kvHeads, capacity, width of values]. */
  readonly keyCache: Tensor;
  readonly valueCache: Tensor;
  readonly out: Tensor;
}

/** Copies row t of each head of `from` [1, heads, T, width] to cell position[t] of `cache`. */
function storeRows(from: Tensor, cache: Tensor, position: BigInt64Array): void {
  const [, heads, tokens, width] = from.shape as [number, number, number, number];
  const capacity = cache.shape[2]!;
  for (let h = 0; h < heads; h++)
    for (let t = 0; t < tokens; t++) {
      const row = (from.data as Float32Array).subarray((h * tokens + t) * width, (h * tokens + t + 1) * width);
      (cache.data as Float32Array).set(row, (h * capacity + Number(position[t])) * width);
    }
}

/** Attention over caches whose heads are outermost: softmax(q k^T scale) v in double precision. */
export const cachedSdpaReference = denseKernel<CachedSdpaArgs>("cached_sdpa", (args) => {
  const { q, keyCache, valueCache, position, scale } = args;
  storeRows(args.k, keyCache, position);
  storeRows(args.v, valueCache, position);
  const [, heads, tokens, dim] = q.shape as [number, number, number, number];
  const [, kvHeads, capacity, width] = valueCache.shape as [number, number, number, number];
  const [queries, keys, values, out] = [q, keyCache, valueCache, args.out].map(({ data }) => data as Float32Array) as [
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  const weights = new Float64Array(capacity);
  for (let h = 0; h < heads; h++) {
    const cells = Math.floor((h * kvHeads) / heads) * capacity;
    for (let t = 0; t < tokens; t++) {
      const row = h * tokens + t;
      const scores = weights.subarray(0, Number(position[t]) + 1);
      for (let p = 0; p < scores.length; p++) scores[p] = dot(queries, row * dim, keys, (cells + p) * dim, dim) * scale;
      mixValues(scores, values, { first: cells * width, stride: width }, out.subarray(row * width, (row + 1) * width));
    }
  }
});
