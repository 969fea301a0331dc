/**
 * Every row of linear layers with low-bit or float weights against definitions in double precision
 * (test/support/linear-definition.ts). Integer sums are compared exactly: scales are powers of two there. Float results
 * have a bound of rounding errors.
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
} from "../../../../test/support/conformance.ts";
import {
  type BlockRow,
  blocksOf,
  type Expected,
  expectWithin,
  linearOfBlocks,
  linearOfFloats,
  linearOfRows,
  linearOfWeights,
  type QuantizedRow,
  quantizeInBlocks,
  quantizeRow,
  rounding,
} from "../../../../test/support/linear-definition.ts";
import { madeOnce } from "../../../../test/support/made-once.ts";
import {
  Random,
  type RandomWeightsOptions,
  randomFloatWeights,
  randomWeights,
  weightVariants,
} from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import { f16Table, f32ToF16 } from "../../../half.ts";
import { hasFactors, type QuantizedWeights, SUPER_GROUP } from "../../../quantized.ts";
import type { Kernel, PackedLayout } from "../../contract.ts";
import { layoutNamed, openPacked, packWeights } from "../../layout/packed.ts";
import type { FloatWeights } from "../../records.ts";
import { linearA8, linearA8Blocks, linearFloat, linearWeightOnly } from "../index.ts";
import type { FloatLinearArgs, PackedLinearArgs } from "./fields.ts";

const single: Bench = { memory: heap, threads: 1 };
const threaded: Bench = { memory: heap, threads: 3 };

const cpu = machine();

/** The last count is for kernels that take no fewer than 32. */
const rowCounts = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 21, 32, 43, 75];
const M_MAX = 75;
/** Rows of cases with few counts: the first count that every kernel takes that reads low-bit weights. */
const M_FEW = 32;

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
  [19, 40, 16],
  [33, 528, 16],
  [21, 576, 32],
] as const;

/** y [m, n] of the first m rows of a case. */
function packedCall(kernel: Kernel<PackedLinearArgs>, bench: Bench, call: LinearCase, m: number): Float32Array {
  const { weights, bytes } = call;
  const x = place(bench, call.x.slice(0, m * weights.k));
  expect(x.length, `${call.name}, values of ${m} rows`).toBe(m * weights.k);
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
  readonly expected: Expected;
  /** Every count of rows is tried on it, not just some. */
  readonly isThorough: boolean;
}

type Inputs = (
  random: Random,
  weights: QuantizedWeights,
  bias: Float32Array | null,
  m: number,
) => Pick<LinearCase, "x" | "expected">;

interface CaseOptions {
  readonly weights?: Partial<RandomWeightsOptions>;
  /** Leaves out what is not tried with every count of rows. */
  readonly onlyThorough?: boolean;
}

function isFactored({ scaleDType = "f32" }: Partial<RandomWeightsOptions>): boolean {
  return hasFactors({ scaleDType });
}

/** Makes the cases of one layout and width, every second one with a bias, once for all rows. */
function linearCases(name: string, inputs: Inputs, options: CaseOptions = {}) {
  return (layout: PackedLayout, bits: number): readonly LinearCase[] =>
    madeOnce(`${name}, ${layout.name}, ${bits} bits`, () => makeCases(layout, bits, inputs, options));
}

function makeCases(layout: PackedLayout, bits: number, inputs: Inputs, options: CaseOptions): LinearCase[] {
  const random = new Random(31 * bits + layout.id);
  const cases: LinearCase[] = [];
  for (const [shape, [n, k, groupSize]] of shapes.entries())
    for (const [index, variant] of weightVariants.entries()) {
      // Factors of integer scales change along k in the longest rows only.
      const isOwn = index === 0 || (isFactored(variant) && k > SUPER_GROUP);
      // Each other form of weights with each shape in two or three widths, and with each width in a third of the shapes.
      if (!isOwn && (shape + index + bits) % 3 !== 0) continue;
      const weights = randomWeights(random, { n, k, bits, groupSize, ...variant, ...options.weights });
      // Every count of rows with each shape in half of the widths, and with each width in half of the shapes.
      const isThorough = isOwn && k % 2 === 0 && (shape + bits) % 2 === 0;
      const isLarge = options.weights?.exactScales && k > 200;
      // Emulated CPUs are slow: the rarer forms are tried on them where groups end within panels and where factors change.
      const isRare = variant.minima === true || isFactored(variant);
      if (isEmulated && isRare && ![33, 21, 19].includes(n)) continue;
      if (layout.refusal(weights) !== null || isLarge || (options.onlyThorough && !isThorough)) continue;
      // Multiples of 8 stay exact in sums of the exact tests.
      const bias = cases.length % 2 === 0 ? Float32Array.from({ length: n }, () => 8 * random.integer(-99, 99)) : null;
      const name = `n ${n}, k ${k}, group ${groupSize}, ${JSON.stringify(variant)}`;
      const bytes = packWeights(weights, bias, layout);
      cases.push({ name, weights, bytes, isThorough, ...inputs(random, weights, bias, isThorough ? M_MAX : M_FEW) });
    }
  return cases;
}

/** The cases that a kernel serves. */
function servedBy(kernel: Kernel<PackedLinearArgs>, cases: readonly LinearCase[]): readonly LinearCase[] {
  return cases.filter(({ weights }) => {
    if (kernel.readsMinima) return true;
    const isRead = !hasFactors(weights) || (weights.scaleDType === "i8" && kernel.readsFactors === true);
    return isRead && !weights.hasMinima;
  });
}

/** Runs a case with several counts of rows; where there are threads, with more of them too. */
function forCounts(
  kernel: Kernel<PackedLinearArgs>,
  item: LinearCase,
  check: (found: Float32Array, m: number, message: string) => void,
): void {
  const most = kernel.mStep >= 32 ? M_MAX : 43;
  const all = rowCounts.filter((m) => m >= kernel.mStep && m <= most);
  const few = [all[0]!, all.find((m) => m > 8)!];
  // Those of the reference do not work on several rows at once.
  const isThorough = item.isThorough && kernel.target !== "reference";
  for (const m of isThorough ? all : few) check(packedCall(kernel, single, item, m), m, `${item.name}, m ${m}`);
  if (kernel.target !== "native" || !item.isThorough) return;
  for (const m of [all[0]!, all.at(-1)!])
    check(packedCall(kernel, threaded, item, m), m, `${item.name}, m ${m}, ${threaded.threads} threads`);
}

function describeLayouts(kernel: Kernel<PackedLinearArgs>, tests: (layout: PackedLayout, bits: number) => void): void {
  for (const name of kernel.layouts!)
    for (const bits of kernel.bits!) describe(`${name}, ${bits} bits`, () => tests(layoutNamed(name), bits));
}

/** Activations of known integers: x = (q - zero) * scale with both ends of int8 in every row. */
function exactRows(random: Random, k: number, m: number): { rows: QuantizedRow[]; x: Float32Array } {
  const rows = Array.from({ length: m }, (_, i): QuantizedRow => {
    const q = Array.from({ length: k }, () => random.integer(-128, 127));
    q[i % k] = -128;
    q[(i + 1) % k] = 127;
    return { q, scale: random.pick([0.25, 1, 8]), zero: random.integer(-128, 127) };
  });
  return { rows, x: Float32Array.from(rows.flatMap(({ q, scale, zero }) => q.map((value) => (value - zero) * scale))) };
}

/** The same in blocks, with an end of the integers in each. */
function exactBlocks(random: Random, weights: QuantizedWeights, m: number): { rows: BlockRow[]; x: Float32Array } {
  const rows = Array.from({ length: m }, (_, i): BlockRow => {
    const row = random.pick([0.25, 1, 8]);
    const blocks = blocksOf(weights).map(([first, end]) => {
      const scale = row * random.pick([1, 2]);
      const values = Array.from({ length: end - first }, () => [random.integer(-127, 127), scale] as const);
      values[i % values.length] = [i % 2 === 0 ? 127 : -127, scale];
      return values;
    });
    return { q: blocks.flat().map(([q]) => q), scales: blocks.flat().map(([, scale]) => scale) };
  });
  return { rows, x: Float32Array.from(rows.flatMap(({ q, scales }) => q.map((value, c) => value * scales[c]!))) };
}

type Value = (random: Random, column: number, k: number) => number;
const even: Value = (random) => 2 * random.next() - 1;

/** Rows that are hard to quantize, by name. */
const extremeRows: readonly [string, Value][] = [
  ["zeros", () => 0],
  ["a positive constant", () => 5.1],
  ["a negative constant", () => -3.3],
  ["only from 10 to 11", (random) => 10 + random.next()],
  ["only from -11 to -10", (random) => -10 - random.next()],
  ["huge", (random) => 1e30 * (2 * random.next() - 1)],
  ["tiny", (random) => 1e-30 * (2 * random.next() - 1)],
  ["below the normal numbers", (random) => 1e-41 * (2 * random.next() - 1)],
  ["an outlier", (random) => (random.next() < 0.05 ? 1e5 : random.next())],
  ["NaN first", (random, column, k) => (column === 0 ? Number.NaN : even(random, column, k))],
  ["NaN last", (random, column, k) => (column === k - 1 ? Number.NaN : even(random, column, k))],
  ["infinity", (random, column, k) => (column === k >> 1 ? Number.POSITIVE_INFINITY : even(random, column, k))],
  ["-infinity last", (random, column, k) => (column === k - 1 ? Number.NEGATIVE_INFINITY : even(random, column, k))],
];

/** Finite, but their range is not: for 8-bit activations with one scale a row. */
const tooWide: readonly [string, Value][] = [["-3e38 to 3e38", (_, column) => (column % 2 === 0 ? 3e38 : -3e38)]];

/** Enough rows for kernels that take no fewer than 128; 8-bit ones of emulated CPUs take few. */
const EXTREME_TURNS = isEmulated ? 1 : 12;

/** Each of them once. */
function extremes(random: Random, k: number, rows: readonly [string, Value][]): Float32Array {
  return Float32Array.from(rows.flatMap(([, value]) => Array.from({ length: k }, (_, c) => value(random, c, k))));
}

/** All of them in turn, as often as it takes for all kernels. */
function inTurns<C extends Pick<LinearCase, "x" | "expected">>({ x, expected, ...rest }: C, turns = EXTREME_TURNS): C {
  const repeat = <A extends Float32Array | Float64Array>(once: A): A => {
    const all = new (once.constructor as new (length: number) => A)(turns * once.length);
    for (let i = 0; i < turns; i++) all.set(once, i * once.length);
    return all;
  };
  const { values, magnitudes, reaches, terms } = expected;
  const repeated = {
    values: repeat(values),
    magnitudes: repeat(magnitudes),
    reaches: reaches && repeat(reaches),
    terms,
  };
  return { ...rest, x: repeat(x), expected: repeated } as unknown as C;
}

/** Each of them once, more often where the kernel takes no fewer rows. */
function extremeCall(kernel: Kernel<PackedLinearArgs>, item: LinearCase): Float32Array {
  const rows = item.x.length / item.weights.k;
  const once = rows / EXTREME_TURNS;
  return packedCall(kernel, single, item, kernel.mStep <= once ? once : rows);
}

function rowsOf(x: Float32Array, k: number): number[][] {
  return Array.from({ length: x.length / k }, (_, i) => [...x.subarray(i * k, (i + 1) * k)]);
}

const namesOf = (rows: readonly [string, Value][]) => rows.map(([name]) => name).join(", ");

const exactCases = linearCases(
  "exact sums",
  (random, weights, bias, m) => {
    const { rows, x } = exactRows(random, weights.k, m);
    return { x, expected: linearOfRows(rows, weights, bias) };
  },
  { weights: { exactScales: true } },
);
const quantize = (x: Float32Array, k: number) => rowsOf(x, k).map(quantizeRow);
const a8Cases = linearCases("8-bit activations", (random, weights, bias, m) => {
  const x = random.floats(m * weights.k, 4);
  return { x, expected: linearOfRows(quantize(x, weights.k), weights, bias) };
});
const floatCases = linearCases("float activations", (random, weights, bias, m) => {
  const x = random.floats(m * weights.k, 4);
  return { x, expected: linearOfFloats(x, weights, bias) };
});

const a8Extremes = linearCases(
  "8-bit extremes",
  (random, weights, bias) => {
    const x = extremes(random, weights.k, [...extremeRows, ...tooWide]);
    return inTurns({ x, expected: linearOfRows(quantize(x, weights.k), weights, bias) });
  },
  { weights: { scaleDType: "f32" }, onlyThorough: true },
);
const floatExtremes = linearCases(
  "float extremes",
  (random, weights, bias) => {
    const x = extremes(random, weights.k, extremeRows);
    return inTurns({ x, expected: linearOfFloats(x, weights, bias) });
  },
  { weights: { scaleDType: "f32" }, onlyThorough: true },
);

const blockRows = (x: Float32Array, weights: QuantizedWeights) =>
  rowsOf(x, weights.k).map((row) => quantizeInBlocks(row, weights));

/** Cases of 8-bit activations: of exact sums, of any, and of rows that are hard to quantize. */
interface A8Cases {
  readonly exact: ReturnType<typeof linearCases>;
  readonly any: ReturnType<typeof linearCases>;
  readonly extreme: ReturnType<typeof linearCases>;
  readonly extremeRows: typeof extremeRows;
}

const inRows: A8Cases = {
  exact: exactCases,
  any: a8Cases,
  extreme: a8Extremes,
  extremeRows: [...extremeRows, ...tooWide],
};
const inBlocks: A8Cases = {
  exact: linearCases(
    "exact sums of blocks",
    (random, weights, bias, m) => {
      const { rows, x } = exactBlocks(random, weights, m);
      return { x, expected: linearOfBlocks(rows, weights, bias) };
    },
    { weights: { exactScales: true } },
  ),
  any: linearCases("8-bit activations in blocks", (random, weights, bias, m) => {
    const x = random.floats(m * weights.k, 4);
    return { x, expected: linearOfBlocks(blockRows(x, weights), weights, bias) };
  }),
  extreme: linearCases(
    "8-bit extremes in blocks",
    (random, weights, bias) => {
      const x = extremes(random, weights.k, extremeRows);
      return inTurns({ x, expected: linearOfBlocks(blockRows(x, weights), weights, bias) });
    },
    { weights: { scaleDType: "f32" }, onlyThorough: true },
  ),
  extremeRows,
};

const describeA8Rows = (rows: typeof linearA8, cases: A8Cases) =>
  describeRows(rows, cpu, (kernel) => {
    const tolerance = rounding(kernel.name);
    describeLayouts(kernel, (layout, bits) => {
      it.skipIf(tolerance.ofFloats)("integer sums are exact, on any number of threads", () => {
        for (const item of servedBy(kernel, cases.exact(layout, bits))) {
          const expected = Float32Array.from(item.expected.values);
          item.expected.values.forEach((value, i) => {
            if (value !== expected[i]) expect(value, "a test of exact sums needs float32 numbers").toBe(expected[i]);
          });
          forCounts(kernel, item, (found, m, message) =>
            expectSame(found, expected.slice(0, m * item.weights.n), message),
          );
        }
      });

      it("quantizes activations and sums within rounding", () => {
        for (const item of servedBy(kernel, (tolerance.ofFloats ? floatCases : cases.any)(layout, bits)))
          forCounts(kernel, item, (found, _, message) => expectWithin(found, item.expected, message, tolerance));
      });

      it(`takes ${namesOf(cases.extremeRows)}`, () => {
        for (const item of servedBy(kernel, (tolerance.ofFloats ? floatExtremes : cases.extreme)(layout, bits)))
          expectWithin(extremeCall(kernel, item), item.expected, item.name, tolerance);
      });
    });
  });

describeA8Rows(linearA8, inRows);
describeA8Rows(linearA8Blocks, inBlocks);

describeRows(linearWeightOnly, cpu, (kernel) => {
  describeLayouts(kernel, (layout, bits) => {
    it("sums within rounding, on any number of threads", () => {
      for (const item of servedBy(kernel, floatCases(layout, bits)))
        forCounts(kernel, item, (found, _, message) => expectWithin(found, item.expected, message));
    });

    it(`takes ${namesOf(extremeRows)}`, () => {
      for (const item of servedBy(kernel, floatExtremes(layout, bits)))
        expectWithin(extremeCall(kernel, item), item.expected, item.name);
    });
  });
});

describe.each([
  ["one scale a row", linearA8],
  ["blocks", linearA8Blocks],
  ["floats", linearWeightOnly],
] as const)("the first rows of weights alone: %s", (_, rows) => {
  const [n, k, groupSize] = [70, 64, 32];

  describeRows(rows, cpu, (kernel) => {
    describeLayouts(kernel, (layout, bits) => {
      it.skipIf(!layout.isOfPanels)("is what all rows give of them", () => {
        const random = new Random(7);
        const weights = randomWeights(random, { n, k, bits, groupSize });
        const bytes = packWeights(weights, null, layout);
        const m = Math.max(3, kernel.mStep);
        const x = random.floats(m * k);
        const columns = (count: number) => {
          const y = floats(threaded, m * count);
          const opened = openPacked(place(threaded, bytes), { n: count, k, groupSize });
          run(kernel, { m, x: place(threaded, x), weights: opened, y }, threaded);
          return y;
        };
        const all = columns(n);
        for (const count of [32, 64]) {
          const expected = Float32Array.from({ length: m * count }, (_, i) => {
            return all[Math.floor(i / count) * n + (i % count)]!;
          });
          expectSame(columns(count), expected, `${count} rows`);
        }
      });
    });
  });
});

/** Float weights with activations for the most rows. */
interface FloatCase {
  readonly name: string;
  readonly n: number;
  readonly k: number;
  readonly stored: FloatWeights;
  readonly bias: Float32Array | null;
  readonly x: Float32Array;
  readonly expected: Expected;
}

/** Made once for all rows. `makeX` gives [m, k]. */
function floatLinearCases(
  name: string,
  [n, k]: readonly [number, number],
  hasBias: readonly boolean[],
  makeX: (random: Random) => Float32Array,
): () => FloatCase[] {
  const make = () => {
    const random = new Random(n + k);
    return randomFloatWeights(random, n * k).flatMap(({ stored, values }) =>
      hasBias.map((isBiased) => {
        const bias = isBiased ? random.floats(n) : null;
        const x = makeX(random);
        const name = `${stored.dtype}, n ${n}, k ${k}${bias ? ", bias" : ""}`;
        return { name, n, k, stored, bias, x, expected: linearOfWeights(x, values, k, bias) };
      }),
    );
  };
  return () => madeOnce(`float weights, ${name}`, make);
}

function expectFloatLinear(kernel: Kernel<FloatLinearArgs>, bench: Bench, item: FloatCase, m: number): void {
  const { name, n, k, x, stored, bias, expected } = item;
  const y = new Float32Array(m * n);
  run(kernel, { m, n, k, x: x.slice(0, m * k), weights: stored, bias, y }, bench);
  // Rows that serve many rows only add up products of parts of factors, and take the smallest floats for 0.
  const parts = { relative: 2 ** -21, absolute: 2 ** -126 };
  expectWithin(y, expected, `${name}, m ${m}, ${bench.threads} threads`, kernel.mStep >= 128 ? parts : {});
}

const floatCounts = [...rowCounts, 131, 150];
const floatShapes = [
  [1, 1],
  [16, 64],
  [17, 33],
  [31, 127],
  [64, 100],
] as const;
const plainCases = floatShapes.map(([n, k]) => {
  const name = `n ${n}, k ${k}`;
  const makeX = (random: Random) => random.floats(Math.max(...floatCounts) * k, 3);
  return { name, cases: floatLinearCases(name, [n, k], [false, true], makeX) };
});
/** Rows that bf16 holds exactly, which kernels may multiply apart, and others: no block of them ends where the former do. */
const wordCases = floatLinearCases("rows of bf16", [37, 75], [false], (random) => {
  const x = random.floats(131 * 75, 3);
  const bits = new Uint32Array(x.buffer, x.byteOffset, 70 * 75);
  for (let i = 0; i < bits.length; i++) bits[i]! &= 0xffff0000;
  return x;
});
const LONG_M = isEmulated ? 128 : 530;
const longCases = floatLinearCases("long rows", [133, 1123], [true], (random) => random.floats(LONG_M * 1123));
const onceExtreme = floatLinearCases("extremes", [19, 70], [false], (random) => extremes(random, 70, extremeRows));
const extremeFloatCases = () => onceExtreme().map((item) => inTurns(item, 12));

/** A zero, the smallest and the largest halves, infinities and NaN. */
const SPECIAL_HALVES = [0x8000, 0x0001, 0x83ff, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0xfe01];

/** Each row of weights has one special half, or two, among ordinary ones; x is [m, k]. */
const specialHalves = () =>
  madeOnce("float weights, special halves", () => {
    const [n, k] = [37, 75];
    const random = new Random(5);
    const data = Uint16Array.from(random.floats(n * k), f32ToF16);
    for (let row = 0; row < n; row++)
      for (const i of row % 3 ? [row] : [row, row + 1])
        data[row * k + ((i * 13) % k)] = SPECIAL_HALVES[i % SPECIAL_HALVES.length]!;
    const values = Float32Array.from(data, (bits) => f16Table()[bits]!);
    const x = random.floats(131 * k, 3);
    const stored = { dtype: "f16" as const, data };
    return { name: "special halves", n, k, stored, bias: null, x, expected: linearOfWeights(x, values, k, null) };
  });

describeRows(linearFloat, cpu, (kernel) => {
  const isForMany = kernel.mStep >= 128;

  for (const { name, cases } of plainCases)
    it(`sums within rounding: ${name}`, () => {
      for (const item of cases())
        for (const m of floatCounts.filter((count) => count >= kernel.mStep))
          expectFloatLinear(kernel, single, item, m);
    });

  it("sums within rounding: long rows, many columns, threads", () => {
    for (const item of longCases())
      for (const m of isForMany ? [128, LONG_M] : [1, 13]) expectFloatLinear(kernel, threaded, item, m);
  });

  it("sums within rounding: rows of bf16 among others", () => {
    for (const item of wordCases())
      for (const m of isForMany ? [128, 131] : [1, 13]) expectFloatLinear(kernel, threaded, item, m);
  });

  it("reads the smallest and largest halves, infinite ones and NaN", () => {
    for (const m of isForMany ? [128, 131] : [1, 6]) expectFloatLinear(kernel, single, specialHalves(), m);
  });

  it(`takes ${namesOf(extremeRows)}`, () => {
    for (const item of extremeFloatCases())
      for (const m of isForMany ? [128, item.x.length / 70] : [1, extremeRows.length])
        expectFloatLinear(kernel, single, item, m);
  });
});
