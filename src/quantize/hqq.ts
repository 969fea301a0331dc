/** Half-quadratic quantization of the scale alone: the least-squares scale of one group of symmetric integers. */
import { roundHalfEven } from "../rounding.ts";

const { fround, max, min } = Math;

/** Sums run in this many lanes, value i in lane i % SUM_LANES, so that vectors of any width give the same. */
export const SUM_LANES = 16;

/** The sum of the lanes, neighbours at half the distance first; changes them. */
export function laneSum(lanes: Float64Array): number {
  for (let width = SUM_LANES / 2; width >= 1; width /= 2)
    for (let i = 0; i < width; i++) lanes[i]! += lanes[i + width]!;
  return lanes[0]!;
}

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
  const products = new Float64Array(SUM_LANES);
  let scale = start;
  for (let step = 0; step < STEPS_MAX; step++) {
    const inverse = fround(1 / scale);
    products.fill(0);
    let squares = 0;
    for (let i = 0; i < group.length; i++) {
      const w = group[i]!;
      const q = max(qmin, min(qmax, roundHalfEven(fround(w * inverse))));
      products[i % SUM_LANES]! += w * q;
      squares += q * q;
    }
    const next = squares > 0 ? max(fround(laneSum(products) / squares), SMALLEST_SCALE) : scale;
    if (next === scale) break;
    scale = next;
  }
  return scale;
}
