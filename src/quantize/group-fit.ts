/** Scale and zero point of least squared error for one group of weights, and rounding with them. */
import { f16Table, f32ToF16 } from "../half.ts";
import { SUPER_GROUP } from "../quantized.ts";
import { roundHalfEven } from "../rounding.ts";
import { storedScale } from "./affine.ts";
import { codebooks } from "./codebooks.ts";
import { hasCodebook, type Scheme, weightSpec } from "./scheme.ts";

const { abs, fround, max, min } = Math;

/** Grids that are tried for a group: one in each lane of a vector of floats. Sums over a group have as many lanes. */
const LANES = 16;
const HALF = LANES / 2;
/** Largest magnitude of scales that are integers. */
const INTEGER_MAX = 127;
const HALF_MAX = 65504;
/** The smallest and the largest part of the weights' range that grids cover, by bits. Fewer levels gain more by clipping. */
const PARTS: readonly (readonly [least: number, most: number])[] = [
  [1, 1],
  [0.35, 1.15],
  [0.35, 1.15],
  [0.5, 1.15],
  [0.65, 1.15],
  [0.8, 1.08],
  [0.88, 1.04],
  [0.93, 1.02],
  [0.96, 1.01],
];

/**
 * Parameters of the grids that are tried. Symmetric integers reach one further below 0 than above, so half of the grids have a
 * negative scale, for weights whose longer tail is positive. With zero points, half of the grids have the next higher zero
 * point.
 */
export interface Trials {
  /** Symmetric: 1 / scale for weights whose largest magnitude is 1. With zero points: parts of the weights' range. */
  readonly factors: Float32Array;
  /** Levels of a codebook; null for whole numbers. */
  readonly levels: Int8Array | null;
}

/** The grids that are tried for a scheme. `levels` are those of its codebook. */
export function trialsOf(
  { bits, mappingType }: Pick<Scheme, "bits" | "mappingType">,
  levels: Int8Array | null = hasCodebook(mappingType) ? codebooks[bits]! : null,
): Trials {
  const [least, most] = PARTS[bits]!;
  const end = levels ? levels.reduce((most, level) => max(most, abs(level)), 0) : 2 ** (bits - 1);
  const factors = Float32Array.from({ length: LANES }, (_, lane) => {
    const part = most - ((most - least) * (lane % HALF)) / (HALF - 1);
    if (mappingType === "asymmetric") return part;
    return (lane < HALF ? end : -end) / part;
  });
  return { factors, levels };
}

/** Sums over a group of q * w and q * q, by lanes: the scale of least squared error for integers q is their ratio. */
interface Sums {
  readonly products: Float32Array;
  readonly squares: Float32Array;
}

/** A grid, not rounded to its stored form, and how much it reduces the squared error. */
interface Found {
  readonly scale: number;
  readonly zero: number;
  readonly score: number;
}

/** The best grid of a group, not rounded to its stored form. */
interface Grid {
  readonly scale: number;
  readonly zero: number;
  /** Where zero points tell parities: the best scales without and with the zero point. */
  readonly scales?: readonly [even: number, odd: number];
}

const makeSums = (): Sums => ({ products: new Float32Array(LANES), squares: new Float32Array(LANES) });

/**
 * The grid of one group after `fit`; one object serves group after group. All is computed in float32, in the order of
 * native/families/packing/search_group.h, which gives the same bits.
 */
export class GroupFit {
  readonly spec: ReturnType<typeof weightSpec>;
  scale = 1;
  zero = 0;
  /** Factor of scales that are stored as integers: scale = factor * integer. `fitFactor` chooses it. */
  factor = 1;
  /** The codebook whose entries the integers number; null where integers are levels. */
  readonly levels: Int8Array | null;
  readonly #trials: Trials;
  readonly #lowest: number;
  readonly #highest: number;
  /** Weights divided by their largest magnitude; their importance; importance * weight. */
  #values = new Float32Array(0);
  #importance = new Float32Array(0);
  #products = new Float32Array(0);
  readonly #inverses = new Float32Array(LANES);
  readonly #zeros = new Float32Array(LANES);
  readonly #trialSums = makeSums();
  readonly #laneSums = makeSums();

  /** `levels`: 2^bits ascending levels of a codebook; without them, that of `codebooks` for these bits. */
  constructor(n: number, k: number, scheme: Scheme, levels?: Int8Array | null) {
    this.spec = weightSpec(n, k, scheme);
    this.#trials = trialsOf(scheme, levels ?? undefined);
    this.#lowest = -(2 ** (scheme.bits - 1));
    this.#highest = -this.#lowest - 1;
    this.levels = this.spec.hasLevels ? (levels ?? codebooks[scheme.bits]!) : null;
  }

  /** Columns of a row that share a factor; the columns of a group where scales have no factor. */
  get factorColumns(): number {
    return this.spec.scaleDType === "i8" ? SUPER_GROUP : this.spec.groupSize;
  }

  /**
   * Chooses the factor of the groups of values start .. end - 1, at most `factorColumns` of a row. Does nothing where scales
   * have no factor. Importance is as in `fit`.
   */
  fitFactor(values: Float32Array, start: number, end: number, importance: Float32Array | null): void {
    if (this.spec.scaleDType === "i8") this.#chooseFactor(values, start, end, importance);
  }

  /** Returns the grids of the groups, which the factor was chosen for. */
  #chooseFactor(values: Float32Array, start: number, end: number, importance: Float32Array | null): Grid[] {
    const { groupSize } = this.spec;
    const grids: Grid[] = [];
    let peak = 0;
    for (let first = start; first < end; first += groupSize) {
      const last = min(end, first + groupSize);
      const grid = this.#search(values, first, last, importance?.subarray(first - start, last - start) ?? null);
      peak = max(peak, abs(grid.scale));
      grids.push(grid);
    }
    this.setFactor(peak);
    return grids;
  }

  /** Sets the factor so that scales of magnitudes up to `peak` are integers of 8 bits. */
  setFactor(peak: number): void {
    this.factor = storedFactor(fround(peak / INTEGER_MAX));
  }

  /**
   * Sets scale and zero point of the group of values start .. end - 1, which are finite: those of the grid with the least sum
   * of importance * error^2. `importance` has a number for each value of the group; null where all count alike.
   */
  fit(values: Float32Array, start: number, end: number, importance: Float32Array | null): void {
    this.#set(this.#search(values, start, end, importance), values, start, end, importance);
  }

  /**
   * Fits the groups of values start .. end - 1, at most `factorColumns` of a row, and their factor where scales have one.
   * `take` is called for each group, of values first .. last - 1, when scale and zero point are those of the group.
   */
  fitGroups(
    values: Float32Array,
    start: number,
    end: number,
    importance: Float32Array | null,
    take: (first: number, last: number) => void,
  ): void {
    const { groupSize, scaleDType } = this.spec;
    const grids = scaleDType === "i8" ? this.#chooseFactor(values, start, end, importance) : [];
    for (let first = start, i = 0; first < end; first += groupSize, i++) {
      const last = min(end, first + groupSize);
      const counts = importance?.subarray(first - start, last - start) ?? null;
      this.#set(grids[i] ?? this.#search(values, first, last, counts), values, first, last, counts);
      take(first, last);
    }
  }

  /** The best grid of a group. */
  #search(values: Float32Array, start: number, end: number, importance: Float32Array | null): Grid {
    const peak = this.#read(values, start, end, importance);
    if (this.spec.bits === 1 && !this.spec.hasZeros) return { scale: this.#signScale(end - start, peak), zero: 0 };
    if (peak === 0) return { scale: 0, zero: 0 };
    return this.#searchGrids(end - start, peak);
  }

  /** Rounds a group's grid to its stored form. */
  #set(grid: Grid, values: Float32Array, start: number, end: number, importance: Float32Array | null): void {
    this.zero = grid.zero;
    if (grid.scales) this.#storeShifted(grid.scales, end - start, this.#read(values, start, end, importance));
    else this.store(grid.scale);
  }

  /** Rounds the scale to its stored type. */
  store(scale: number): void {
    const { scaleDType, hasLevels } = this.spec;
    if (scaleDType === "i8") {
      this.scale = this.#wholeScale(scale) * this.factor + 0;
      return;
    }
    const stored = scale === 0 && hasLevels ? 0 : storedScale(abs(scale), scaleDType);
    this.scale = scale < 0 ? -stored : stored;
  }

  /** The nearest integer scale; where zero points tell parities, the nearest of the zero point's. */
  #wholeScale(scale: number): number {
    if (this.factor === 0) {
      this.zero = 0;
      return 0;
    }
    const quotient = fround(scale / this.factor);
    if (this.spec.oddZero === undefined) return max(-INTEGER_MAX, min(INTEGER_MAX, roundHalfEven(quotient)));
    const odd = this.zero === 0 ? 0 : 1;
    const most = INTEGER_MAX - 1 + odd;
    return 2 * roundHalfEven(fround(fround(max(-most, min(most, quotient)) - odd) / 2)) + odd;
  }

  /** The integer that stands for the grid's value nearest to a weight. */
  round(value: number): number {
    const { levels } = this.#trials;
    if (this.spec.bits === 1 && this.spec.hasLevels) return value < 0 ? -1 : 0;
    if (this.scale === 0) return 0;
    const scaled = fround(value * fround(1 / this.scale));
    if (levels) return nearestLevel(levels, scaled, this.zero) + this.#lowest;
    return roundHalfEven(max(this.#lowest - this.zero, min(this.#highest - this.zero, scaled))) + this.zero;
  }

  /** The weight that an integer stands for. */
  value(q: number): number {
    return this.level(q) * this.scale;
  }

  /** The weight that an integer stands for, in units of the scale. */
  level(q: number): number {
    const { levels } = this.#trials;
    if (this.spec.bits === 1 && this.spec.hasLevels) return q < 0 ? -1 : 1;
    return (levels ? levels[q - this.#lowest]! : q) - this.zero;
  }

  /** Prepares a group for the search; returns its largest magnitude. */
  #read(values: Float32Array, start: number, end: number, importance: Float32Array | null): number {
    const count = end - start;
    if (this.#values.length < count) {
      this.#values = new Float32Array(count);
      this.#importance = new Float32Array(count);
      this.#products = new Float32Array(count);
    }
    let peak = 0;
    for (let i = start; i < end; i++) peak = max(peak, abs(values[i]!));
    for (let i = 0; i < count; i++) {
      this.#values[i] = peak > 0 ? values[start + i]! / peak : 0;
      this.#importance[i] = importance ? importance[i]! : 1;
      this.#products[i] = this.#importance[i]! * this.#values[i]!;
    }
    return peak;
  }

  /** Levels -1 and 1: the weighted mean of magnitudes is the least-squares scale. */
  #signScale(count: number, peak: number): number {
    const { products, squares } = this.#laneSums;
    products.fill(0);
    squares.fill(0);
    for (let i = 0; i < count; i++) {
      products[i % LANES]! += abs(this.#products[i]!);
      squares[i % LANES]! += this.#importance[i]!;
    }
    const [product, square] = [sumOf(products), sumOf(squares)];
    const mean = square > 0 ? fround(fround(product / square) * peak) : 0;
    return max(mean, 0);
  }

  #searchGrids(count: number, peak: number): Grid {
    const { hasZeros, oddZero } = this.spec;
    if (hasZeros && oddZero === undefined) this.#tryZeros(count);
    else {
      this.#inverses.set(this.#trials.factors);
      this.#zeros.fill(0);
    }
    const found = this.#best(count);
    const scale = fround(found.scale * peak);
    if (oddZero === undefined) return { scale, zero: found.zero };
    this.#zeros.fill(oddZero);
    const shifted = this.#best(count);
    const scales = [scale, fround(shifted.scale * peak)] as const;
    return shifted.score > found.score ? { scale: scales[1], zero: oddZero, scales } : { scale, zero: 0, scales };
  }

  /**
   * Chooses the stored scale, and with its parity the zero point, that lose least: of the integers next to the best scales
   * without and with the zero point. `peak` is the group's largest magnitude.
   */
  #storeShifted(scales: readonly [number, number], count: number, peak: number): void {
    let best = 0;
    this.scale = 0;
    this.zero = 0;
    if (this.factor === 0 || peak === 0) return;
    for (const odd of [0, 1] as const) {
      const most = INTEGER_MAX - 1 + odd;
      const quotient = fround(scales[odd] / this.factor);
      const below = 2 * Math.floor(fround(fround(max(-most, min(most, quotient)) - odd) / 2)) + odd;
      for (const whole of [below, min(most, below + 2)]) {
        const scale = fround(fround(whole * this.factor) / peak);
        if (scale === 0) continue;
        const zero = odd * this.spec.oddZero!;
        const [product, square] = this.#sumsOf(count, fround(1 / scale), zero);
        const gain = fround(fround(2 * scale * product) - fround(fround(scale * scale) * square));
        if (!(gain > best)) continue;
        best = gain;
        this.scale = whole * this.factor + 0;
        this.zero = zero;
      }
    }
  }

  /** The best grid, after one step of least squares. */
  #best(count: number): Found {
    const { products, squares } = this.#trialSums;
    products.fill(0);
    squares.fill(0);
    for (let i = 0; i < count; i++) {
      const [value, importance, product] = [this.#values[i]!, this.#importance[i]!, this.#products[i]!];
      for (let lane = 0; lane < LANES; lane++) {
        const q = this.#rounded(fround(value * this.#inverses[lane]!), this.#zeros[lane]!);
        products[lane]! += fround(product * q);
        squares[lane]! += fround(fround(importance * q) * q);
      }
    }
    let best = 0;
    for (let lane = 1; lane < LANES; lane++)
      if (score(products[lane]!, squares[lane]!) > score(products[best]!, squares[best]!)) best = lane;
    const score0 = score(products[best]!, squares[best]!);
    let scale = score0 > 0 ? fround(products[best]! / squares[best]!) : fround(1 / this.#inverses[best]!);
    const zero = this.#zeros[best]!;
    const [product, square] = this.#sumsOf(count, fround(1 / scale), zero);
    const score1 = score(product, square);
    if (score1 > score0) scale = fround(product / square);
    return { scale, zero, score: max(score0, score1) };
  }

  /** The sums over the first `count` weights for one grid. */
  #sumsOf(count: number, inverse: number, zero: number): readonly [products: number, squares: number] {
    const { products, squares } = this.#laneSums;
    products.fill(0);
    squares.fill(0);
    for (let i = 0; i < count; i++) {
      const q = this.#rounded(fround(this.#values[i]! * inverse), zero);
      products[i % LANES]! += fround(this.#products[i]! * q);
      squares[i % LANES]! += fround(fround(this.#importance[i]! * q) * q);
    }
    return [sumOf(products), sumOf(squares)];
  }

  /** q - zero nearest to a scaled weight: a level of the codebook, or a whole number whose q has these bits. */
  #rounded(scaled: number, zero: number): number {
    const { levels } = this.#trials;
    if (levels) return levels[nearestLevel(levels, scaled, zero)]! - zero;
    return roundHalfEven(max(this.#lowest - zero, min(this.#highest - zero, scaled)));
  }

  /**
   * Sets the grids with zero points: parts of the range from the least to the largest weight, zero points rounded down and up.
   */
  #tryZeros(count: number): void {
    let low = 0;
    let high = 0;
    for (let i = 0; i < count; i++) {
      low = min(low, this.#values[i]!);
      high = max(high, this.#values[i]!);
    }
    const steps = this.#highest - this.#lowest;
    const step = fround(fround(high - low) / steps);
    for (let lane = 0; lane < LANES; lane++) {
      const part = this.#trials.factors[lane]!;
      const scale = fround(part * step);
      const below = fround(this.#lowest - Math.ceil(fround(fround(part * low) / scale)));
      this.#inverses[lane] = 1 / scale;
      this.#zeros[lane] = max(this.#lowest, min(this.#highest, lane < HALF ? below : below + 1));
    }
  }
}

/** A factor rounded up to binary16, at most its largest finite number: scales / factor must not exceed 127. */
function storedFactor(factor: number): number {
  const bits = f32ToF16(factor);
  const near = f16Table()[bits]!;
  return near >= factor ? min(near, HALF_MAX) : f16Table()[bits + 1]!;
}

/** Index of the level that is nearest to a value when `zero` is subtracted; the lower one of two that are equally near. */
function nearestLevel(levels: Int8Array, value: number, zero: number): number {
  let place = 0;
  while (place + 1 < levels.length && value > (levels[place]! + levels[place + 1]!) / 2 - zero) place++;
  return place;
}

/** How much the best scale for these sums reduces the squared error, which is sum(w * w) for zeros: product^2 / square. */
function score(product: number, square: number): number {
  return square > 0 ? fround(fround(product * product) / square) : 0;
}

/** The sum of the lanes in float32, as vectors add them: lane i and i + 8, then + 4, + 2, + 1. Overwrites the lanes. */
function sumOf(lanes: Float32Array): number {
  for (let width = LANES / 2; width >= 1; width /= 2) for (let i = 0; i < width; i++) lanes[i]! += lanes[i + width]!;
  return lanes[0]!;
}
