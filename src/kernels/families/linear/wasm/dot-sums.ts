/**
 * Integer dot products of four weights of four rows with four activations, by the instructions that engines have:
 *
 * - `relaxed`: one relaxed dot product to 32-bit sums, for int8 activations and weights of 7 bits; 8-bit weights are 2 * high +
 *   low.
 * - `relaxed16`: relaxed dot products to 16-bit sums, widened before they can overflow, for weights of 7 bits only; for engines
 *   where `relaxed` is wrong, or made of several instructions.
 * - `plain`: SIMD128 only. Activations and weights become 16-bit numbers, k = 0, 2 apart from k = 1, 3.
 *
 * All modes give the same integers. Codebooks with levels of 7 bits are multiplied in each mode: as unsigned levels, except
 * that `plain` takes signed ones. Other codebooks are multiplied by `plain` only.
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
 * Byte offsets in a record: the quantized activations of a group, or of a block if blocks have scales. A record has
 * - the values: int8, or in `plain` mode int16 with each four in the order 0, 2, 1, 3;
 * - `seed`, int32: the initial value of integer sums, which corrects for unsigned weights;
 * - `sum` of the values: int32, times the zero point of odd scales if these tell it; or for groups with minima float32, times
 *   the block's scale;
 * - `scale` of the block, float32.
 *
 * Groups of 16 have a record each.
 */
export function recordPlaces(mode: DotMode, { blockLength }: PanelShape): { seed: number; sum: number; scale: number } {
  const seed = blockLength * activationBytes(mode);
  return { seed, sum: seed + 4, scale: seed + 8 };
}

export function recordBytes(mode: DotMode, shape: PanelShape): number {
  const { scale } = recordPlaces(mode, shape);
  return shape.inBlocks ? scale + 4 : scale;
}

/** Number of records of a row of activations for `groups` stored groups of weights. */
export function recordCount({ parts, blocks }: PanelShape, groups: number): number {
  return groups * parts * blocks;
}

/** The bits of 1.5 * 2^23 as float32, whose last bit is worth 1: adding an integer to the bits adds it to the float. */
const FLOAT_BITS = 0x4b400000;
const FLOAT_OF_BITS = 1.5 * 2 ** 23;
/** Largest magnitude of sums that can be read as floats this way. */
const FLOAT_SUM_MAX = 2 ** 22;

/**
 * Offset added to all integer sums so that their bits can be read as floats: subtracting a float is faster than converting an
 * integer. 0 if sums may be too large.
 */
export function seedBits({ bits, groupLength, blockLength, inBlocks, hasZeros, hasLevels }: PanelShape): number {
  const largest = hasZeros ? 256 : hasLevels ? 128 : 2 ** (bits - 1);
  return 128 * largest * (inBlocks ? blockLength : groupLength) < FLOAT_SUM_MAX ? FLOAT_BITS : 0;
}

/** Converts a group's sums to floats, without the offset of `seedBits`. */
export function floatsOfSums(shape: PanelShape, sums: Expr<"v128">, constants: VectorConstants): Expr<"v128"> {
  return seedBits(shape) === 0 ? f32x4.convert_i32x4_s(sums) : f32x4.sub(sums, constants.floats(FLOAT_OF_BITS));
}

/**
 * Whether sums of groups are scaled and added in one instruction. Not those of 8-bit weights, for which GEMV and GEMM use
 * different modes.
 */
export function isFused(mode: DotMode, shape: PanelShape): boolean {
  return mode !== "plain" && factorBits(shape) < 8;
}

/** Bits of levels that can be multiplied in every mode. */
const LEVEL_BITS = 7;

/** Bits of the unsigned factor of an activation: an integer weight, or a level plus an offset. */
export function factorBits({ bits, hasLevels }: PanelShape): number {
  return hasLevels ? LEVEL_BITS : bits;
}

/** Offset of factors: factor = weight + offset. */
export function factorOffset(mode: DotMode, shape: PanelShape): number {
  return shape.hasLevels && mode === "plain" ? 0 : 2 ** (factorBits(shape) - 1);
}

/** Lookup table for fields of a codebook, made of its stored levels. */
export function levelTable(
  mode: DotMode,
  shape: PanelShape,
  levels: Expr<"v128">,
  constants: VectorConstants,
): Expr<"v128"> {
  return mode === "plain" ? levels : i8x16.add(levels, constants.bytes(factorOffset(mode, shape)));
}

/** Number of planes: the vectors as which four weights of four rows are multiplied. */
export function planeCount(mode: DotMode, shape: PanelShape): number {
  return mode === "plain" || factorBits(shape) === 8 ? 2 : 1;
}

/** Byte offset of the activations that a step's plane is multiplied with. */
export function activationOffset(mode: DotMode, step: number, plane: number): number {
  return mode === "plain" ? 8 * step + 4 * plane : 4 * step;
}

/** Planes of a field. The field is used once for each plane; `levels` is the result of `levelTable`. */
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

/** Number of steps that a 16-bit sum holds without overflow: two products each, of |activations| <= 128. */
function exactSteps(largestWeight: number): number {
  return Math.floor(32767 / (2 * 128 * largestWeight));
}

/** Generates integer sums: `count` vectors, each of four rows. */
export class DotSums {
  readonly #mode: DotMode;
  readonly #sums: readonly Local<"v128">[];
  /** Sums of plane 0 if it counts twice (the high bits of 8-bit weights). */
  readonly #high: readonly Local<"v128">[];
  /** 16-bit sums, and the number of steps added to each. */
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

  /** Starts the sums of a group with `seed`. */
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

  /** Widens what 16-bit sums have; needed at the end of a body that a loop repeats. */
  settle(): Body {
    return this.#shortSteps.map((count, i) => (count > 0 ? this.#flush(i) : []));
  }

  /** The sum of a group. */
  total(i: number): Expr<"v128"> {
    if (this.#high.length === 0) return this.#sums[i]!;
    return i32x4.add(this.#sums[i]!, i32x4.shl(this.#high[i]!, int(1)));
  }
}
