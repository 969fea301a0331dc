/** Norms against plain double precision. */
import { expect, it } from "vitest";
import {
  type Bench,
  benchesFor,
  describeRows,
  expectNear,
  heap,
  machine,
  run,
} from "../../../../test/support/conformance.ts";
import { Random } from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import { addRmsNorm } from "./add-rms-norm.ts";
import { layerNorm } from "./layer-norm.ts";
import { rmsNorm } from "./rms-norm.ts";

const benches: readonly Bench[] = [1, 3].map((threads) => ({ memory: heap, threads }));
const cpu = machine();
const eps = 1e-5;

/** x / sqrt(mean(x^2) + eps) * weight. */
function normed(x: Float32Array, weight: Float32Array) {
  const dim = weight.length;
  const mean = (row: number) => x.slice(row * dim, (row + 1) * dim).reduce((sum, v) => sum + v * v, 0) / dim;
  const inverses = Array.from({ length: x.length / dim }, (_, row) => 1 / Math.sqrt(mean(row) + eps));
  return (i: number) => x[i]! * inverses[Math.floor(i / dim)]! * weight[i % dim]!;
}

describeRows(rmsNorm, cpu, (kernel) => {
  it.each([1, 2, 7, 15, 33, 64, 97, 300])("rows of %i: x / sqrt(mean(x^2) + eps) * weight", (dim) => {
    const random = new Random(dim);
    for (const size of [1, 1e-4, 1e6])
      for (const rows of [1, 3, 33])
        for (const bench of benchesFor(kernel, benches)) {
          const [x, weight] = [random.floats(rows * dim, size), random.floats(dim, 2)];
          const y = new Float32Array(rows * dim);
          run(kernel, { rows, dim, x, weight, eps, y }, bench);
          const value = normed(x, weight);
          expectNear(y, value, (i) => 1e-5 * Math.abs(value(i)));
        }
  });

  it("a row of zeros stays zero", () => {
    const y = new Float32Array(4).fill(9);
    const weight = Float32Array.of(1, 2, 3, 4);
    run(kernel, { rows: 1, dim: 4, x: new Float32Array(4), weight, eps: 1e-6, y }, benches[0]!);
    expectSame(y, new Float32Array(4));
  });

  it.skipIf(kernel.target === "wasm")("squares of large values do not overflow", () => {
    const x = Float32Array.of(1e25, -2e25, 3e25);
    const y = new Float32Array(3);
    run(kernel, { rows: 1, dim: 3, x, weight: new Float32Array(3).fill(1), eps, y }, benches[0]!);
    expectNear(
      y,
      (i) => [1, -2, 3][i]! / Math.sqrt(14 / 3),
      () => 1e-6,
    );
  });

  it("may write over its argument", () => {
    const random = new Random(2);
    const [x, weight] = [random.floats(300), random.floats(100)];
    const y = new Float32Array(300);
    run(kernel, { rows: 3, dim: 100, x, weight, eps, y }, benches[0]!);
    run(kernel, { rows: 3, dim: 100, x, weight, eps, y: x }, benches[0]!);
    expectSame(x, y);
  });
});

describeRows(addRmsNorm, cpu, (kernel) => {
  it("adds in place and norms the sum, also over the addend", () => {
    const random = new Random(2);
    for (const dim of [1, 5, 16, 33, 100])
      for (const rows of [1, 4, 70])
        for (const bench of benchesFor(kernel, benches)) {
          const [x, addend, weight] = [
            random.floats(rows * dim, 3),
            random.floats(rows * dim, 3),
            random.floats(dim, 2),
          ];
          const [sum, y] = [x.slice(), addend.slice()];
          run(kernel, { rows, dim, x: sum, addend: y, alpha: -0.5, weight, eps, y }, bench);
          expectNear(
            sum,
            (i) => x[i]! - 0.5 * addend[i]!,
            () => 1e-6,
          );
          const value = normed(sum, weight);
          expectNear(y, value, (i) => 1e-5 * Math.abs(value(i)) + 1e-7);
        }
  });
});

describeRows(layerNorm, cpu, (kernel) => {
  it.each([1, 3, 16, 37, 384])("rows of %i values less their mean, with a bias and without", (dim) => {
    const random = new Random(dim);
    const x = random.floats(5 * dim).map((value, i) => 3 * value + Math.floor(i / dim) * 10);
    const [weight, bias] = [random.floats(dim), random.floats(dim)];
    for (const bench of benchesFor(kernel, benches))
      for (const added of [bias, null]) {
        const y = new Float32Array(x.length);
        run(kernel, { rows: 5, dim, x, weight, bias: added, eps, y }, bench);
        const value = (i: number) => {
          const row = Array.from(x.subarray(i - (i % dim), i - (i % dim) + dim));
          const mean = row.reduce((sum, one) => sum + one, 0) / dim;
          const variance = row.reduce((sum, one) => sum + (one - mean) ** 2, 0) / dim;
          return ((x[i]! - mean) / Math.sqrt(variance + eps)) * weight[i % dim]! + (added ? added[i % dim]! : 0);
        };
        expectNear(y, value, () => 3e-5);
      }
  });

  it("works in place", () => {
    const x = new Random(2).floats(48);
    const [weight, y] = [new Float32Array(16).fill(2), new Float32Array(48)];
    run(kernel, { rows: 3, dim: 16, x, weight, bias: null, eps: 1e-12, y }, benches[0]!);
    run(kernel, { rows: 3, dim: 16, x, weight, bias: null, eps: 1e-12, y: x }, benches[0]!);
    expectSame(x, y, "in place");
    expect(x.every(Number.isFinite)).toBe(true);
  });
});
