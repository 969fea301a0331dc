/** Rows and columns in another order: floats and quantized weights as if the whole matrix had been moved. */
import { expect, it } from "vitest";
import { Random, randomWeights } from "../../test/support/random.ts";
import { dequantize, type QuantizedWeights } from "../quantized.ts";
import { withMoves } from "./moved-weights.ts";
import type { TensorSource } from "./tensor-source.ts";

const [N, K, GROUP] = [12, 96, 16];
const weights = randomWeights(new Random(3), { n: N, k: K, bits: 4, groupSize: GROUP, zeros: true });
const minima = Float32Array.from({ length: (N * K) / GROUP }, (_, i) => i / 7);
const dense = dequantize(weights);

/** Rows of a matrix with `columns` values a row. */
const rowsOf = <A extends Float32Array | Int8Array>(values: A, columns: number, first: number, count: number) =>
  values.slice(first * columns, (first + count) * columns) as A;

const source: TensorSource = {
  names: ["matrix", "vector"],
  has: () => true,
  info: (name) => ({ dtype: "f32", shape: name === "matrix" ? [N, K] : [N] }),
  read: async (name) =>
    name === "matrix"
      ? { dtype: "f32", shape: [N, K], data: dense }
      : { dtype: "f32", shape: [N], data: Float32Array.from({ length: N }, (_, i) => i) },
  readRows: async (_, first, count) => ({ dtype: "f32", shape: [count, K], data: rowsOf(dense, K, first, count) }),
  lowBit: (name) =>
    name === "matrix"
      ? {
          stored: "Q",
          spec: weights,
          factored: "i8",
          async rows(first, count) {
            const groups = K / GROUP;
            const scales = rowsOf(weights.scales, groups, first, count);
            const zeros = rowsOf(weights.zeros!, groups, first, count);
            const superScales = Float32Array.from({ length: count }, (_, i) => first + i);
            return { ...weights, n: count, qvals: rowsOf(weights.qvals, K, first, count), scales, zeros, superScales };
          },
          minima: {
            dtype: "f32",
            rows: async (first, count) => ({
              dtype: "f32",
              shape: [count, K / GROUP],
              data: rowsOf(minima, K / GROUP, first, count),
            }),
          },
        }
      : null,
};

/** Rows in threes, as value heads of two key heads are. */
const storedRow = (row: number) => (row % 2) * 6 + Math.floor(row / 2);
const columnsBy = (size: number) =>
  Int32Array.from({ length: K }, (_, c) => (K / size - 1 - Math.floor(c / size)) * size + (c % size));

const movedRows = Float32Array.from({ length: N * K }, (_, i) => dense[storedRow(Math.floor(i / K)) * K + (i % K)]!);

it("rows are those of the file in another order, whole, in part and quantized", async () => {
  const moved = withMoves(source, () => ({ storedRow }));
  expect((await moved.read("matrix")).data).toEqual(movedRows);
  expect(await moved.readRows("matrix", 3, 5)).toEqual({
    dtype: "f32",
    shape: [5, K],
    data: rowsOf(movedRows, K, 3, 5),
  });
  expect(Array.from((await moved.read("vector")).data, Number)).toEqual(
    Array.from({ length: N }, (_, i) => storedRow(i)),
  );
  const low = moved.lowBit!("matrix")!;
  const rows = await low.rows(3, 5);
  expect(dequantize(rows)).toEqual(rowsOf(movedRows, K, 3, 5));
  expect([...rows.superScales!]).toEqual([3, 4, 5, 6, 7].map(storedRow));
  expect(low.factored).toBe("i8");
  const [first] = (await low.minima!.rows(4, 1)).data;
  expect(first).toBe(minima[(storedRow(4) * K) / GROUP]);
});

it("columns move with their groups", async () => {
  const storedColumns = columnsBy(2 * GROUP);
  const moved = withMoves(source, () => ({ storedColumns }));
  const expected = Float32Array.from({ length: N * K }, (_, i) => dense[i - (i % K) + storedColumns[i % K]!]!);
  expect((await moved.read("matrix")).data).toEqual(expected);
  const low = moved.lowBit!("matrix")!;
  const rows: QuantizedWeights = await low.rows(2, 4);
  expect(dequantize(rows)).toEqual(rowsOf(expected, K, 2, 4));
  expect([rows.superScales, low.factored]).toEqual([undefined, undefined]);
  const found = (await low.minima!.rows(0, 1)).data;
  expect(found[0]).toBe(minima[storedColumns[0]! / GROUP]);
});

it("columns of one group that are of several afterwards are read as floats only", () => {
  const storedColumns = columnsBy(GROUP / 2);
  expect(withMoves(source, () => ({ storedColumns })).lowBit!("matrix")).toBeNull();
});

it("what has no moves is as it was", async () => {
  const moved = withMoves(source, () => null);
  expect((await moved.read("matrix")).data).toBe(dense);
  expect((await moved.lowBit!("matrix")!.rows(0, N)).qvals).toEqual(weights.qvals);
});
