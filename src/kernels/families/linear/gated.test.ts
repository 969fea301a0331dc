/** Every row of linear layers whose first columns gate the others, against definitions in double precision. */
import { describe, expect, it } from "vitest";
import {
  type Bench,
  benchesFor,
  describeRows,
  floats,
  heap,
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
  type Tolerance,
} from "../../../../test/support/linear-definition.ts";
import { madeOnce } from "../../../../test/support/made-once.ts";
import { Random, type RandomWeightsOptions, randomWeights } from "../../../../test/support/random.ts";
import { hasFactors, type QuantizedWeights } from "../../../quantized.ts";
import type { Kernel, PackedLayout } from "../../contract.ts";
import { layoutNamed, openPacked, packWeights } from "../../layout/packed.ts";
import { linearA8BlocksSwiglu, linearA8Swiglu } from "../index.ts";
import type { PackedLinearArgs } from "./fields.ts";

const benches: readonly Bench[] = [1, 3].map((threads) => ({ memory: heap, threads }));

/** n, k, group size, rows. */
const shapes = [
  [32, 64, 32, [1, 2, 32, 33, 43]],
  [160, 96, 32, [1, 47, 64, 101]],
  [96, 128, 128, [1, 32, 48, 80]],
  [64, 98, 64, [1, 32]],
] as const;
/** More rows than share weights, of activations that a cache keeps or not. */
const longest = [
  [96, 320, 32, [530]],
  [64, 2112, 32, [530]],
] as const;

const variants: readonly Partial<RandomWeightsOptions>[] = [
  {},
  { zeros: true },
  { levels: true },
  { zeros: true, scaleDType: "f16" },
];
/** Of kernels that read them; groups of 16 are stored in pairs. */
const nested: readonly Partial<RandomWeightsOptions>[] = [
  { minima: true },
  { minima: true, scaleDType: "i8" },
  { scaleDType: "i8" },
  { levels: true, scaleDType: "e4m3" },
];
const nestedShapes = [...shapes, [64, 544, 16, [1, 32, 43]]] as const;

/** silu(gate) * up with bounds [m, n / 2], of the linear layer's [m, n]. |silu'| is under 1.1. */
function gated({ values, magnitudes, reaches, terms }: Expected, n: number, tolerance: Tolerance): Expected {
  const half = n / 2;
  const results = new Float64Array(values.length / 2);
  const bounds = new Float64Array(results.length);
  const { relative = 0, weights = 0 } = tolerance;
  const errorOf = (i: number) => (terms * 2 ** -23 + relative) * magnitudes[i]! + weights * (reaches?.[i] ?? 0);
  for (let i = 0; i < results.length; i++) {
    const gate = Math.floor(i / half) * n + (i % half);
    const [up, gateError, upError] = [values[gate + half]!, errorOf(gate), errorOf(gate + half)];
    const silu = values[gate]! / (1 + Math.exp(-values[gate]!));
    results[i] = silu * up;
    bounds[i] =
      1.1 * gateError * (Math.abs(up) + upError) + Math.abs(silu) * upError + 1e-6 * Math.abs(results[i]!) + 1e-35;
  }
  return { values: results, magnitudes: bounds, terms: 0, reaches: null };
}

/** What activations make of weights, by how they are quantized. */
type Linear = (x: Float32Array, weights: QuantizedWeights, bias: Float32Array | null) => Expected;

const rowsOf = (x: Float32Array, k: number) =>
  Array.from({ length: x.length / k }, (_, i) => [...x.subarray(i * k, (i + 1) * k)]);
const inRows: Linear = (x, weights, bias) => linearOfRows(rowsOf(x, weights.k).map(quantizeRow), weights, bias);
const inBlocks: Linear = (x, weights, bias) =>
  linearOfBlocks(
    rowsOf(x, weights.k).map((row) => quantizeInBlocks(row, weights)),
    weights,
    bias,
  );

/** Runs a case with all counts of rows; returns how many runs that made, none for a layout that refuses the weights. */
function check(
  kernel: Kernel<PackedLinearArgs>,
  layout: PackedLayout,
  [n, k, groupSize, counts]: readonly [number, number, number, readonly number[]],
  options: Partial<RandomWeightsOptions> & { bits: number },
  quantized: Linear,
): number {
  const random = new Random(n + k);
  const weights = randomWeights(random, { n, k, groupSize, ...options });
  if (layout.refusal(weights) !== null) return 0;
  if (!hasFactors(weights))
    weights.scales.forEach((scale, i) => {
      weights.scales[i] = scale % 1;
    });
  const bias = options.zeros ? random.floats(n, 3) : null;
  const bytes = packWeights(weights, bias, layout);
  const most = Math.max(...counts);
  const x = random.floats(most * k, 0.3 / 2 ** options.bits);
  if (most > 32) x[33 * k - 1] = Number.NaN;
  const tolerance = rounding(kernel.name);
  const linearOf = tolerance.ofFloats ? linearOfFloats : quantized;
  const name = `gated linear ${linearOf.name} ${JSON.stringify([n, k, groupSize, most, options])}`;
  const linear = madeOnce(name, () => linearOf(x, weights, bias));
  const expected = gated(linear, n, tolerance);
  const served = counts.filter((count) => count >= kernel.mStep);
  const used = benchesFor(kernel, benches);
  for (const bench of used)
    for (const m of served) {
      const y = floats(bench, (m * n) / 2);
      const args = { m, x: place(bench, x.slice(0, m * k)), weights: openPacked(place(bench, bytes), weights), y };
      run(kernel, args, bench);
      expectWithin(
        y,
        expected,
        `n ${n}, k ${k}, group ${groupSize}, ${JSON.stringify(options)}, m ${m}, ${bench.threads} threads`,
        { relative: 1, absolute: 0 },
      );
    }
  return served.length * used.length;
}

const describeGated = (rows: typeof linearA8Swiglu, linear: Linear) =>
  describeRows(rows, machine(), (kernel) => {
    // The plain loop is made of two that are tested in all layouts.
    const tested = kernel.target === "reference" ? kernel.layouts!.slice(0, 1) : kernel.layouts!;
    for (const name of tested)
      describe(name, () => {
        const layout = layoutNamed(name);
        for (const bits of kernel.bits!)
          it(`gates as it sums, ${bits} bits`, () => {
            let runs = 0;
            for (const shape of shapes)
              for (const variant of variants) runs += check(kernel, layout, shape, { bits, ...variant }, linear);
            expect(runs).toBeGreaterThan(shapes.length);
          });

        for (const bits of kernel.bits!)
          it.skipIf(!kernel.readsMinima)(`gates sums with minima and integer scales, ${bits} bits`, () => {
            let runs = 0;
            for (const shape of nestedShapes)
              for (const variant of nested) runs += check(kernel, layout, shape, { bits, ...variant }, linear);
            expect(runs).toBeGreaterThan(nestedShapes.length);
          });

        it("takes many rows of many columns", () => {
          for (const shape of longest) expect(check(kernel, layout, shape, { bits: 4 }, linear)).toBeGreaterThan(0);
        });
      });
  });

describeGated(linearA8Swiglu, inRows);
describeGated(linearA8BlocksSwiglu, inBlocks);
