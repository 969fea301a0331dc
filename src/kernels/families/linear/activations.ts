/**
 * Dynamic 8-bit activation quantization: the definition for every backend. In blocks: symmetric, a scale for each block, as
 * llama.cpp's Q8_0 has it; the scale is the largest magnitude / 127, at least the smallest normal float. One scale and zero
 * point a row: TorchAO's Python semantics (int8 asymmetric per token): the range includes 0, the scale is at least the smallest
 * normal float, the zero point is clamped. Rounding is half to even; each step in float32, without FMA. A row or block
 * without a finite range (NaN, infinity; of rows, more than the largest float) has the scale NaN, so that results are NaN.
 */
import { roundHalfEven } from "../../../rounding.ts";

/** Columns that share a scale where activations have one a block: so many neighbours within a group of weights, or fewer. */
export const BLOCK_COLUMNS = 32;

const SMALLEST_NORMAL = 2 ** -126;
const QMIN = -128;
const QMAX = 127;

/** Quantized rows: integers [m, k] and, for each row, scale and zero point with x = (q - zero) * scale. */
export interface QuantizedActivations {
  readonly q: Int8Array;
  readonly scales: Float32Array;
  readonly zeros: Int32Array;
}

export function quantizeActivations(x: Float32Array, m: number, k: number, target: QuantizedActivations): void {
  for (let row = 0; row < m; row++) {
    let min = 0;
    let max = 0;
    for (let c = row * k; c < (row + 1) * k; c++) {
      min = Math.min(min, x[c]!);
      max = Math.max(max, x[c]!);
    }
    const range = Math.fround(max - min);
    const scale = Number.isFinite(range) ? Math.max(Math.fround(range / 255), SMALLEST_NORMAL) : Number.NaN;
    const inverse = Math.fround(1 / scale);
    const zero = Math.min(QMAX, Math.max(QMIN, QMIN - roundHalfEven(Math.fround(min / scale))));
    target.scales[row] = scale;
    target.zeros[row] = zero;
    for (let c = row * k; c < (row + 1) * k; c++) {
      const q = roundHalfEven(Math.fround(x[c]! * inverse)) + zero;
      target.q[c] = Math.max(QMIN, Math.min(QMAX, q));
    }
  }
}

/** Where the blocks of a row of k values begin, and k: they lie within groups of weights. */
export function blocksOf({ k, groupSize }: { readonly k: number; readonly groupSize: number }): Int32Array {
  const starts: number[] = [];
  for (let group = 0; group < k; group += groupSize) {
    const end = Math.min(k, group + groupSize);
    for (let start = group; start < end; start += BLOCK_COLUMNS) starts.push(start);
  }
  return Int32Array.from([...starts, k]);
}

/** Rows in blocks: integers [m, k], and scales [m, blocks] with x = q * scale. */
export interface QuantizedBlocks {
  readonly q: Int8Array;
  readonly scales: Float32Array;
}

/** `starts` as `blocksOf` gives it. */
export function quantizeBlocks(
  x: Float32Array,
  m: number,
  k: number,
  starts: Int32Array,
  target: QuantizedBlocks,
): void {
  const blocks = starts.length - 1;
  for (let row = 0; row < m; row++)
    for (let block = 0; block < blocks; block++) {
      const [first, end] = [row * k + starts[block]!, row * k + starts[block + 1]!];
      let largest = 0;
      for (let c = first; c < end; c++) largest = Math.max(largest, Math.abs(x[c]!));
      const scale = Number.isFinite(largest) ? Math.max(Math.fround(largest / QMAX), SMALLEST_NORMAL) : Number.NaN;
      const inverse = Math.fround(1 / scale);
      target.scales[row * blocks + block] = scale;
      for (let c = first; c < end; c++) target.q[c] = roundHalfEven(Math.fround(x[c]! * inverse));
    }
}
