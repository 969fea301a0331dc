/** Every row of the kernel table that copies values. */
import { expect, it } from "vitest";
import { type Bench, describeRows, heap, machine, run } from "../../../../test/support/conformance.ts";
import { Random } from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import { gatherColumns, joinColumns, select } from "../index.ts";

const bench: Bench = { memory: heap, threads: 2 };
const cpu = machine();

describeRows(select, cpu, (kernel) => {
  it("copies one block of each", () => {
    const x = Uint8Array.from({ length: 24 }, (_, i) => i);
    const y = new Uint8Array(6);
    run(kernel, { outer: 3, stride: 8, offset: 4, blockBytes: 2, x, y }, bench);
    expect([...y]).toEqual([4, 5, 12, 13, 20, 21]);
  });

  it("copies blocks of several kilobytes in all", () => {
    const x = Uint8Array.from({ length: 40 * 1200 }, (_, i) => i % 251);
    const y = new Uint8Array(40 * 1000);
    run(kernel, { outer: 40, stride: 1200, offset: 100, blockBytes: 1000, x, y }, bench);
    for (let i = 0; i < 40; i++)
      expectSame(y.subarray(1000 * i, 1000 * (i + 1)), x.subarray(i * 1200 + 100, i * 1200 + 1100), `block ${i}`);
  });
});

describeRows(joinColumns, cpu, (kernel) => {
  it("puts the rows of two matrices side by side", () => {
    const random = new Random(4);
    for (const [rows, first, second] of [
      [1, 1, 1],
      [1, 40000, 7],
      [1, 3, 70001],
      [5, 33, 64],
      [64, 300, 131],
      [3, 9, 0],
    ] as const) {
      const [left, right] = [random.floats(rows * first), random.floats(rows * second)];
      const columns = first + second;
      const y = new Float32Array(rows * columns);
      run(kernel, { rows, first, second, columns, left, right, y }, bench);
      const at = (row: number, c: number) => (c < first ? left[row * first + c]! : right[row * second + c - first]!);
      const expected = Float32Array.from(y, (_, i) => at(Math.floor(i / columns), i % columns));
      expectSame(y, expected, `${rows} rows of ${first} and ${second}`);
    }
  });
});

describeRows(gatherColumns, cpu, (kernel) => {
  const indices = [
    ["i32", (values: number[]) => Int32Array.from(values)],
    ["i64", (values: number[]) => BigInt64Array.from(values, BigInt)],
  ] as const;

  it.each(indices)("takes columns of each row, by indices of %s", (_, indicesOf) => {
    const random = new Random(3);
    for (const [rows, dim, count] of [
      [1, 1, 1],
      [1, 5, 9],
      [3, 64, 64],
      [70, 300, 131],
      [2, 33, 0],
    ] as const) {
      const x = random.floats(rows * dim);
      const columns = Array.from({ length: count }, () => random.integer(0, dim - 1));
      const y = new Float32Array(rows * count);
      run(kernel, { rows, dim, x, columns: indicesOf(columns), y }, bench);
      const expected = Float32Array.from(y, (_, i) => x[Math.floor(i / count) * dim + columns[i % count]!]!);
      expectSame(y, expected, `${rows} x ${dim}, ${count} columns`);
    }
  });

  it.each(indices)("gives NaN for columns that there are not, by indices of %s", (_, indicesOf) => {
    const y = new Float32Array(8);
    const columns = indicesOf([-1, 3, 2, 2147483647]);
    run(kernel, { rows: 2, dim: 3, x: Float32Array.of(1, 2, 3, 4, 5, 6), columns, y }, bench);
    expect([...y]).toEqual([Number.NaN, Number.NaN, 3, Number.NaN, Number.NaN, Number.NaN, 6, Number.NaN]);
  });

  it("gives NaN for wide indices whose low halves are columns", () => {
    const y = new Float32Array(2);
    const columns = BigInt64Array.of(2n ** 32n + 1n, -(2n ** 32n) + 1n);
    run(kernel, { rows: 1, dim: 3, x: Float32Array.of(1, 2, 3), columns, y }, bench);
    expect([...y]).toEqual([Number.NaN, Number.NaN]);
  });
});
