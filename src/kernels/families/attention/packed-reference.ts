/**
 * Reference kernels of attention and pooling of packed sequences: plain loops, sums in double precision, rounded to float32.
 */
import type { Pooling } from "../../../pooling.ts";
import { type Kernel, referenceRow } from "../../contract.ts";
import type { AttendPackedArgs, PoolPackedArgs } from "./fields.ts";

/** The sequence that a row belongs to: its rows first .. end - 1; null if it belongs to none. */
function sequenceOf(row: number, offsets: BigInt64Array, rows: number): { first: number; end: number } | null {
  const place = (i: number) => Math.min(Math.max(Number(offsets[i]!), 0), rows);
  for (let i = 0; i + 1 < offsets.length; i++)
    if (place(i + 1) > row) return place(i) <= row ? { first: place(i), end: place(i + 1) } : null;
  return null;
}

export const attendPackedReference: Kernel<AttendPackedArgs> = {
  ...referenceRow,
  name: "attend_packed_f32_1x1x1_reference",
  scratchBytes: ({ rows, headDim }) => 8 * (rows + headDim),
  bind(args, { buffer, byteOffset }) {
    const { rows, heads, headDim, offsets, before, after, y } = args;
    const scores = new Float64Array(buffer, byteOffset, rows);
    const sums = new Float64Array(buffer, byteOffset + 8 * rows, headDim);
    return () => {
      for (let row = 0; row < rows; row++) {
        const sequence = sequenceOf(row, offsets, rows);
        if (!sequence) {
          y.fill(Number.NaN, row * heads * headDim, (row + 1) * heads * headDim);
          continue;
        }
        const seen = { first: Math.max(sequence.first, row - before), end: Math.min(sequence.end, row + after + 1) };
        for (let head = 0; head < heads; head++) attend(args, row, head, seen, scores, sums);
      }
    };
  },
};

/** One query of one head: softmax(q . k * scale) . v over rows first .. end - 1. */
function attend(
  { q, k, v, y, heads, kvHeads, headDim, scale }: AttendPackedArgs,
  row: number,
  head: number,
  { first, end }: { readonly first: number; readonly end: number },
  scores: Float64Array,
  sums: Float64Array,
): void {
  const query = (row * heads + head) * headDim;
  const kvHead = Math.floor((head * kvHeads) / heads);
  let max = Number.NEGATIVE_INFINITY;
  for (let p = first; p < end; p++) {
    const key = (p * kvHeads + kvHead) * headDim;
    let dot = 0;
    for (let d = 0; d < headDim; d++) dot += q[query + d]! * k[key + d]!;
    scores[p] = dot * scale;
    max = Math.max(max, scores[p]!);
  }
  sums.fill(0);
  let total = 0;
  for (let p = first; p < end; p++) {
    const value = (p * kvHeads + kvHead) * headDim;
    const weight = Math.exp(scores[p]! - max);
    total += weight;
    for (let d = 0; d < headDim; d++) sums[d]! += weight * v[value + d]!;
  }
  for (let d = 0; d < headDim; d++) y[query + d] = sums[d]! / total;
}

/** Weight of token i in the sum over a sequence of n tokens. */
const weights: Readonly<Record<Exclude<Pooling, "max">, (i: number, n: number) => number>> = {
  cls: (i) => (i === 0 ? 1 : 0),
  lasttoken: (i, n) => (i === n - 1 ? 1 : 0),
  mean: (_, n) => 1 / n,
  mean_sqrt_len_tokens: (_, n) => 1 / Math.sqrt(n),
  weightedmean: (i, n) => (2 * (i + 1)) / (n * (n + 1)),
};

export const poolPackedReference: Kernel<PoolPackedArgs> = {
  ...referenceRow,
  name: "pool_packed_f32_1x1x1_reference",
  scratchBytes: ({ dim }) => 8 * dim,
  bind({ pooling, rows, dim, x, offsets, y }, { buffer, byteOffset }) {
    const values = new Float64Array(buffer, byteOffset, dim);
    const place = (i: number) => Math.min(Math.max(Number(offsets[i]!), 0), rows);
    return () => {
      for (let text = 0; text + 1 < offsets.length; text++) {
        const [first, end] = [place(text), place(text + 1)];
        values.fill(pooling === "max" ? Number.NEGATIVE_INFINITY : end > first ? 0 : Number.NaN);
        for (let row = first; row < end; row++) {
          const weight = pooling === "max" ? 1 : weights[pooling](row - first, end - first);
          if (weight === 0) continue;
          for (let c = 0; c < dim; c++) {
            const value = x[row * dim + c]!;
            values[c] = pooling === "max" ? Math.max(values[c]!, value) : values[c]! + weight * value;
          }
        }
        if (end <= first) values.fill(Number.NaN);
        y.set(values, text * dim);
      }
    };
  },
};
