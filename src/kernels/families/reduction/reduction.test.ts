/** Softmax, sums of groups and argmax against plain loops. */
import { expect, it } from "vitest";
import { type Bench, describeRows, expectNear, heap, machine, run } from "../../../../test/support/conformance.ts";
import { Random } from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import { argmax } from "./argmax.ts";
import { groupSums } from "./group-sums.ts";
import { softmax } from "./softmax.ts";

const bench: Bench = { memory: heap, threads: 2 };
const cpu = machine();

describeRows(softmax, cpu, (kernel) => {
  it("rows add up to one, also of huge values", () => {
    const random = new Random(1);
    for (const dim of [1, 2, 15, 33, 512, 5000])
      for (const size of [1, 1e4]) {
        const x = random.floats(3 * dim, size);
        const y = new Float32Array(3 * dim);
        run(kernel, { rows: 3, dim, x, y }, bench);
        for (let row = 0; row < 3; row++) {
          const values = x.subarray(row * dim, (row + 1) * dim);
          const max = Math.max(...values);
          const total = values.reduce((sum, v) => sum + Math.exp(v - max), 0);
          const found = y.subarray(row * dim, (row + 1) * dim);
          expectNear(
            found,
            (i) => Math.exp(values[i]! - max) / total,
            () => 2e-6,
          );
          expect(found.reduce((sum, v) => sum + v, 0)).toBeCloseTo(1, 5);
        }
      }
  });

  it("gives exactly 0 to -infinity, and NaN where a value is NaN", () => {
    const x = new Random(1).floats(120, 3);
    x.fill(Number.NEGATIVE_INFINITY, 3, 50);
    x[70] = Number.NaN;
    const y = new Float32Array(120);
    run(kernel, { rows: 2, dim: 60, x, y }, bench);
    expectSame(y.slice(3, 50), new Float32Array(47));
    expect(y.subarray(0, 60).reduce((sum, value) => sum + value, 0)).toBeCloseTo(1, 5);
    if (kernel.target === "native") expect(y.subarray(60).every(Number.isNaN)).toBe(true);
  });
});

describeRows(groupSums, cpu, (kernel) => {
  it("sums of groups, the last of which may be shorter", () => {
    const random = new Random(1);
    for (const [rows, dim, groupSize] of [
      [1, 1, 1],
      [3, 64, 32],
      [2, 100, 32],
      [5, 33, 7],
      [4, 20, 64],
      [70, 256, 16],
    ] as const) {
      const x = random.floats(rows * dim, 3);
      const groups = Math.ceil(dim / groupSize);
      const y = new Float32Array(rows * groups);
      run(kernel, { rows, dim, groups, groupSize, x, y }, bench);
      const value = (i: number) => {
        const [row, first] = [Math.floor(i / groups), (i % groups) * groupSize];
        return x.slice(row * dim + first, row * dim + Math.min(dim, first + groupSize)).reduce((sum, v) => sum + v, 0);
      };
      expectNear(y, value, () => 1e-4);
    }
  });
});

describeRows(argmax, cpu, (kernel) => {
  it("the first of the largest values of each row", () => {
    const x = Float32Array.of(1, 5, 5, 2, -3, -1, -2, -1, 0, 0, 0, 0);
    const y = new BigInt64Array(3);
    run(kernel, { rows: 3, dim: 4, x, y }, bench);
    expect(y).toEqual(BigInt64Array.of(1n, 1n, 0n));
  });

  it("finds it anywhere in long rows", () => {
    for (const dim of [1000, 1023, 1024, 1025, 5000])
      for (const at of [0, 1, 63, 500, dim - 1]) {
        const x = new Random(at).floats(dim);
        x[at] = 1.5;
        const y = new BigInt64Array(1);
        run(kernel, { rows: 1, dim, x, y }, bench);
        expect(y[0]).toBe(BigInt(at));
      }
  });

  it.each([1, 5, 8, 1025, 3000])("finds the first NaN, else the first largest value of %i", (dim) => {
    const places = [0, 1, Math.floor(dim / 2), dim - 1].filter((at) => at < dim);
    const x = new Random(dim).floats(places.length * 2 * dim, 3);
    for (const [row, at] of places.entries()) {
      x[2 * row * dim + at] = x[(2 * row + 1) * dim - 1] = Number.NaN;
      x[(2 * row + 1) * dim + at] = Number.POSITIVE_INFINITY;
      x[(2 * row + 2) * dim - 1] = Number.POSITIVE_INFINITY;
    }
    const y = new BigInt64Array(places.length * 2);
    run(kernel, { rows: places.length * 2, dim, x, y }, bench);
    expect([...y]).toEqual(places.flatMap((at) => [BigInt(at), BigInt(at)]));
  });
});
