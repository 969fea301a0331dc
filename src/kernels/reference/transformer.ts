/** Norm, rotary embedding and attention as plain loops; sums in double precision, results rounded to float32. */

import { InvalidArgumentError } from "../../errors.ts";
import { f16Table, f32ToF16 } from "../../half.ts";
import { roundHalfEven } from "../../rounding.ts";
import type { AttentionArgs, RmsNormArgs, RopeAnglesArgs, RopeArgs } from "../arguments.ts";
import type { Kernel } from "../contract.ts";

const anyShape = { target: "reference", layouts: null, bits: null, needs: [], mStep: 1, nStep: 1 } as const;

export const rmsNormReference: Kernel<RmsNormArgs> = {
  ...anyShape,
  name: "rms_norm_f32_1x1x1_reference",
  bind:
    ({ dim, x, weight, eps, y }) =>
    () => {
      for (let start = 0; start < x.length; start += dim) {
        let squares = 0;
        for (let c = start; c < start + dim; c++) squares += x[c]! * x[c]!;
        const inverse = 1 / Math.sqrt(squares / dim + eps);
        for (let c = 0; c < dim; c++) y[start + c] = x[start + c]! * inverse * weight[c]!;
      }
    },
};

export const ropeAnglesReference: Kernel<RopeAnglesArgs> = {
  ...anyShape,
  name: "rope_angles_f32_1x1x1_reference",
  bind:
    ({ tokens, position, inverseFrequencies, scale, angles }) =>
    () => {
      const half = inverseFrequencies.length;
      const first = Number(position[0]!);
      for (let t = 0; t < tokens; t++) {
        for (let i = 0; i < half; i++) {
          const angle = Math.fround((first + t) * inverseFrequencies[i]!);
          angles[2 * half * t + i] = Math.cos(angle) * scale;
          angles[2 * half * t + half + i] = Math.sin(angle) * scale;
        }
      }
    },
};

export const ropeReference: Kernel<RopeArgs> = {
  ...anyShape,
  name: "rope_f32_1x1x1_reference",
  bind:
    ({ tokens, heads, headDim, half, x, angles, y }) =>
    () => {
      for (let t = 0; t < tokens; t++) {
        for (let h = 0; h < heads; h++) {
          const start = (t * heads + h) * headDim;
          for (let i = 0; i < half; i++) {
            const cos = angles[2 * half * t + i]!;
            const sin = angles[2 * half * t + half + i]!;
            const a = x[start + i]!;
            const b = x[start + half + i]!;
            y[start + i] = a * cos - b * sin;
            y[start + half + i] = b * cos + a * sin;
          }
          for (let i = 2 * half; i < headDim; i++) y[start + i] = x[start + i]!;
        }
      }
    },
};

export const attentionReference: Kernel<AttentionArgs> = {
  ...anyShape,
  name: "attention_f32_1x1x1_reference",
  scratchBytes: ({ capacity, headDim }) => 8 * (capacity + headDim),
  bind(args, scratch) {
    const scores = new Float64Array(scratch.buffer, scratch.byteOffset, args.capacity);
    const sums = new Float64Array(scratch.buffer, scratch.byteOffset + 8 * args.capacity, args.headDim);
    const { tokens, heads, kvHeads, headDim, position } = args;
    return () => {
      const first = Number(position[0]!);
      if (first < 0 || first + tokens > args.capacity)
        throw new InvalidArgumentError(
          `attention: expected positions in 0..${args.capacity - 1} but found ${first} to ${first + tokens - 1}`,
        );
      if (args.k) store({ cache: args.keyCache, scales: args.keyScales, headDim }, args.k, first * kvHeads);
      if (args.v) store({ cache: args.valueCache, scales: args.valueScales, headDim }, args.v, first * kvHeads);
      for (let t = 0; t < tokens; t++) for (let h = 0; h < heads; h++) attend(args, first + t, t, h, scores, sums);
    };
  },
};

/** Rows of `headDim` values, and their scales when they are integers. */
interface Cache {
  readonly cache: Float32Array | Uint16Array | Int8Array;
  readonly scales: Float32Array | null;
  readonly headDim: number;
}

/** Writes values as rows from `row` on. */
function store({ cache, scales, headDim }: Cache, values: Float32Array, row: number): void {
  if (cache instanceof Float32Array) cache.set(values, row * headDim);
  else if (cache instanceof Uint16Array)
    for (let i = 0; i < values.length; i++) cache[row * headDim + i] = f32ToF16(values[i]!);
  else
    for (let start = 0; start < values.length; start += headDim, row++)
      scales![row] = quantizeRow(values.subarray(start, start + headDim), cache, row * headDim);
}

/** Rows smaller than this become zeros: their inverse scale would not be finite. */
const LARGEST_LEAST = Math.fround(1e-30);

/** Integers of a row, the largest value ±127; gives the scale. In float32, so that every kernel stores the same. */
function quantizeRow(values: Float32Array, target: Int8Array, at: number): number {
  let largest = 0;
  for (const value of values) largest = Math.max(largest, Math.abs(value));
  const isZero = largest < LARGEST_LEAST;
  const inverse = isZero ? 0 : Math.fround(127 / largest);
  for (let i = 0; i < values.length; i++) target[at + i] = roundHalfEven(Math.fround(values[i]! * inverse));
  return isZero ? 0 : Math.fround(largest / 127);
}

/** Reads values by their index in the cache. */
function reader({ cache, scales, headDim }: Cache): (index: number) => number {
  if (cache instanceof Float32Array) return (index) => cache[index]!;
  if (cache instanceof Int8Array) return (index) => cache[index]! * scales![Math.floor(index / headDim)]!;
  const halves = f16Table();
  return (index) => halves[cache[index]!]!;
}

/** One query of one head: softmax(q . k * scale) . v over the positions it sees. */
function attend(
  args: AttentionArgs,
  last: number,
  t: number,
  h: number,
  scores: Float64Array,
  sums: Float64Array,
): void {
  const { heads, kvHeads, headDim, q, scale, window, softcap, y } = args;
  const key = reader({ cache: args.keyCache, scales: args.keyScales, headDim });
  const value = reader({ cache: args.valueCache, scales: args.valueScales, headDim });
  const query = (t * heads + h) * headDim;
  const stride = kvHeads * headDim;
  const head = Math.floor((h * kvHeads) / heads) * headDim;
  const first = window > 0 ? Math.max(0, last - window + 1) : 0;
  let max = Number.NEGATIVE_INFINITY;
  for (let p = first; p <= last; p++) {
    let dot = 0;
    for (let d = 0; d < headDim; d++) dot += q[query + d]! * key(p * stride + head + d);
    const score = softcap > 0 ? softcap * Math.tanh((dot * scale) / softcap) : dot * scale;
    scores[p] = score;
    if (score > max) max = score;
  }
  sums.fill(0);
  let total = 0;
  for (let p = first; p <= last; p++) {
    const weight = Math.exp(scores[p]! - max);
    total += weight;
    for (let d = 0; d < headDim; d++) sums[d]! += weight * value(p * stride + head + d);
  }
  for (let d = 0; d < headDim; d++) y[query + d] = sums[d]! / total;
}
