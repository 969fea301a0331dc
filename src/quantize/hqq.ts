/** Half-quadratic quantization of the scale alone: the least-squares scale of one group of symmetric integers. */
import { roundHalfEven } from "../rounding.ts";

const { fround, max, min } = Math;

/** Where doubles are the whole numbers, so that adding and subtracting it rounds a lesser number, ties to even. */
/** Smallest scale (float32 epsilon) and number of steps, as in TorchAO. */
const SMALLEST_SCALE = 2 ** -23;
const STEPS_MAX = 20;

/** The scale TorchAO's scale-only HQQ starts from: the largest magnitude `peak` becomes the lowest integer. */
export function hqqStart(peak: number, bits: number): number {
  return max(fround(peak / 2 ** (bits - 1)), SMALLEST_SCALE);
}

/**
 * Improves a group's scale by alternating `q = round(w / s)` and `s = Σ(w q) / Σ(q²)`, each of which is optimal for the
 * other, until it stays or 20 steps are done. TorchAO's `_choose_qparams_and_quantize_scale_only_hqq`, except that it
 * stops all groups together where this stops each alone, and divides by s where this multiplies by 1/s.
 */
export function hqqScale(group: Float32Array, bits: number, start: number): number {
  const qmin = -(2 ** (bits - 1));
  const qmax = -qmin - 1;
  let scale = start;
  for (let step = 0; step < STEPS_MAX; step++) {
    const inverse = fround(1 / scale);
    let products = 0;
    let squares = 0;
    for (let i = 0; i < group.length; i++) {
      const w = group[i]!;
      const q = max(qmin, min(qmax, roundHalfEven(fround(w * inverse))));
      products += w * q;
      squares += q * q;
    }
    const next = squares > 0 ? max(fround(products / squares), SMALLEST_SCALE) : scale;
    if (next === scale) break;
    scale = next;
  }
  return scale;
}
