import { expect, it } from "vitest";
import { Random } from "../../../test/support/random.ts";
import type { Tensor } from "../../tensor.ts";
import { HELD_OUT, inChunks, joinRows, layerInputs, splitRows, type Windows } from "./layer-inputs.ts";

const random = new Random(3);
const columns = 5;
const window = (rows: number): Tensor => ({
  ...{ dtype: "f32", shape: [1, rows, columns], data: random.floats(rows * columns, 1) },
});
const lengths = [900, 1, 0, 700, 600, 3, 850, 400, 500, 4200];
const [x, float] = [lengths.map(window), lengths.map(window)] as const;

const isIn = (windows: Windows, w: number) =>
  windows === "all" || (windows === "held out") === (w % HELD_OUT === HELD_OUT - 1);

/** The nearest bf16 number: 8 bits of it count. */
function bf16(value: number): number {
  if (value === 0) return 0;
  const step = 2 ** (Math.floor(Math.log2(Math.abs(value))) - 7);
  return Math.round(value / step) * step;
}

/** Sums over rows of products of inputs and what a function gives for a row, in bf16, by plain loops. */
function sums(windows: Windows, right: (w: number, at: number) => number, rounded = bf16): number[] {
  const found = new Array<number>(columns * columns).fill(0);
  for (const [w, { data }] of x.entries()) {
    if (!isIn(windows, w)) continue;
    for (let start = 0; start < data.length; start += columns)
      for (let i = 0; i < columns; i++)
        for (let j = 0; j < columns; j++)
          found[i * columns + j]! += rounded(data[start + i] as number) * rounded(right(w, start + j));
  }
  return found;
}

it.each(["all", "fitted", "held out"] as const)(
  "sums products of inputs of %s windows as plain loops do",
  (windows) => {
    const inputs = layerInputs(columns, x, float);
    const at = (tensors: readonly Tensor[], w: number, i: number) => tensors[w]!.data[i] as number;
    const hessian = sums(windows, (w, i) => at(x, w, i));
    const drift = sums(windows, (w, i) => Math.fround(at(float, w, i) - at(x, w, i)));
    for (const [found, expected] of [
      [inputs.hessian(windows), hessian],
      [inputs.drift(windows)!, drift],
    ] as const)
      for (const [i, value] of expected.entries()) expect(Math.abs(found.data[i]! - value)).toBeLessThan(0.05);
    const rows = lengths.filter((_, w) => isIn(windows, w)).reduce((sum, length) => sum + length, 0);
    expect(inputs.inputs(windows).rows).toBe(rows);
    expect(inputs.floatInputs(windows)!.rows).toBe(rows);
    expect(inputs.hessian(windows)).toBe(inputs.hessian(windows));
  },
);

it("has mean squares, and no drift without float inputs", () => {
  const inputs = layerInputs(columns, x);
  const total = lengths.reduce((sum, length) => sum + length, 0);
  const squares = sums(
    "all",
    (w, i) => x[w]!.data[i] as number,
    (value) => value,
  );
  for (const [c, value] of inputs.power().entries()) expect(value).toBeCloseTo(squares[c * columns + c]! / total, 4);
  expect([inputs.drift(), inputs.floatInputs(), inputs.tokens]).toEqual([null, null, total]);
});

it("joins rows of windows in chunks and splits them again", () => {
  const chunks = inChunks(x);
  expect(chunks.length).toBe(2);
  expect(chunks.flat()).toEqual(x);
  for (const chunk of chunks) {
    const whole = joinRows(chunk);
    const parts = splitRows(whole, chunk);
    expect(parts).toEqual(chunk);
    // What was split lies one after the other, and is joined without a copy.
    expect(joinRows(parts).data.buffer).toBe(whole.data.buffer);
  }
});
