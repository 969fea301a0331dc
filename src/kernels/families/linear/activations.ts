/**
 * Dynamic 8-bit quantization of activations, as all backends must compute it. In blocks: symmetric, with a scale for each block
 * as in llama.cpp's Q8_0; scale = largest magnitude / 127, at least the smallest normal float. By rows: asymmetric with one
 * scale and zero point per row, as TorchAO's int8_asym_per_token: the range includes 0, the scale is at least the smallest
 * normal float, and the zero point is clamped. Rounding is half to even; each step is in float32, without FMA. A row or block
 * without a finite range (NaN, infinity; for rows, also a range above the largest float) has the scale NaN, so that results are
 * NaN.
 */
import { roundHalfEven } from "../../../rounding.ts";

/** Columns of a block, which share an activation scale; fewer at the end of a group of weights. */
export const BLOCK_COLUMNS = 32;

const SMALLEST_NORMAL = 2 ** -126;
const QMIN = -128;
const QMAX = 127;

/** Activations quantized by rows: integers [m, k], scales [m] and zero points [m], with x = (q - zero) * scale. */
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

/** Columns at which the blocks of a row of k values begin, and k at the end. Blocks do not cross groups of weights. */
export function blocksOf({ k, groupSize }: { readonly k: number; readonly groupSize: number }): Int32Array {
  const starts: number[] = [];
  for (let group = 0; group < k; group += groupSize) {
    const end = Math.min(k, group + groupSize);
    for (let start = group; start < end; start += BLOCK_COLUMNS) starts.push(start);
  }
  return Int32Array.from([...starts, k]);
}

/** Activations quantized in blocks: integers [m, k], and scales [m, blocks], with x = q * scale. */
export interface QuantizedBlocks {
  readonly q: Int8Array;
  readonly scales: Float32Array;
}

/** Quantizes rows [m, k] in blocks; `starts` is the result of `blocksOf`. */
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
