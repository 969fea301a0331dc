/** Scale and zero point of one group of weights whose errors do not count alike, and rounding with them. */
import { roundHalfEven } from "../rounding.ts";
import { storedScale } from "./affine.ts";
import { type MappingType, type Scheme, weightSpec } from "./scheme.ts";

const { abs, max, min } = Math;

/** Ranges that are tried, as parts of the range of the weights: the fewer the levels, the more clipping pays. */
const STEPS = 16;
const smallestPart = [0, 0.3, 0.3, 0.5, 0.65, 0.8, 0.9, 0.95, 0.97] as const;
const REFINEMENTS = 2;

/** The grid of one group after `fit`; one object serves group after group. */
export class GroupFit {
  readonly spec: ReturnType<typeof weightSpec>;
  scale = 1;
  zero = 0;
  readonly #mappingType: MappingType;
  readonly #low: number;
  readonly #high: number;

  constructor(n: number, k: number, scheme: Scheme) {
    this.spec = weightSpec(n, k, scheme);
    this.#mappingType = scheme.mappingType;
    this.#low = -(2 ** (scheme.bits - 1));
    this.#high = -this.#low - 1;
  }

  /**
   * Chooses the grid of least sum of importance * error^2 for values start .. end - 1; `importance` begins with that of
   * the first. A scale may be negative: so the lowest integer, which has no counterpart, serves the longer tail.
   */
  fit(values: Float32Array, start: number, end: number, importance: Float32Array): void {
    let low = 0;
    let high = 0;
    for (let i = start; i < end; i++) {
      low = min(low, values[i]!);
      high = max(high, values[i]!);
    }
    this.zero = 0;
    if (this.spec.hasLevels) this.#fitSigns(values, start, end, importance);
    else if (low === high) this.#set(0);
    else if (this.spec.hasZeros) this.#fitRange(values, start, end, importance, low, high);
    else this.#fitSymmetric(values, start, end, importance, low, high);
  }

  /** The integer nearest to a value. */
  round(value: number): number {
    if (this.spec.hasLevels) return value < 0 ? -1 : 0;
    return max(this.#low, min(this.#high, roundHalfEven(value / this.scale) + this.zero));
  }

  /** The value of an integer. */
  value(q: number): number {
    return this.spec.hasLevels ? (q < 0 ? -this.scale : this.scale) : (q - this.zero) * this.scale;
  }

  #set(scale: number): void {
    const stored = storedScale(abs(scale), this.spec.scaleDType);
    this.scale = scale < 0 ? -stored : stored;
  }

  /** Levels -1 and 1: the weighted mean of magnitudes is the least-squares scale. */
  #fitSigns(values: Float32Array, start: number, end: number, importance: Float32Array): void {
    let sum = 0;
    let weight = 0;
    for (let i = start; i < end; i++) {
      sum += importance[i - start]! * abs(values[i]!);
      weight += importance[i - start]!;
    }
    if (sum > 0) this.#set(sum / weight);
    else this.scale = 0;
  }

  #error(values: Float32Array, start: number, end: number, importance: Float32Array): number {
    const { scale, zero } = this;
    const [low, high] = [this.#low - zero, this.#high - zero];
    const inverse = 1 / scale;
    let error = 0;
    for (let i = start; i < end; i++) {
      const difference = values[i]! - scale * max(low, min(high, roundHalfEven(values[i]! * inverse)));
      error += importance[i - start]! * difference * difference;
    }
    return error;
  }

  /** Parts of the range, largest first. */
  #parts(): number[] {
    const smallest = smallestPart[this.spec.bits]!;
    return Array.from({ length: STEPS }, (_, i) => 1 - ((1 - smallest) * i) / (STEPS - 1));
  }

  #fitRange(
    values: Float32Array,
    start: number,
    end: number,
    importance: Float32Array,
    low: number,
    high: number,
  ): void {
    let best = { error: Number.POSITIVE_INFINITY, scale: 0, zero: 0 };
    for (const part of this.#parts()) {
      this.#set((part * (high - low)) / (this.#high - this.#low));
      this.zero = max(this.#low, min(this.#high, this.#low - roundHalfEven((part * low) / this.scale)));
      const error = this.#error(values, start, end, importance);
      if (error < best.error) best = { error, scale: this.scale, zero: this.zero };
    }
    this.scale = best.scale;
    this.zero = best.zero;
  }

  #fitSymmetric(
    values: Float32Array,
    start: number,
    end: number,
    importance: Float32Array,
    low: number,
    high: number,
  ): void {
    let best = { error: Number.POSITIVE_INFINITY, scale: 0 };
    const consider = (scale: number) => {
      this.#set(scale);
      const error = this.#error(values, start, end, importance);
      if (error < best.error) best = { error, scale: this.scale };
    };
    const middle = (this.#high - this.#low) / 2;
    const symmetric = max(-low, high) / middle;
    const unclipped = max(low / this.#low, high / this.#high);
    const whole = this.#mappingType === "symmetric" ? symmetric : unclipped;
    for (const part of this.#parts()) {
      consider(part * whole);
      consider(-part * whole);
    }
    for (let step = 0; step < REFINEMENTS; step++) {
      this.scale = best.scale;
      consider(this.#leastSquares(values, start, end, importance));
    }
    this.scale = best.scale;
  }

  /** The best scale for the integers of the present one. */
  #leastSquares(values: Float32Array, start: number, end: number, importance: Float32Array): number {
    let products = 0;
    let squares = 0;
    for (let i = start; i < end; i++) {
      const q = this.round(values[i]!);
      products += importance[i - start]! * values[i]! * q;
      squares += importance[i - start]! * q * q;
    }
    return squares > 0 && products !== 0 ? products / squares : this.scale;
  }
}
