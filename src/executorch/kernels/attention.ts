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

export const sdpaReference = denseKernel<SdpaArgs>("sdpa", (args) => {
  const { start, causal, scale, quantized } = args;
  const [, tokens, heads, dim] = args.q.shape as [number, number, number, number];
  const kvHeads = args.k.shape[2]!;
  const q = floatsOf(args.q, quantized?.q);
  const k = floatsOf(args.k, quantized?.k);
  const v = floatsOf(args.v, quantized?.v);
  const mask = args.mask ? numbersOf(args.mask) : null;
  const out = args.out.data as Float32Array;
  const keys = start + tokens;
  const weights = new Float64Array(keys);
  for (let t = 0; t < tokens; t++)
    for (let h = 0; h < heads; h++) {
      const seen = causal ? start + t + 1 : keys;
      const query = (t * heads + h) * dim;
      const head = Math.floor((h * kvHeads) / heads) * dim;
      let max = Number.NEGATIVE_INFINITY;
      for (let p = 0; p < seen; p++) {
        let dot = 0;
        for (let d = 0; d < dim; d++) dot += q[query + d]! * k[p * kvHeads * dim + head + d]!;
        weights[p] = dot * scale + (mask ? mask[t * keys + p]! : 0);
        max = Math.max(max, weights[p]!);
      }
      let total = 0;
      for (let p = 0; p < seen; p++) {
        weights[p] = max === Number.NEGATIVE_INFINITY ? 0 : Math.exp(weights[p]! - max);
        total += weights[p]!;
      }
      for (let d = 0; d < dim; d++) {
        let sum = 0;
        for (let p = 0; p < seen; p++) sum += weights[p]! * v[p * kvHeads * dim + head + d]!;
        out[query + d] = total === 0 ? 0 : sum / total;
      }
    }
});
