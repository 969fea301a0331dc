/**
 * Integer dot products of four weights of four rows with four activations, in the ways that engines offer:
 *
 * - `relaxed`: one instruction for int8 activations and weights of 7 bits; 8-bit weights are 2 * high + low.
 * - `relaxed16`: to 16-bit sums, widened before they can overflow, and 7 bits only; for engines where the first is wrong, or made
 *   of several instructions.
 * - `plain`: SIMD128 only. Activations and weights become 16-bit numbers, k = 0, 2 apart from k = 1, 3.
 *
 * All give the same integers. Codebooks of levels of 7 bits are multiplied in each way, unsigned but in the plain way; others in
 * the plain way only.
 */
import type { Body, Expr, Local } from "../../../wasm/assembler/expression.ts";
import { f32x4, i8x16, i16x8, i32x4, int, v128 } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import type { PanelShape } from "../../../wasm/generate/packed-panels.ts";
import type { VectorConstants } from "../../../wasm/generate/weight-fields.ts";

export type DotMode = "relaxed" | "relaxed16" | "plain";

/** Bytes of an activation. */
export function activationBytes(mode: DotMode): number {
  return mode === "plain" ? 2 : 1;
}

/**
 * A group of quantized activations in memory, or a block where those have scales: the values, int8, or for the plain way int16
 * in each four in the order 0, 2, 1, 3; then int32 what integer sums start from, so that unsigned weights count as signed, and
 * the sum of the values, as float32 for groups with minima, times the scale of the block; and that scale. Groups of 16 have one
 * each.
 */
export function recordPlaces(mode: DotMode, { blockLength }: PanelShape): { seed: number; sum: number; scale: number } {
  const seed = blockLength * activationBytes(mode);
  return { seed, sum: seed + 4, scale: seed + 8 };
}

export function recordBytes(mode: DotMode, shape: PanelShape): number {
  const { scale } = recordPlaces(mode, shape);
  return shape.inBlocks ? scale + 4 : scale;
}

/** Records of a row of activations that meet so many groups as stored. */
export function recordCount({ parts, blocks }: PanelShape, groups: number): number {
  return groups * parts * blocks;
}

/** The bits of 1.5 * 2^23 as float32, whose last bit counts one: an integer added to them is added to the float. */
const FLOAT_BITS = 0x4b400000;
const FLOAT_OF_BITS = 1.5 * 2 ** 23;
/** What sums may be at most, either way, to be read as floats. */
const FLOAT_SUM_MAX = 2 ** 22;

/**
 * What all integer sums have more than the dot products, so that they can be read as floats: subtracting a float is faster
 * than converting an integer. 0 where sums are too large.
 */
export function seedBits({ bits, groupLength, blockLength, inBlocks, hasZeros, hasLevels }: PanelShape): number {
  const largest = hasZeros ? 256 : hasLevels ? 128 : 2 ** (bits - 1);
  return 128 * largest * (inBlocks ? blockLength : groupLength) < FLOAT_SUM_MAX ? FLOAT_BITS : 0;
}

/** The dot products of a group's sums as floats. */
export function floatsOfSums(shape: PanelShape, sums: Expr<"v128">, constants: VectorConstants): Expr<"v128"> {
  return seedBits(shape) === 0 ? f32x4.convert_i32x4_s(sums) : f32x4.sub(sums, constants.floats(FLOAT_OF_BITS));
}

/**
 * Whether sums of groups are scaled and added in one instruction. Not those of 8-bit weights, which few rows of activations
 * multiply in another way than many.
 */
export function isFused(mode: DotMode, shape: PanelShape): boolean {
  return mode !== "plain" && factorBits(shape) < 8;
}

/** Bits of levels that can be multiplied in every way. */
const LEVEL_BITS = 7;

/** Bits of what activations are multiplied with where that is unsigned: an integer, or a level with an offset. */
export function factorBits({ bits, hasLevels }: PanelShape): number {
  return hasLevels ? LEVEL_BITS : bits;
}

/** What factors have more than weights. */
export function factorOffset(mode: DotMode, shape: PanelShape): number {
  return shape.hasLevels && mode === "plain" ? 0 : 2 ** (factorBits(shape) - 1);
}

/** The table that fields of a codebook are looked up in, from its levels as they are stored. */
export function levelTable(
  mode: DotMode,
  shape: PanelShape,
  levels: Expr<"v128">,
  constants: VectorConstants,
): Expr<"v128"> {
  return mode === "plain" ? levels : i8x16.add(levels, constants.bytes(factorOffset(mode, shape)));
}

/** Vectors that four weights of four rows are multiplied as. */
export function planeCount(mode: DotMode, shape: PanelShape): number {
  return mode === "plain" || factorBits(shape) === 8 ? 2 : 1;
}

/** From a step's activations to those of a plane. */
export function activationOffset(mode: DotMode, step: number, plane: number): number {
  return mode === "plain" ? 8 * step + 4 * plane : 4 * step;
}

/** A field as the planes that are multiplied. The field is used once for each plane; `levels` is as `levelTable` gives it. */
export function planesOf(
  mode: DotMode,
  shape: PanelShape,
  field: Local<"v128">,
  constants: VectorConstants,
  levels: Local<"v128">,
): Expr<"v128">[] {
  if (shape.hasLevels) {
    const level = () => i8x16.swizzle(levels, field);
    if (mode !== "plain") return [level()];
    return [i16x8.shr_s(i16x8.shl(level(), int(8)), int(8)), i16x8.shr_s(level(), int(8))];
  }
  if (mode === "plain") return [v128.and(field, constants.words(0x00ff00ff)), i16x8.shr_u(field, int(8))];
  if (shape.bits < 8) return [field];
  return [v128.and(i16x8.shr_u(field, int(1)), constants.bytes(0x7f)), v128.and(field, constants.bytes(1))];
}

/** Steps of 16-bit sums that cannot overflow: two products each, of |activations| <= 128. */
function exactSteps(largestWeight: number): number {
  return Math.floor(32767 / (2 * 128 * largestWeight));
}

/** Sums of some vectors of four rows. */
export class DotSums {
  readonly #mode: DotMode;
  readonly #sums: readonly Local<"v128">[];
  /** Sums of plane 0 where it counts twice. */
  readonly #high: readonly Local<"v128">[];
  /** 16-bit sums, and the steps in each. */
  readonly #short: readonly Local<"v128">[];
  readonly #shortSteps: number[];
  readonly #exactSteps: number;
  readonly #constants: VectorConstants;

  constructor(scope: Scope, mode: DotMode, shape: PanelShape, count: number, constants: VectorConstants) {
    const bits = factorBits(shape);
    this.#mode = mode;
    this.#constants = constants;
    this.#sums = scope.localArray("v128", "sum", count);
    this.#high = mode === "relaxed" && bits === 8 ? scope.localArray("v128", "high", count) : [];
    this.#exactSteps = exactSteps(2 ** Math.min(bits, 7) - 1);
    this.#short = scope.localArray("v128", "short", mode === "relaxed16" ? count : 0);
    this.#shortSteps = this.#short.map(() => 0);
  }

  /** Starts a group with sums of `seed`. */
  begin(i: number, seed: Expr<"v128">): Body {
    const zero = this.#constants.words(0);
    return [this.#sums[i]!.set(seed), ...(this.#high.length > 0 ? [this.#high[i]!.set(zero)] : [])];
  }

  add(i: number, plane: number, weights: Expr<"v128">, x: Expr<"v128">): Body {
    if (this.#mode === "plain") {
      const sum = this.#sums[i]!;
      return [sum.set(i32x4.add(sum, i32x4.dot_i16x8_s(weights, x)))];
    }
    if (this.#mode === "relaxed16") return this.#addShort(i, weights, x);
    const sum = this.#high.length > 0 && plane === 0 ? this.#high[i]! : this.#sums[i]!;
    return [sum.set(i32x4.relaxed_dot_i8x16_i7x16_add_s(x, weights, sum))];
  }

  #addShort(i: number, weights: Expr<"v128">, x: Expr<"v128">): Body {
    const short = this.#short[i]!;
    const dot = i16x8.relaxed_dot_i8x16_i7x16_s(x, weights);
    if (this.#exactSteps === 1) return [this.#widen(i, dot)];
    const steps = ++this.#shortSteps[i]!;
    return [short.set(steps === 1 ? dot : i16x8.add(short, dot)), steps === this.#exactSteps ? this.#flush(i) : []];
  }

  #widen(i: number, short: Expr<"v128">): Body {
    const sum = this.#sums[i]!;
    return [sum.set(i32x4.add(sum, i32x4.extadd_pairwise_i16x8_s(short)))];
  }

  #flush(i: number): Body {
    this.#shortSteps[i] = 0;
    return [this.#widen(i, this.#short[i]!)];
  }

  /** Ends a body that a loop may run again. */
  settle(): Body {
    return this.#shortSteps.map((count, i) => (count > 0 ? this.#flush(i) : []));
  }

  /** The sum of a group. */
  total(i: number): Expr<"v128"> {
    if (this.#high.length === 0) return this.#sums[i]!;
    return i32x4.add(this.#sums[i]!, i32x4.shl(this.#high[i]!, int(1)));
  }
}
