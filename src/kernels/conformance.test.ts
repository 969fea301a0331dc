/**
 * Every row of the kernel table with low-bit or float weights against definitions in double precision, written here
 * from the meaning of the logical weights. Integer sums are compared exactly: scales are powers of two there. Float
 * results have a bound of rounding errors: `terms` roundings of the sum of the magnitudes, 2^-23 each.
 */
import { describe, expect, it } from "vitest";
import {
  type Bench,
  describeRows,
  floats,
  heap,
  isEmulated,
  machine,
  place,
  run,
} from "../../test/support/conformance.ts";
import { Random, type RandomWeightsOptions, randomWeights } from "../../test/support/random.ts";
import { expectSame } from "../../test/support/same.ts";
import { f16Table, f32ToBf16, f32ToF16 } from "../half.ts";
import { groupCount, type QuantizedWeights } from "../quantized.ts";
import type { FloatLinearArgs, FloatWeights, PackedLinearArgs } from "./arguments.ts";
import type { Kernel, PackedLayout } from "./contract.ts";
import { layoutNamed, openPacked, packWeights } from "./layout/packed.ts";
import { packEmbedding } from "./layout/torchao-embedding.ts";
import { embeddingFloat, embeddingPacked, embeddingShared, linearA8, linearFloat, linearWeightOnly } from "./table.ts";

const single: Bench = { memory: heap, threads: 1 };
const threaded: Bench = { memory: heap, threads: 3 };

/**
 * Emulated CPUs take some 20 times as long, most of it for what is expected of each row. The last count is for kernels
 * that take no fewer.
 */
const rowCounts = isEmulated ? [1, 2, 3, 7, 8, 13] : [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 21, 32, 43, 101, 150];
const M_MAX = Math.max(...rowCounts);

/** Kernels that round weights: how far, as a share of the largest magnitude that a weight of the row could have. */
const weightRounding: ReadonlyMap<string, number> = new Map([["linear_a8_wx_32x16x64_amx_int8", 2 ** -13]]);

/** n, k, group size: tiles of every layout, one more and one less, primes, groups that do not divide k. */
const shapes = [
  [16, 64, 32],
  [1, 32, 32],
  [17, 96, 32],
  [33, 98, 64],
  [18, 128, 128],
  [5, 61, 7],
  [7, 60, 12],
  [3, 48, 1000],
] as const;

/** What the weights of a case are made of; refused ones are left out layout by layout. */
const variants: readonly Partial<RandomWeightsOptions>[] = [
  {},
  { zeros: true },
  { levels: true },
  { scaleDType: "f16" },
  { zeros: true, scaleDType: "f16" },
];

/** Level minus zero point, and the scale it takes, both [n, k]. */
function integersOf({ n, k, groupSize, bits, qvals, zeros, levels, ...rest }: QuantizedWeights) {
  const groups = groupCount({ k, groupSize });
  const values = new Float64Array(n * k);
  const scales = new Float64Array(n * k);
  for (let i = 0; i < n * k; i++) {
    const group = Math.floor(i / k) * groups + Math.floor((i % k) / groupSize);
    const level = levels ? levels[qvals[i]! + 2 ** (bits - 1)]! : qvals[i]!;
    values[i] = level - (zeros ? zeros[group]! : 0);
    scales[i] = rest.scales[group]!;
  }
  return { values, scales };
}

/** Spacing of the floats below the normal ones. */
const SMALLEST = 2 ** -149;

function roundHalfEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 !== 0) ? floor + 1 : floor;
}

interface QuantizedRow {
  readonly q: readonly number[];
  readonly scale: number;
  readonly zero: number;
}

/** One row of activations in 8 bits: range widened to 0, float32 steps, ties to even, all clamped (TorchAO's Python). */
function quantizeRow(x: readonly number[]): QuantizedRow {
  const clamp = (value: number) => Math.min(127, Math.max(-128, value));
  const low = Math.min(0, ...x);
  const scale = Math.max(Math.fround(Math.fround(Math.max(0, ...x) - low) / 255), 2 ** -126);
  const inverse = Math.fround(1 / scale);
  const zero = clamp(-128 - roundHalfEven(Math.fround(low / scale)));
  return { q: x.map((value) => clamp(roundHalfEven(Math.fround(value * inverse)) + zero)), scale, zero };
}

interface Expected {
  readonly value: number;
  /** How far float32 arithmetic in any order may be off. */
  readonly bound: number;
  /** How far results are off for each unit of weightRounding. */
  readonly perRounding?: number;
}

/** The largest magnitude that a weight of each row could have, with its scales and zero points. */
function largestWeights({ n, k, groupSize, bits, scales, zeros, levels }: QuantizedWeights): number[] {
  const groups = groupCount({ k, groupSize });
  const reach = levels ? Math.max(...levels.map(Math.abs), 1) : 2 ** (bits - 1);
  return Array.from({ length: n }, (_, row) => {
    let largest = 0;
    for (let i = row * groups; i < (row + 1) * groups; i++)
      largest = Math.max(largest, scales[i]! * (reach + (zeros ? Math.abs(zeros[i]!) : 0)));
    return largest;
  });
}

/** Expected results [m, n] for activations already in 8 bits. */
function linearOfRows(rows: readonly QuantizedRow[], weights: QuantizedWeights, bias: Float32Array | null): Expected[] {
  const { n, k, bits } = weights;
  const { values, scales } = integersOf(weights);
  const terms = groupCount(weights) + 8;
  const offset = 2 ** bits;
  const largest = largestWeights(weights);
  return rows.flatMap(({ q, scale, zero }) =>
    Array.from({ length: n }, (_, row): Expected => {
      let sum = 0;
      let magnitude = 0;
      let activations = 0;
      for (let c = 0; c < k; c++) {
        activations += Math.abs(q[c]! - zero);
        const w = values[row * k + c]!;
        const wScale = scales[row * k + c]!;
        sum += wScale * (w * (q[c]! - zero));
        // Kernels may sum unsigned weights and zero points apart.
        magnitude += wScale * (Math.abs(w) + offset) * (Math.abs(q[c]!) + Math.abs(zero));
      }
      const b = bias ? bias[row]! : 0;
      const bound = terms * (2 ** -23 * (scale * magnitude + Math.abs(b)) + SMALLEST);
      return { value: scale * sum + b, bound, perRounding: scale * activations * largest[row]! };
    }),
  );
}

/** Expected results [m, n] for float activations. */
function linearOfFloats(x: Float32Array, weights: QuantizedWeights, bias: Float32Array | null): Expected[] {
  const { n, k, bits } = weights;
  const { values, scales } = integersOf(weights);
  return Array.from({ length: (x.length / k) * n }, (_, i): Expected => {
    const row = i % n;
    const start = Math.floor(i / n) * k;
    let sum = bias ? bias[row]! : 0;
    let magnitude = Math.abs(sum);
    for (let c = 0; c < k; c++) {
      const w = values[row * k + c]!;
      const scale = scales[row * k + c]!;
      sum += scale * w * x[start + c]!;
      magnitude += scale * (Math.abs(w) + 2 ** bits) * Math.abs(x[start + c]!);
    }
    return { value: sum, bound: (k + 8) * (2 ** -23 * magnitude + SMALLEST) };
  });
}

function expectClose(found: Float32Array, expected: readonly Expected[], message: string, rounding = 0): void {
  for (let i = 0; i < found.length; i++) {
    const { value, perRounding = 0 } = expected[i]!;
    const bound = expected[i]!.bound + rounding * perRounding;
    if (!(Math.abs(found[i]! - value) <= bound)) expect(found[i], `${message}, [${i}] within ${bound}`).toBe(value);
  }
}

/** y [m, n] of the first m rows of a case. */
function packedCall(kernel: Kernel<PackedLinearArgs>, bench: Bench, call: LinearCase, m: number): Float32Array {
  const { weights, bytes } = call;
  const x = place(bench, call.x.slice(0, m * weights.k));
  const y = floats(bench, m * weights.n);
  run(kernel, { m, x, weights: openPacked(place(bench, bytes), weights), y }, bench);
  return y;
}

/** Weights with activations and what the rows of a family must make of them. */
interface LinearCase {
  readonly name: string;
  readonly weights: QuantizedWeights;
  readonly bytes: Uint8Array;
  readonly x: Float32Array;
  readonly expected: readonly Expected[];
  /** Every count of rows is tried on it, not just some. */
  readonly isThorough: boolean;
}

type Inputs = (
  random: Random,
  weights: QuantizedWeights,
  bias: Float32Array | null,
) => Pick<LinearCase, "x" | "expected">;

/** Makes the cases of one layout and width, every second one with a bias, once for all rows. */
function linearCases(inputs: Inputs, options: Partial<RandomWeightsOptions> = {}) {
  const known = new Map<string, readonly LinearCase[]>();
  return (layout: PackedLayout, bits: number): readonly LinearCase[] => {
    const key = `${layout.name} ${bits}`;
    const cases = known.get(key) ?? makeCases(layout, bits, inputs, options);
    known.set(key, cases);
    return cases;
  };
}

function makeCases(
  layout: PackedLayout,
  bits: number,
  inputs: Inputs,
  options: Partial<RandomWeightsOptions>,
): LinearCase[] {
  const random = new Random(31 * bits + layout.id);
  const cases: LinearCase[] = [];
  for (const [n, k, groupSize] of shapes)
    for (const variant of variants) {
      const weights = randomWeights(random, { n, k, bits, groupSize, ...variant, ...options });
      if (layout.refusal(weights) !== null) continue;
      // Multiples of 8 stay exact in sums of the exact tests.
      const bias = cases.length % 2 === 0 ? Float32Array.from({ length: n }, () => 8 * random.integer(-99, 99)) : null;
      const name = `n ${n}, k ${k}, group ${groupSize}, ${JSON.stringify(variant)}`;
      const bytes = packWeights(weights, bias, layout);
      const isThorough = variant === variants[0] && k % 2 === 0;
      cases.push({ name, weights, bytes, isThorough, ...inputs(random, weights, bias) });
    }
  return cases;
}

/** Runs a case with several counts of rows; where there are threads, with more of them too. */
function forCounts(
  kernel: Kernel<PackedLinearArgs>,
  item: LinearCase,
  check: (found: Float32Array, m: number, message: string) => void,
): void {
  // WebAssembly's loops over rows repeat after four; Node runs them in its slower compiler.
  const most = kernel.target.startsWith("wasm") ? 21 : kernel.mStep >= 32 ? M_MAX : 101;
  const all = rowCounts.filter((m) => m >= kernel.mStep && m <= most);
  const few = [all[0]!, all.find((m) => m > 8)!];
  for (const m of item.isThorough ? all : few) check(packedCall(kernel, single, item, m), m, `${item.name}, m ${m}`);
  if (kernel.target === "reference" || !item.isThorough) return;
  for (const m of [all[0]!, all.at(-1)!])
    check(packedCall(kernel, threaded, item, m), m, `${item.name}, m ${m}, ${threaded.threads} threads`);
}

function describeLayouts(kernel: Kernel<PackedLinearArgs>, tests: (layout: PackedLayout, bits: number) => void): void {
  for (const name of kernel.layouts!)
    for (const bits of kernel.bits!) describe(`${name}, ${bits} bits`, () => tests(layoutNamed(name), bits));
}

/** Activations of known integers: x = (q - zero) * scale with both ends of int8 in every row. */
function exactRows(random: Random, k: number): { rows: QuantizedRow[]; x: Float32Array } {
  const rows = Array.from({ length: M_MAX }, (_, i): QuantizedRow => {
    const q = Array.from({ length: k }, () => random.integer(-128, 127));
    q[i % k] = -128;
    q[(i + 1) % k] = 127;
    return { q, scale: random.pick([0.25, 1, 8]), zero: random.integer(-128, 127) };
  });
  return { rows, x: Float32Array.from(rows.flatMap(({ q, scale, zero }) => q.map((value) => (value - zero) * scale))) };
}

/** Rows that are hard to quantize, by name. */
const extremeRows: readonly [string, (random: Random) => number][] = [
  ["zeros", () => 0],
  ["a positive constant", () => 5.1],
  ["a negative constant", () => -3.3],
  ["only from 10 to 11", (random) => 10 + random.next()],
  ["only from -11 to -10", (random) => -10 - random.next()],
  ["huge", (random) => 1e30 * (2 * random.next() - 1)],
  ["tiny", (random) => 1e-30 * (2 * random.next() - 1)],
  ["below the normal numbers", (random) => 1e-41 * (2 * random.next() - 1)],
  ["an outlier", (random) => (random.next() < 0.05 ? 1e5 : random.next())],
];

/** Every extreme, so often that there are rows enough for all kernels. */
const EXTREME_ROWS = 16 * extremeRows.length;

function extremes(random: Random, k: number): Float32Array {
  const values = Array.from({ length: EXTREME_ROWS }, (_, i) => extremeRows[i % extremeRows.length]![1]);
  return Float32Array.from(values.flatMap((value) => Array.from({ length: k }, () => value(random))));
}

function extremeCount({ mStep }: Kernel<PackedLinearArgs>): number {
  return mStep <= extremeRows.length ? extremeRows.length : EXTREME_ROWS;
}

function rowsOf(x: Float32Array, k: number): number[][] {
  return Array.from({ length: x.length / k }, (_, i) => [...x.subarray(i * k, (i + 1) * k)]);
}

const extremeNames = extremeRows.map(([name]) => name).join(", ");

const exactCases = linearCases(
  (random, weights, bias) => {
    const { rows, x } = exactRows(random, weights.k);
    return { x, expected: linearOfRows(rows, weights, bias) };
  },
  { exactScales: true },
);
const quantize = (x: Float32Array, k: number) => rowsOf(x, k).map(quantizeRow);
const a8Cases = linearCases((random, weights, bias) => {
  const x = random.floats(M_MAX * weights.k, 4);
  return { x, expected: linearOfRows(quantize(x, weights.k), weights, bias) };
});
const a8Extremes = linearCases(
  (random, weights, bias) => {
    const x = extremes(random, weights.k);
    return { x, expected: linearOfRows(quantize(x, weights.k), weights, bias) };
  },
  { scaleDType: "f32" },
);
const floatCases = linearCases((random, weights, bias) => {
  const x = random.floats(M_MAX * weights.k, 4);
  return { x, expected: linearOfFloats(x, weights, bias) };
});
const floatExtremes = linearCases(
  (random, weights, bias) => {
    const x = extremes(random, weights.k);
    return { x, expected: linearOfFloats(x, weights, bias) };
  },
  { scaleDType: "f32" },
);

describeRows(linearA8, machine(), (kernel) => {
  const rounding = weightRounding.get(kernel.name);
  describeLayouts(kernel, (layout, bits) => {
    it("integer sums are exact, on any number of threads", () => {
      for (const item of exactCases(layout, bits)) {
        const expected = Float32Array.from(item.expected, ({ value }) => value);
        for (const [i, { value }] of item.expected.entries())
          if (value !== expected[i]) expect(value, "a test of exact sums needs float32 numbers").toBe(expected[i]);
        forCounts(kernel, item, (found, m, message) =>
          expectSame(found, expected.slice(0, m * item.weights.n), message),
        );
      }
    });

    it("quantizes activations and sums within rounding", () => {
      for (const item of a8Cases(layout, bits))
        forCounts(kernel, item, (found, _, message) => expectClose(found, item.expected, message, rounding));
    });

    it(`takes ${extremeNames}`, () => {
      for (const item of a8Extremes(layout, bits).filter(({ isThorough }) => isThorough))
        expectClose(packedCall(kernel, single, item, extremeCount(kernel)), item.expected, item.name, rounding);
    });
  });
});

describeRows(linearWeightOnly, machine(), (kernel) => {
  describeLayouts(kernel, (layout, bits) => {
    it("sums within rounding, on any number of threads", () => {
      for (const item of floatCases(layout, bits))
        forCounts(kernel, item, (found, _, message) => expectClose(found, item.expected, message));
    });

    it(`takes ${extremeNames}`, () => {
      for (const item of floatExtremes(layout, bits).filter(({ isThorough }) => isThorough))
        expectClose(packedCall(kernel, single, item, extremeCount(kernel)), item.expected, item.name);
    });
  });
});

/** Random float weights of each stored type, and their exact values. */
function floatWeights(random: Random, length: number): { stored: FloatWeights; values: Float32Array }[] {
  const values = random.floats(length);
  const f16 = Uint16Array.from(values, f32ToF16);
  const bf16 = Uint16Array.from(values, f32ToBf16);
  const fromBf16 = new Float32Array(Uint32Array.from(bf16, (bits) => bits * 65536).buffer);
  return [
    { stored: { dtype: "f32", data: values }, values },
    { stored: { dtype: "f16", data: f16 }, values: Float32Array.from(f16, (bits) => f16Table()[bits]!) },
    { stored: { dtype: "bf16", data: bf16 }, values: fromBf16 },
  ];
}

/** y [m, n] of one call against sums in double precision. */
function expectFloatLinear(kernel: Kernel<FloatLinearArgs>, bench: Bench, args: FloatLinearArgs, values: Float32Array) {
  const { m, n, k, x, weights, bias } = args;
  run(kernel, args, bench);
  // Rows that serve many rows only may multiply with 16 bits of each factor, and take the smallest floats for 0.
  const isRough = kernel.mStep >= 128;
  const relative = (k + 4) * 2 ** -23 + (isRough ? 3 * 2 ** -16 : 0);
  const absolute = (k + 4) * (isRough ? 2 ** -126 : SMALLEST);
  const expected = Array.from(args.y, (_, i): Expected => {
    const row = i % n;
    const start = Math.floor(i / n) * k;
    let sum = bias ? bias[row]! : 0;
    let magnitude = Math.abs(sum);
    for (let c = 0; c < k; c++) {
      const product = x[start + c]! * values[row * k + c]!;
      sum += product;
      magnitude += Math.abs(product);
    }
    return { value: sum, bound: relative * magnitude + absolute };
  });
  expectClose(args.y, expected, `${weights.dtype}, n ${n}, k ${k}, m ${m}, ${bench.threads} threads`);
}

describeRows(linearFloat, machine(), (kernel) => {
  const random = new Random(5);
  const call = (
    m: number,
    n: number,
    k: number,
    x: Float32Array,
    weights: FloatWeights,
    bias: Float32Array | null,
  ) => ({
    ...{ m, n, k, x, weights, bias },
    y: new Float32Array(m * n),
  });
  const counts = [...rowCounts, 131].filter((m) => m >= kernel.mStep);

  it.each([
    [1, 1],
    [16, 64],
    [17, 33],
    [31, 127],
    [64, 100],
  ])("sums within rounding: n %i, k %i", (n, k) => {
    for (const { stored, values } of floatWeights(random, n * k))
      for (const bias of [null, random.floats(n)])
        for (const m of counts) {
          const args = call(m, n, k, random.floats(m * k, 3), stored, bias);
          expectFloatLinear(kernel, single, args, values);
        }
  });

  it("sums within rounding: long rows, many columns, threads", () => {
    const [n, k] = [133, 1123];
    for (const { stored, values } of floatWeights(random, n * k))
      for (const m of kernel.mStep >= 128 ? [128, 530] : [1, 13])
        expectFloatLinear(kernel, threaded, call(m, n, k, random.floats(m * k), stored, random.floats(n)), values);
  });

  it(`takes ${extremeNames}`, () => {
    const [n, k] = [19, 70];
    const times = Math.ceil(kernel.mStep / extremeRows.length);
    const rows = extremes(random, k);
    const x = new Float32Array(times * rows.length);
    for (let i = 0; i < times; i++) x.set(rows, i * rows.length);
    for (const { stored, values } of floatWeights(random, n * k))
      for (const m of new Set([kernel.mStep, times * extremeRows.length]))
        expectFloatLinear(kernel, single, call(m, n, k, x.slice(0, m * k), stored, null), values);
  });
});

const ROWS = 37;
const ids = [36, 0, 17, 17, 5, 16, 15];

/** The rows `ids` of a matrix with `dim` columns, as float32. */
function pickRows(matrix: (row: number, c: number) => number, dim: number): Float32Array {
  return Float32Array.from(ids.flatMap((row) => Array.from({ length: dim }, (_, c) => matrix(row, c))));
}

describeRows(embeddingFloat, machine(), (kernel) => {
  it.each([1, 31, 64])("copies rows of %i", (dim) => {
    for (const { stored, values } of floatWeights(new Random(dim), ROWS * dim)) {
      const expected = pickRows((row, c) => values[row * dim + c]!, dim);
      for (const indices of [BigInt64Array.from(ids, BigInt), Int32Array.from(ids)]) {
        const y = new Float32Array(ids.length * dim);
        run(kernel, { rows: ROWS, dim, weights: stored, indices, y }, single);
        expectSame(y, expected, stored.dtype);
      }
    }
  });
});

describeRows(embeddingPacked, machine(), (kernel) => {
  it.each(kernel.bits!)("reads rows of %i bits", (bits) => {
    const random = new Random(bits);
    for (const [dim, groupSize] of [
      [32, 32],
      [96, 32],
      [224, 32],
      [128, 128],
      [160, 160],
      [288, 96],
    ] as const) {
      const weights = randomWeights(random, { n: ROWS, k: dim, bits, groupSize, zeros: true });
      const integers = integersOf(weights);
      const y = new Float32Array(ids.length * dim);
      const packed = packEmbedding(weights.qvals, { bits, rows: ROWS, dim });
      const { scales } = weights;
      const zeros = weights.zeros!;
      const indices = BigInt64Array.from(ids, BigInt);
      run(kernel, { bits, rows: ROWS, dim, packed, scales, zeros, indices, y }, single);
      const value = (row: number, c: number) => integers.values[row * dim + c]! * integers.scales[row * dim + c]!;
      expectSame(y, pickRows(value, dim), `dim ${dim}, group ${groupSize}`);
    }
  });
});

describeRows(embeddingShared, machine(), (kernel) => {
  for (const name of kernel.layouts!)
    it.each(kernel.bits!)(`reads rows of ${name}, %i bits`, (bits) => {
      const layout = layoutNamed(name);
      const random = new Random(bits);
      for (const [, k, groupSize] of shapes)
        for (const variant of variants) {
          const weights = randomWeights(random, { n: ROWS, k, bits, groupSize, ...variant });
          if (layout.refusal(weights) !== null) continue;
          const integers = integersOf(weights);
          const packed = openPacked(packWeights(weights, null, layout), weights);
          const y = new Float32Array(ids.length * k);
          run(kernel, { weights: packed, indices: Int32Array.from(ids), y }, single);
          const value = (row: number, c: number) => integers.values[row * k + c]! * integers.scales[row * k + c]!;
          expectSame(y, pickRows(value, k), `k ${k}, group ${groupSize}, ${JSON.stringify(variant)}`);
        }
    });
});
