/**
 * Dynamic 8-bit activation quantization, one scale and zero point a row: the definition for every backend.
 * TorchAO's Python semantics (int8 asymmetric per token): the range includes 0, the scale is at least the smallest
 * normal float, the zero point is clamped, rounding is half to even; each step in float32, without FMA. A row without a
 * finite range (NaN, infinity, more than the largest float) has the scale NaN, so that its results are NaN.
 */
import { roundHalfEven } from "../../rounding.ts";

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
