/**
 * Quantizes floats in blocks of 256 with two levels of scales, as ggml's K-quants: a binary16 number for the block, times an
 * integer for each group. Chosen by weighted least squares; errors of large weights count more. Knows no byte layout.
 */
import { f16Table, f32ToF16 } from "../half.ts";
import { roundHalfEven } from "../rounding.ts";

const { abs, fround, max, min, sqrt } = Math;

/** Weights of a block. */
export const SUPER_BLOCK = 256;
/** Grids that are tried for each group. */
const TRIALS = 24;
/** Iterations of choosing the block's scale and minimum for the integers, and the integers for these. */
const REFINEMENTS = 3;

/** Number of groups of a block, and ranges of the integers. */
export interface SuperBlockForm {
  readonly groupSize: 16 | 32;
  /** Bits of an integer. */
  readonly bits: number;
  /** Whether weights are scale * q - minimum with q from 0 on; else scale * q with signed q. */
  readonly hasMinima: boolean;
  /** Least and largest integer that scales of groups are stored as; minima have the same. */
  readonly low: number;
  readonly high: number;
}

/** One block: weight i of group g is d * scales[g] * q[i] - dmin * minima[g]. */
export interface SuperBlock {
  /** Exact in binary16. */
  d: number;
  dmin: number;
  readonly scales: Int8Array;
  readonly minima: Int8Array;
  readonly q: Int8Array;
}

const half = (value: number) => f16Table()[f32ToF16(fround(value))]!;

/** Quantizes block after block with one set of arrays. */
export class SuperBlockQuantizer {
  readonly #form: SuperBlockForm;
  readonly #block: SuperBlock;
  readonly #importance = new Float64Array(SUPER_BLOCK);
  readonly #scales: Float64Array;
  readonly #minima: Float64Array;
  readonly #least: number;
  readonly #most: number;
  /** Integers of the block before a refinement, restored if that is worse. */
  readonly #kept: Int8Array;

  constructor(form: SuperBlockForm) {
    const groups = SUPER_BLOCK / form.groupSize;
    this.#form = form;
    this.#scales = new Float64Array(groups);
    this.#minima = new Float64Array(groups);
    this.#least = form.hasMinima ? 0 : -(2 ** (form.bits - 1));
    this.#most = this.#least + 2 ** form.bits - 1;
    this.#kept = new Int8Array(SUPER_BLOCK);
    this.#block = {
      ...{ d: 0, dmin: 0, q: new Int8Array(SUPER_BLOCK) },
      scales: new Int8Array(groups),
      minima: new Int8Array(groups),
    };
  }

  /** The block of values `start` to `start` + 256; it is the same object for each call. Values are finite. */
  quantize(values: Float32Array, start: number): SuperBlock {
    const x = values.subarray(start, start + SUPER_BLOCK);
    this.#weigh(x);
    for (let group = 0; group < this.#scales.length; group++)
      if (this.#form.hasMinima) this.#fitRange(x, group);
      else this.#fitSymmetric(x, group);
    this.#storeScales();
    this.#round(x);
    this.#refine(x);
    return this.#block;
  }

  /** Sets the importance of errors, from a weight's magnitude and the typical one of its group. */
  #weigh(x: Float32Array): void {
    const { groupSize } = this.#form;
    for (let first = 0; first < SUPER_BLOCK; first += groupSize) {
      let sum = 0;
      for (let i = first; i < first + groupSize; i++) sum += x[i]! * x[i]!;
      const typical = sqrt(sum / groupSize);
      for (let i = first; i < first + groupSize; i++) this.#importance[i] = typical + abs(x[i]!);
    }
  }

  /** Scale and minimum of a group: of grids around its range, the one with the least error after a least-squares fit. */
  #fitRange(x: Float32Array, group: number): void {
    const { groupSize } = this.#form;
    const [first, end] = [group * groupSize, (group + 1) * groupSize];
    let [low, high] = [0, Number.NEGATIVE_INFINITY];
    for (let i = first; i < end; i++) {
      low = min(low, x[i]!);
      high = max(high, x[i]!);
    }
    let [scale, minimum] = [max(0, high - low) / this.#most, -low];
    let least = this.#rangeError(x, first, end, scale, minimum);
    for (let trial = 0; trial < TRIALS && high > low; trial++) {
      const tried = (high - low) / (this.#most - 1 + (4 * trial) / TRIALS);
      const fitted = this.#fitLine(x, first, end, tried, low);
      if (!fitted) continue;
      const error = this.#rangeError(x, first, end, fitted.scale, fitted.minimum);
      if (error < least) [least, scale, minimum] = [error, fitted.scale, fitted.minimum];
    }
    this.#scales[group] = scale;
    this.#minima[group] = minimum;
  }

  /** The line through the integers of a grid that fits best, with no minimum above 0; null for one that falls. */
  #fitLine(x: Float32Array, first: number, end: number, tried: number, low: number) {
    let [sumW, sumQ, sumQQ, sumX, sumQX] = [0, 0, 0, 0, 0];
    for (let i = first; i < end; i++) {
      const w = this.#importance[i]!;
      const q = max(0, min(this.#most, roundHalfEven((x[i]! - low) / tried)));
      sumW += w;
      sumQ += w * q;
      sumQQ += w * q * q;
      sumX += w * x[i]!;
      sumQX += w * q * x[i]!;
    }
    const determinant = sumW * sumQQ - sumQ * sumQ;
    if (!(determinant > 0)) return null;
    const scale = (sumW * sumQX - sumQ * sumX) / determinant;
    const minimum = (sumQ * sumQX - sumQQ * sumX) / determinant;
    const fitted = minimum >= 0 ? { scale, minimum } : { scale: sumQX / sumQQ, minimum: 0 };
    return fitted.scale > 0 ? fitted : null;
  }

  #rangeError(x: Float32Array, first: number, end: number, scale: number, minimum: number): number {
    let error = 0;
    for (let i = first; i < end; i++) {
      const q = scale > 0 ? max(0, min(this.#most, roundHalfEven((x[i]! + minimum) / scale))) : 0;
      const difference = scale * q - minimum - x[i]!;
      error += this.#importance[i]! * difference * difference;
    }
    return error;
  }

  /** Scale of a group without minimum, which may be negative, so that the lowest integer serves the longer tail. */
  #fitSymmetric(x: Float32Array, group: number): void {
    const { groupSize } = this.#form;
    const [first, end] = [group * groupSize, (group + 1) * groupSize];
    let peak = 0;
    for (let i = first; i < end; i++) if (abs(x[i]!) > abs(peak)) peak = x[i]!;
    this.#scales[group] = 0;
    if (peak === 0) return;
    let best = Number.NEGATIVE_INFINITY;
    for (let trial = 0; trial < TRIALS; trial++) {
      const inverse = (this.#least + 2 - (4 * trial) / TRIALS) / peak;
      let [sumQX, sumQQ] = [0, 0];
      for (let i = first; i < end; i++) {
        const q = max(this.#least, min(this.#most, roundHalfEven(x[i]! * inverse)));
        sumQX += this.#importance[i]! * q * x[i]!;
        sumQQ += this.#importance[i]! * q * q;
      }
      // The error is what this lacks of the sum of squares.
      if (sumQQ > 0 && (sumQX * sumQX) / sumQQ > best) {
        best = (sumQX * sumQX) / sumQQ;
        this.#scales[group] = sumQX / sumQQ;
      }
    }
  }

  /** Scales and minima as integers of the largest one. */
  #storeScales(): void {
    const { low, high, hasMinima } = this.#form;
    const block = this.#block;
    let peak = 0;
    for (const scale of this.#scales) if (abs(scale) > abs(peak)) peak = scale;
    block.d = half(peak / (low < 0 ? low : high));
    block.dmin = hasMinima ? half(this.#minima.reduce((most, value) => max(most, value), 0) / high) : 0;
    for (let group = 0; group < this.#scales.length; group++) {
      const stored = (value: number, by: number) => (by === 0 ? 0 : max(low, min(high, roundHalfEven(value / by))));
      block.scales[group] = stored(this.#scales[group]!, block.d);
      block.minima[group] = stored(this.#minima[group]!, block.dmin);
    }
  }

  /** The integers nearest to the values, with the scales as they are stored. */
  #round(x: Float32Array): void {
    const { groupSize } = this.#form;
    const { d, dmin, scales, minima, q } = this.#block;
    for (let group = 0, i = 0; group < scales.length; group++) {
      const scale = fround(d * scales[group]!);
      const minimum = fround(dmin * minima[group]!);
      for (let end = i + groupSize; i < end; i++)
        q[i] = scale === 0 ? 0 : max(this.#least, min(this.#most, roundHalfEven((x[i]! + minimum) / scale)));
    }
  }

  #error(x: Float32Array): number {
    const { groupSize } = this.#form;
    const { d, dmin, scales, minima, q } = this.#block;
    let error = 0;
    for (let i = 0; i < SUPER_BLOCK; i++) {
      const group = Math.floor(i / groupSize);
      const difference = d * scales[group]! * q[i]! - dmin * minima[group]! - x[i]!;
      error += this.#importance[i]! * difference * difference;
    }
    return error;
  }

  /** Refits the block's d and dmin to its integers, and the integers to these, as long as that reduces the error. */
  #refine(x: Float32Array): void {
    const block = this.#block;
    let least = this.#error(x);
    for (let turn = 0; turn < REFINEMENTS && least > 0; turn++) {
      const before = { d: block.d, dmin: block.dmin };
      this.#kept.set(block.q);
      if (!this.#fitBlock(x)) return;
      this.#round(x);
      const error = this.#error(x);
      if (error < least) {
        least = error;
        continue;
      }
      Object.assign(block, before);
      block.q.set(this.#kept);
      return;
    }
  }

  /** Sets d and dmin by least squares for the given integers; returns false if the fit is not usable. */
  #fitBlock(x: Float32Array): boolean {
    const { groupSize } = this.#form;
    const block = this.#block;
    let [aa, ab, bb, ax, bx] = [0, 0, 0, 0, 0];
    for (let i = 0; i < SUPER_BLOCK; i++) {
      const group = Math.floor(i / groupSize);
      const w = this.#importance[i]!;
      const a = block.scales[group]! * block.q[i]!;
      const b = -block.minima[group]!;
      aa += w * a * a;
      ab += w * a * b;
      bb += w * b * b;
      ax += w * a * x[i]!;
      bx += w * b * x[i]!;
    }
    const determinant = aa * bb - ab * ab;
    const [d, dmin] =
      determinant > 0 ? [(bb * ax - ab * bx) / determinant, (aa * bx - ab * ax) / determinant] : [ax / aa, block.dmin];
    if (!Number.isFinite(d) || dmin < 0) return false;
    block.d = half(d);
    block.dmin = half(dmin);
    return Number.isFinite(block.d) && Number.isFinite(block.dmin);
  }
}
