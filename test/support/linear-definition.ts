/**
 * Linear layers in double precision, from the meaning of the logical weights: what every kernel is compared with. Each
 * result comes with what float32 arithmetic in any order may be off by: `terms` roundings, 2^-23 each, of the sum of the
 * magnitudes.
 */
import { expect } from "vitest";
import { groupCount, type QuantizedWeights } from "../../src/quantized.ts";

/** Spacing of the floats below the normal ones. */
const SMALLEST = 2 ** -149;

/** Results [m, n]; NaN where a kernel must give NaN. */
export interface Expected {
  readonly values: Float64Array;
  /** Sums of the magnitudes of what is added. */
  readonly magnitudes: Float64Array;
  readonly terms: number;
  /** How far results move when each weight does by the largest magnitude that a weight of its row could have. */
  readonly reaches: Float64Array | null;
}

/** What a kernel does less exactly than float32 arithmetic. */
export interface Tolerance {
  /** Share of the magnitudes. */
  readonly relative?: number;
  /** Magnitude that each term may lose. */
  readonly absolute?: number;
  /** How far weights are rounded, as a share of the largest magnitude that a weight of the row could have. */
  readonly weights?: number;
  /** Whether activations that others take in 8 bits stay floats, which the other numbers are then beside. */
  readonly ofFloats?: boolean;
}

/** Where the definition is infinite, sums in another order or of split floats may be NaN as well. */
function isClose(found: number, value: number, bound: number): boolean {
  if (Number.isNaN(value)) return Number.isNaN(found);
  return Number.isFinite(value) ? Math.abs(found - value) <= bound : !Number.isFinite(found);
}

/** Both factors in bf16; magnitudes under the smallest normal float count as 0. */
const bf16: Tolerance = { ofFloats: true, relative: 1.01 * 2 ** -7, absolute: 2 ** -126 };

const roundings: ReadonlyMap<string, Tolerance> = new Map([
  ["linear_a8b32_wx_32x32x32_amx_bf16", bf16],
  ["linear_a8b32_swiglu_wx_32x32x32_amx_bf16", bf16],
  ["linear_a8_wx_32x16x64_amx_int8", { weights: 2 ** -13 }],
  ["linear_a8_swiglu_wx_32x32x64_amx_int8", { weights: 2 ** -13 }],
]);

/** What a kernel does less exactly than float32 arithmetic: nothing, for most. */
export const rounding = (kernel: string): Tolerance => roundings.get(kernel) ?? {};

/** Fails, with the place, where one of the first `found.length` results is further off than float32 arithmetic. */
export function expectWithin(
  found: Float32Array,
  expected: Expected,
  message: string,
  tolerance: Tolerance = {},
): void {
  const { relative = 0, absolute = SMALLEST, weights = 0 } = tolerance;
  const { values, magnitudes, terms, reaches } = expected;
  if (found.length > values.length) throw new RangeError(`${message}: no more than ${values.length} results are known`);
  for (let i = 0; i < found.length; i++) {
    const value = values[i]!;
    const magnitude = magnitudes[i]!;
    const bound = (terms * 2 ** -23 + relative) * magnitude + terms * absolute + weights * (reaches?.[i] ?? 0);
    if (!isClose(found[i]!, value, bound)) expect(found[i], `${message}, [${i}] within ${bound}`).toBe(value);
  }
}

/** Level minus zero point, the scale it takes, and the minimum that is added, all [n, k]. */
export function integersOf({ n, k, groupSize, bits, qvals, zeros, levels, ...rest }: QuantizedWeights) {
  const groups = groupCount({ k, groupSize });
  const values = new Float64Array(n * k);
  const scales = new Float64Array(n * k);
  const minima = new Float64Array(n * k);
  for (let i = 0; i < n * k; i++) {
    const group = Math.floor(i / k) * groups + Math.floor((i % k) / groupSize);
    const level = levels ? levels[qvals[i]! + 2 ** (bits - 1)]! : qvals[i]!;
    values[i] = level - (zeros ? zeros[group]! : rest.minima ? -(2 ** (bits - 1)) : 0);
    scales[i] = rest.scales[group]!;
    minima[i] = rest.minima ? rest.minima[group]! : 0;
  }
  return { values, scales, minima };
}

export function roundHalfEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 !== 0) ? floor + 1 : floor;
}

export interface QuantizedRow {
  readonly q: readonly number[];
  /** NaN for rows whose range is not finite. */
  readonly scale: number;
  readonly zero: number;
}

/**
 * One row of activations in 8 bits: range widened to 0, float32 steps, ties to even, all clamped (TorchAO's Python). A row
 * without a finite range (NaN, infinity, more than the largest float) has no meaning in 8 bits: NaN.
 */
export function quantizeRow(x: readonly number[]): QuantizedRow {
  const clamp = (value: number) => Math.min(127, Math.max(-128, value));
  const low = Math.min(0, ...x);
  const range = Math.fround(Math.max(0, ...x) - low);
  if (!Number.isFinite(range)) return { q: x.map(() => 0), scale: Number.NaN, zero: 0 };
  const scale = Math.max(Math.fround(range / 255), 2 ** -126);
  const inverse = Math.fround(1 / scale);
  const zero = clamp(-128 - roundHalfEven(Math.fround(low / scale)));
  return { q: x.map((value) => clamp(roundHalfEven(Math.fround(value * inverse)) + zero)), scale, zero };
}

/** One row of activations in blocks: integers and, of each of them, the scale of its block. */
export interface BlockRow {
  readonly q: readonly number[];
  /** NaN in blocks that are not finite. */
  readonly scales: readonly number[];
}

/** Columns [first, end) of the blocks of a row of k values: 32 neighbours within a group, fewer at its end. */
export function blocksOf({ k, groupSize }: { readonly k: number; readonly groupSize: number }): [number, number][] {
  const blocks: [number, number][] = [];
  for (let start = 0; start < k; ) {
    const group = (Math.floor(start / groupSize) + 1) * groupSize;
    const end = Math.min(k, group, start + 32);
    blocks.push([start, end]);
    start = end;
  }
  return blocks;
}

/** One row of activations in 8 bits, each block of it symmetric about 0: float32 steps, ties to even. */
export function quantizeInBlocks(
  x: readonly number[],
  weights: { readonly k: number; readonly groupSize: number },
): BlockRow {
  const q = new Array<number>(x.length);
  const scales = new Array<number>(x.length);
  for (const [first, end] of blocksOf(weights)) {
    let largest = 0;
    for (let c = first; c < end; c++) largest = Math.max(largest, Math.abs(x[c]!));
    const scale = Number.isFinite(largest) ? Math.max(Math.fround(largest / 127), 2 ** -126) : Number.NaN;
    const inverse = Math.fround(1 / scale);
    for (let c = first; c < end; c++) {
      q[c] = Number.isNaN(scale) ? 0 : roundHalfEven(Math.fround(x[c]! * inverse));
      scales[c] = scale;
    }
  }
  return { q, scales };
}

/** The largest magnitude that a weight of each row could have, with its scales, zero points and minima. */
function largestWeights({ n, k, groupSize, bits, scales, zeros, levels, minima }: QuantizedWeights): number[] {
  const groups = groupCount({ k, groupSize });
  const reach = levels ? Math.max(...levels.map(Math.abs), 1) : 2 ** (bits - 1);
  return Array.from({ length: n }, (_, row) => {
    let largest = 0;
    for (let i = row * groups; i < (row + 1) * groups; i++) {
      const half = Math.abs(scales[i]!) * reach;
      const middle = minima ? minima[i]! + scales[i]! * reach : zeros ? scales[i]! * zeros[i]! : 0;
      largest = Math.max(largest, half + Math.abs(middle));
    }
    return largest;
  });
}

/** Weights [n, k], and the magnitudes [n, k] that they count with where zero points are summed apart. */
interface Factors {
  readonly n: number;
  readonly k: number;
  readonly weights: ArrayLike<number>;
  readonly magnitudes: ArrayLike<number>;
}

/** Kernels may sum unsigned weights and zero points apart. */
function factorsOf(weights: QuantizedWeights): Factors {
  const { n, k, bits } = weights;
  const { values, scales, minima } = integersOf(weights);
  const offset = 2 ** bits;
  const magnitudes = new Float64Array(n * k);
  for (let i = 0; i < n * k; i++) {
    const [value, scale, minimum] = [values[i]!, scales[i]!, minima[i]!];
    magnitudes[i] = (Math.abs(value) + offset) * Math.abs(scale) + Math.abs(minimum);
    values[i] = value * scale + minimum;
  }
  return { n, k, weights: values, magnitudes };
}

/** x . weights and |x| . magnitudes of one row of activations, for all rows of weights. */
function multiplyRow(x: Float64Array, sizes: Float64Array, factors: Factors, sums: Float64Array, total: Float64Array) {
  const { n, k, weights, magnitudes } = factors;
  for (let row = 0; row < n; row++) {
    let sum = 0;
    let magnitude = 0;
    for (let c = 0; c < k; c++) {
      sum += x[c]! * weights[row * k + c]!;
      magnitude += sizes[c]! * magnitudes[row * k + c]!;
    }
    sums[row] = sum;
    total[row] = magnitude;
  }
}

/** Activations of a row, of which integers are exact, their magnitudes, and the scale that they all have. */
interface MeantRow {
  readonly x: Float64Array;
  readonly sizes: Float64Array;
  readonly scale: number;
}

/** For activations already in 8 bits. */
export function linearOfRows(
  rows: readonly QuantizedRow[],
  weights: QuantizedWeights,
  bias: Float32Array | null,
): Expected {
  const meant = rows.map(({ q, scale, zero }) => ({
    x: Float64Array.from(q, (value) => value - zero),
    sizes: Float64Array.from(q, (value) => Math.abs(value) + Math.abs(zero)),
    scale,
  }));
  return linearOf(meant, weights, bias, groupCount(weights));
}

/** For activations in blocks already in 8 bits. */
export function linearOfBlocks(
  rows: readonly BlockRow[],
  weights: QuantizedWeights,
  bias: Float32Array | null,
): Expected {
  const meant = rows.map(({ q, scales }) => {
    const x = Float64Array.from(q, (value, i) => value * scales[i]!);
    return { x, sizes: x.map(Math.abs), scale: 1 };
  });
  return linearOf(meant, weights, bias, blocksOf(weights).length);
}

/** `parts`: sums along k that are rounded by themselves. */
function linearOf(
  rows: readonly MeantRow[],
  weights: QuantizedWeights,
  bias: Float32Array | null,
  parts: number,
): Expected {
  const { n } = weights;
  const factors = factorsOf(weights);
  const largest = largestWeights(weights);
  const values = new Float64Array(rows.length * n);
  const magnitudes = new Float64Array(rows.length * n);
  const reaches = new Float64Array(rows.length * n);
  rows.forEach(({ x, sizes, scale }, i) => {
    const [sums, total] = [values, magnitudes].map((all) => all.subarray(i * n, (i + 1) * n));
    multiplyRow(x, sizes, factors, sums!, total!);
    let activations = 0;
    for (const value of x) activations += Math.abs(value);
    for (let row = 0; row < n; row++) {
      const b = bias?.[row] ?? 0;
      sums![row] = scale * sums![row]! + b;
      total![row] = scale * total![row]! + Math.abs(b);
      reaches[i * n + row] = scale * activations * largest[row]!;
    }
  });
  const sums = weights.hasMinima ? 2 : 1;
  return { values, magnitudes, terms: sums * parts + 8, reaches };
}

/** For float activations [m, k]: an activation times a weight of 0 adds nothing, however large it is. */
export function linearOfFloats(x: Float32Array, weights: QuantizedWeights, bias: Float32Array | null): Expected {
  const factors = factorsOf(weights);
  const magnitudes = Float64Array.from(factors.weights, Math.abs);
  return { ...multiplyFloats(x, { ...factors, magnitudes }, bias), terms: weights.k + 8, reaches: null };
}

/** For float activations [m, k] and plain weights [n, k]. */
export function linearOfWeights(
  x: Float32Array,
  weights: Float32Array,
  k: number,
  bias: Float32Array | null,
): Expected {
  const factors = { n: weights.length / k, k, weights, magnitudes: weights.map(Math.abs) };
  return { ...multiplyFloats(x, factors, bias), terms: k + 4, reaches: null };
}

function multiplyFloats(x: Float32Array, factors: Factors, bias: Float32Array | null) {
  const { n, k } = factors;
  const values = new Float64Array((x.length / k) * n);
  const magnitudes = new Float64Array(values.length);
  for (let i = 0; i < x.length / k; i++) {
    const row = Float64Array.from(x.subarray(i * k, (i + 1) * k));
    const [sums, total] = [values, magnitudes].map((all) => all.subarray(i * n, (i + 1) * n));
    multiplyRow(row, row.map(Math.abs), factors, sums!, total!);
    for (let c = 0; bias && c < n; c++) {
      sums![c]! += bias[c]!;
      total![c]! += Math.abs(bias[c]!);
    }
  }
  return { values, magnitudes };
}
