/**
 * The rows of linear layers with 8-bit activations where k is long: groups of 256 and more, one scale a row, and more k
 * than a kernel works on at once. conformance.test.ts has everything else.
 */
import { it } from "vitest";
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
  type Expected,
  expectWithin,
  linearOfBlocks,
  linearOfFloats,
  linearOfRows,
  quantizeInBlocks,
  quantizeRow,
  rounding,
} from "../../../../test/support/linear-definition.ts";
import { madeOnce } from "../../../../test/support/made-once.ts";
import { Random, type RandomWeightsOptions, randomWeights } from "../../../../test/support/random.ts";
import type { QuantizedWeights } from "../../../quantized.ts";
import type { PackedLayout } from "../../contract.ts";
import { SUMMED_COLUMNS_MAX } from "../../layout/header.ts";
import { layoutNamed, openPacked, packWeights } from "../../layout/packed.ts";
import { linearA8, linearA8Blocks } from "../index.ts";

/** n, k, group size, rows of activations. */
type Shape = readonly [number, number, number, readonly number[]];

const counts = isEmulated ? [1, 7, 13] : [1, 7, 43];
/** Of kernels that are not native, and slow. */
const fewCounts = [1, 7];
const shapes: readonly Shape[] = [
  [33, 2112, 256, counts],
  [17, 2048, 2048, counts],
  [40, 600, 300, counts],
];
/** Of kernels that take several rows: more rows than share weights, of activations that a cache keeps or not. */
const many: readonly Shape[] = [
  [49, 352, 32, [530]],
  [17, 2112, 32, [530]],
];
/** And a very long row of them. */
const wide: readonly Shape[] = [...(isEmulated ? [] : many), [17, 17000, 32, [43]]];

/** Minima, and groups of 16 and 32 with scales of a byte, over as much; factors of integers change along k. */
const nested: readonly (readonly [Shape, Partial<RandomWeightsOptions> & { bits: number }])[] = isEmulated
  ? []
  : [
      [[17, 2112, 32, [530]], { bits: 4, minima: true, scaleDType: "i8" }],
      [[17, 2112, 16, [530]], { bits: 6, scaleDType: "i8" }],
      [[17, 2112, 16, [530]], { bits: 2, minima: true, scaleDType: "i8" }],
      [[17, 2112, 64, [530]], { bits: 4, minima: true }],
      [[17, 2112, 16, [530]], { bits: 4, levels: true, scaleDType: "e4m3" }],
    ];

const variants: readonly Partial<RandomWeightsOptions>[] = isEmulated
  ? [{ zeros: true }]
  : [{}, { zeros: true, scaleDType: "f16" }];
const allBits = isEmulated ? [4] : [3, 8];

interface LongCase {
  readonly weights: QuantizedWeights;
  readonly x: Float32Array;
  readonly expected: Expected;
}

/** What rows of activations make of weights, by how they are quantized. */
type Linear = (rows: readonly (readonly number[])[], weights: QuantizedWeights) => Expected;
const inRows: Linear = (rows, weights) => linearOfRows(rows.map(quantizeRow), weights, null);
const inBlocks: Linear = (rows, weights) => {
  const quantized = rows.map((row) => quantizeInBlocks(row, weights));
  return linearOfBlocks(quantized, weights, null);
};
const asFloats: Linear = (rows, weights) => linearOfFloats(Float32Array.from(rows.flat()), weights, null);

/** Weights, activations for the most rows, and what must come out; made once for all kernels and layouts. */
function caseOf(
  linear: Linear,
  [n, k, groupSize, rows]: Shape,
  options: Partial<RandomWeightsOptions> & { bits: number },
): LongCase {
  return madeOnce(`long ${linear.name} ${[n, k, groupSize]} ${JSON.stringify(options)}`, () => {
    const random = new Random(n + k + options.bits);
    const weights = randomWeights(random, { n, k, groupSize, ...options });
    const m = Math.max(...rows);
    const x = random.floats(m * k, 4);
    const all = Array.from({ length: m }, (_, i) => Array.from(x.subarray(i * k, (i + 1) * k)));
    return { weights, x, expected: linear(all, weights) };
  });
}

/** The longest group, of the largest weights and activations of either sign: sums of 32 bits are nearly full. */
function fullestCase(linear: Linear, m: number): LongCase {
  const k = SUMMED_COLUMNS_MAX;
  const weights = randomWeights(new Random(1), { n: 1, k, groupSize: k, bits: 8, zeros: true });
  weights.qvals.fill(127);
  weights.zeros!.fill(-128);
  const x = new Float32Array(m * k).map((_, i) => (Math.floor(i / k) % 2 === 0 ? -1 : 1));
  const both = linear(
    [-1, 1].map((value) => Array(k).fill(value)),
    weights,
  );
  const inTurn = (values: Float64Array) => Float64Array.from({ length: m }, (_, i) => values[i % 2]!);
  // Pieces of 256 columns may be added as floats.
  const expected = { values: inTurn(both.values), magnitudes: inTurn(both.magnitudes), terms: both.terms + k / 256 };
  return { weights, x, expected: { ...expected, reaches: both.reaches && inTurn(both.reaches) } };
}

const describeLong = (rows: typeof linearA8, quantized: Linear) =>
  describeRows(rows, machine(), (kernel) => {
    const tolerance = rounding(kernel.name);
    const linear = tolerance.ofFloats ? asFloats : quantized;
    const check = ({ weights, x, expected }: LongCase, layout: PackedLayout, rows: readonly number[]) => {
      if (layout.refusal(weights) !== null) return;
      const { n, k, groupSize, bits } = weights;
      const bytes = packWeights(weights, null, layout);
      for (const m of rows.filter((count) => count >= kernel.mStep)) {
        const bench: Bench = { memory: heap, threads: kernel.target === "native" && m > 1 ? 3 : 1 };
        const y = floats(bench, m * n);
        const args = { m, x: place(bench, x.slice(0, m * k)), weights: openPacked(place(bench, bytes), weights), y };
        run(kernel, args, bench);
        const name = `n ${n}, k ${k}, group ${groupSize}, ${bits} bits, zeros ${weights.zeros !== null}, m ${m}`;
        expectWithin(y, expected, name, tolerance);
      }
    };

    for (const name of kernel.layouts!) {
      const layout = layoutNamed(name);

      it(`sums long rows of ${name}`, () => {
        const isNative = kernel.target === "native";
        for (const bits of kernel.bits!.filter((width) => (isNative ? allBits.includes(width) : width === 3)))
          for (const shape of shapes)
            for (const variant of variants)
              check(caseOf(linear, shape, { bits, ...variant }), layout, isNative ? shape[3] : fewCounts);
        for (const shape of kernel.mStep > 1 && kernel.bits!.includes(4) ? wide : [])
          check(caseOf(linear, shape, { bits: 4 }), layout, shape[3]);
        for (const [shape, options] of kernel.mStep > 1 && kernel.readsMinima ? nested : [])
          check(caseOf(linear, shape, options), layout, shape[3]);
      });

      it.skipIf(!kernel.bits!.includes(8))(`sums the longest rows of ${name} without overflow`, () => {
        const m = Math.max(2, kernel.mStep);
        check(fullestCase(linear, m), layout, [m]);
      });
    }
  });

describeLong(linearA8, inRows);
describeLong(linearA8Blocks, inBlocks);
