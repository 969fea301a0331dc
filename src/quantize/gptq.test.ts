import { describe, expect, it } from "vitest";
import { Random } from "../../test/support/random.ts";
import { unpackWeights } from "../../test/support/unpack-weights.ts";
import { openPacked, packWeights } from "../kernels/layout/packed.ts";
import { panel16 } from "../kernels/layout/panel16.ts";
import { type Matrix, matrix, type Product } from "../matrix.ts";
import { dequantize } from "../quantized.ts";
import { upperFactor } from "./cholesky.ts";
import { factorSums, type GptqOptions, quantizeGptq } from "./gptq.ts";
import { quantizeMse } from "./mse.ts";
import type { Scheme } from "./scheme.ts";

const product: Product = (a, b) => {
  const result = matrix(a.rows, b.rows);
  for (let r = 0; r < a.rows; r++)
    for (let c = 0; c < b.rows; c++) {
      let sum = 0;
      for (let i = 0; i < a.columns; i++) sum += a.data[r * a.columns + i]! * b.data[c * b.columns + i]!;
      result.data[r * b.rows + c] = sum;
    }
  return result;
};

const scheme = (changes: Partial<Scheme> = {}): Scheme => ({
  ...{ bits: 3, groupSize: 32, mappingType: "symmetric", algorithm: "gptq", scaleDType: "f32", ...changes },
});

const random = new Random(7);
/** Of variance 1, as the sum of twelve uniform numbers. */
const normal = () => random.floats(12, 0.5).reduce((sum, value) => sum + value, 0);

/** X^T X of inputs that depend on each other. */
function hessianOf(k: number, tokens: number): Matrix {
  const x = matrix(k, tokens);
  for (let t = 0; t < tokens; t++) {
    const shared = normal();
    for (let c = 0; c < k; c++) x.data[c * tokens + t] = normal() * (1 + (c % 5)) + 2 * shared;
  }
  return product(x, x);
}

const gptqOf = (w: Matrix, sums: Matrix, options: GptqOptions) =>
  quantizeGptq(copy(w), factorSums(sums, product), { product }, options);
const copy = ({ rows, columns, data }: Matrix) => matrix(rows, columns, data.slice());
const loss = (w: Matrix, values: Float32Array, hessian: Matrix) => {
  const e = matrix(
    w.rows,
    w.columns,
    w.data.map((value, i) => value - values[i]!),
  );
  return product(e, hessian).data.reduce((sum, value, i) => sum + value * e.data[i]!, 0);
};

/** The paper's algorithm 1, in doubles: an explicit inverse, its Cholesky factor, and errors spread as they are made. */
function plainGptq(w: Matrix, hessian: Matrix, scalesOf: (r: number) => number, bits: number): number[] {
  const { rows: n, columns: k } = w;
  const h = Array.from({ length: k }, (_, r) => Array.from(hessian.data.subarray(r * k, r * k + k)));
  const mean = h.reduce((sum, row, i) => sum + row[i]!, 0) / k;
  for (let i = 0; i < k; i++) h[i]![i] = 1.2 * h[i]![i]! + 0.02 * mean;
  const upper = transposed(choleskyOf(inverse(h)));
  const low = -(2 ** (bits - 1));
  const result: number[] = [];
  for (let r = 0; r < n; r++) {
    const row = Array.from(w.data.subarray(r * k, r * k + k));
    for (let j = 0; j < k; j++) {
      const q = Math.max(low, Math.min(-low - 1, Math.round(row[j]! / scalesOf(r))));
      const error = (row[j]! - q * scalesOf(r)) / upper[j]![j]!;
      for (let c = j; c < k; c++) row[c]! -= error * upper[j]![c]!;
      result.push(q);
    }
  }
  return result;
}

const transposed = (a: number[][]) => a.map((_, r) => a.map((row) => row[r]!));

function inverse(a: readonly number[][]): number[][] {
  const size = a.length;
  const m = a.map((row, r) => [...row, ...a.map((_, c) => (c === r ? 1 : 0))]);
  for (let p = 0; p < size; p++) {
    const pivot = m[p]![p]!;
    for (let c = 0; c < 2 * size; c++) m[p]![c]! /= pivot;
    for (let r = 0; r < size; r++) {
      const factor = m[r]![p]!;
      if (r !== p) for (let c = 0; c < 2 * size; c++) m[r]![c]! -= factor * m[p]![c]!;
    }
  }
  return m.map((row) => row.slice(size));
}

function choleskyOf(a: number[][]): number[][] {
  const l = a.map((row) => row.map(() => 0));
  for (let r = 0; r < a.length; r++)
    for (let c = 0; c <= r; c++) {
      let sum = a[r]![c]!;
      for (let i = 0; i < c; i++) sum -= l[r]![i]! * l[c]![i]!;
      l[r]![c] = r === c ? Math.sqrt(sum) : sum / l[c]![c]!;
    }
  return l;
}

it("factors a matrix of several blocks", () => {
  const size = 300;
  const a = hessianOf(size, 400);
  const r = upperFactor(copy(a), product);
  for (let i = 1; i < size; i++)
    expect(r.data.subarray(i * size, i * size + i).every((value) => value === 0)).toBe(true);
  const again = product(r, r);
  const peak = Math.max(...a.data);
  const furthest = again.data.reduce((most, value, i) => Math.max(most, Math.abs(value - a.data[i]!)), 0);
  expect(furthest).toBeLessThan(1e-4 * peak);
});

describe("GPTQ", () => {
  const [n, k] = [12, 150];
  const w = matrix(
    n,
    k,
    Float32Array.from({ length: n * k }, () => normal()),
  );
  const hessian = hessianOf(k, 200);

  it("rounds as the paper's algorithm does in double precision", async () => {
    for (const bits of [2, 3, 4]) {
      const options = scheme({ bits, groupSize: "axis" });
      const found = await gptqOf(w, hessian, options);
      const expected = plainGptq(w, hessian, (r) => found.scales[r]!, bits);
      // Where a value is next to halfway, single and double precision may part, and the row with them.
      const same = expected.filter((q, i) => q === found.qvals[i]).length;
      expect(same / expected.length).toBeGreaterThan(0.98);
    }
  });

  it.each([
    { bits: 1 },
    { bits: 2 },
    { bits: 3 },
    { bits: 4, groupSize: 50 },
    { bits: 2, mappingType: "asymmetric" as const },
    { bits: 3, mappingType: "symmetric_no_clipping_err" as const, groupSize: "axis" as const },
    { bits: 2, scaleDType: "f16" as const, groupSize: 7 },
    { bits: 3, mappingType: "codebook" as const },
    { bits: 4, mappingType: "codebook" as const, groupSize: 50 },
  ])("loses less than rounding alone: %o", async (changes) => {
    const options = scheme(changes);
    const importance = Float32Array.from({ length: k }, (_, i) => hessian.data[i * k + i]!);
    const alone = loss(w, dequantize(quantizeMse(w.data, { ...options, n, k }, importance)), hessian);
    const gptq = loss(w, dequantize(await gptqOf(w, hessian, options)), hessian);
    expect(gptq).toBeLessThan(0.7 * alone);
  });

  it("keeps integer scales integers of their factors, across blocks of columns, and learned levels", async () => {
    const columns = 300;
    const weights = matrix(4, columns, w.data.slice(0, 4 * columns));
    const levels = Int8Array.of(-63, -20, 8, 40);
    const options = scheme({ bits: 2, groupSize: 16, mappingType: "kmeans", scaleDType: "i8" });
    const found = await gptqOf(weights, hessianOf(columns, 400), { ...options, sweeps: 2, levels });
    expect([...found.levels!]).toEqual([...levels]);
    expect(found.superScales).toHaveLength(8);
    expect(found.superScales!.every((factor) => factor > 0)).toBe(true);
    // The packer refuses scales that are no such products.
    const { weights: stored } = unpackWeights(openPacked(packWeights(found, null, panel16), found));
    expect([...stored.scales]).toEqual([...found.scales]);
    expect(stored.scales.every((scale) => scale !== 0)).toBe(true);
  });

  it("takes inputs that are always zero", async () => {
    const holes = copy(hessian);
    for (let i = 0; i < k; i++)
      for (const dead of [0, 31, 149]) holes.data[dead * k + i] = holes.data[i * k + dead] = 0;
    const values = dequantize(await gptqOf(w, holes, scheme({ bits: 8 })));
    for (const [i, value] of values.entries())
      if ([0, 31, 149].includes(i % k)) expect(value).toBeCloseTo(w.data[i]!, 1);
  });

  const damped = copy(hessian);
  const mean = Array.from({ length: k }, (_, i) => hessian.data[i * k + i]!).reduce((sum, value) => sum + value / k, 0);
  for (let i = 0; i < k; i++) damped.data[i * k + i] = 1.2 * damped.data[i * k + i]! + 0.02 * mean;

  it.each([
    { bits: 2 },
    { bits: 3, groupSize: 50 },
    { bits: 3, mappingType: "codebook" as const, scaleDType: "f16" as const },
    { bits: 2, mappingType: "asymmetric" as const },
  ])("sweeps until no other integer of one weight alone would lose less: %o", async (changes) => {
    const options = scheme(changes);
    const once = loss(w, dequantize(await gptqOf(w, hessian, options)), damped);
    const found = await gptqOf(w, hessian, { ...options, sweeps: 12 });
    const values = dequantize(found);
    expect(loss(w, values, damped)).toBeLessThan(once);
    const { groupSize, scales, zeros, levels, bits } = found;
    const groups = Math.ceil(k / groupSize);
    let better = 0;
    for (let r = 0; r < n; r++)
      for (let j = 0; j < k; j++) {
        let slope = 0;
        for (let c = 0; c < k; c++) slope += (w.data[r * k + c]! - values[r * k + c]!) * damped.data[c * k + j]!;
        const group = r * groups + Math.floor(j / groupSize);
        for (let q = -(2 ** (bits - 1)); q < 2 ** (bits - 1); q++) {
          const level = levels ? levels[q + 2 ** (bits - 1)]! : q - (zeros?.[group] ?? 0);
          const change = level * scales[group]! - values[r * k + j]!;
          if (change ** 2 * damped.data[j * k + j]! - 2 * change * slope < -1e-3 * mean) better++;
        }
      }
    expect(better).toBeLessThan(0.01 * n * k);
  });

  it("makes up for what the outputs lack", async () => {
    const lacking = product(matrix(n, k, random.floats(n * k, 1)), hessian);
    const h = Array.from({ length: k }, (_, r) => Array.from(damped.data.subarray(r * k, r * k + k)));
    const inverted = matrix(k, k, Float32Array.from(inverse(h).flat()));
    const wanted = product(lacking, inverted).data.map((value, i) => value + w.data[i]!);
    const options = { ...scheme({ bits: 8 }), lacking: copy(lacking) };
    const found = dequantize(await gptqOf(w, hessian, options));
    const [around, without] = [wanted, w.data].map((values) => loss(matrix(n, k, values), found, hessian)) as [
      number,
      number,
    ];
    expect(around).toBeLessThan(1e-3 * without);
  });

  it("refuses a matrix of other inputs, and stops when told", async () => {
    await expect(gptqOf(w, hessianOf(8, 9), scheme())).rejects.toThrow(/expected X\^T X \[150, 150\]/);
    const signal = AbortSignal.abort(new Error("enough"));
    await expect(gptqOf(w, hessian, { ...scheme(), signal })).rejects.toThrow("enough");
  });
});
