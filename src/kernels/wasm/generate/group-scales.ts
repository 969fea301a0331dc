/** Loads scales and minima of groups with minima or factored scales as float32; layout/panels.ts describes them. */
import { hasFactors } from "../../../quantized.ts";
import { scaleBytes } from "../../layout/panel-geometry.ts";
import { type Body, type Expr, type Local, when, widen } from "../assembler/expression.ts";
import { f32x4, i16x8, i32, i32x4, int, ptr, size, v128 } from "../assembler/instructions.ts";
import type { Scope } from "../assembler/module.ts";
import { floatsOfHalves } from "./halves.ts";
import { lanesOf } from "./lanes.ts";
import { advance } from "./loops.ts";
import type { PanelShape } from "./packed-panels.ts";
import { loadScales, type VectorConstants } from "./weight-fields.ts";

/** Tracks the distance from a group back to its scale factors, while groups are visited in order. */
export class FactorPlaces {
  readonly #shape: PanelShape;
  readonly #back: Local<"ptr">;
  readonly #count: Local<"i32">;

  constructor(scope: Scope, shape: PanelShape) {
    this.#shape = shape;
    this.#back = scope.local("ptr", "factors_back");
    this.#count = scope.local("i32", "groups_of_factor");
  }

  /** Starts before the first group of a panel, which `frontBytes` of factors precede. */
  start(frontBytes: Expr<"ptr">): Body {
    const { scaleType, groupsOfSuper } = this.#shape;
    if (!isFactored(this.#shape)) return [];
    return [this.#back.set(frontBytes), scaleType === "i8" ? this.#count.set(int(groupsOfSuper)) : []];
  }

  /** Advances after a group. */
  next(): Body {
    const { scaleType, groupBytes, groupsOfSuper, superBytes } = this.#shape;
    if (scaleType === "e4m3") return [advance(this.#back, groupBytes)];
    if (scaleType !== "i8") return [];
    return [
      advance(this.#back, groupBytes),
      this.#count.set(i32.sub(this.#count, int(1))),
      when(i32.eqz(this.#count), [advance(this.#back, -superBytes), this.#count.set(int(groupsOfSuper))]),
    ];
  }

  /** Address of the factors of the group at an address. */
  at(group: Expr<"ptr">): Expr<"ptr"> {
    return ptr.sub(group, this.#back);
  }
}

/** A group of a panel: the address of the stored group, and which of its two groups of 16 it is, if any. */
export interface GroupPlace {
  readonly group: Expr<"ptr">;
  readonly part: number;
  readonly factors: FactorPlaces;
}

/** Whether scales are loaded at their true values, rather than too small by a constant factor: see `loadScales`. */
function hasWholeScales(shape: PanelShape): boolean {
  return shape.hasMinima || shape.inBlocks || isFactored(shape);
}

function isFactored({ scaleType }: PanelShape): boolean {
  return hasFactors({ scaleDType: scaleType });
}

/** Converts four e4m3 codes in 32-bit lanes to floats: their bits, shifted, are floats too small by 2^-120. */
function floatsOfE4m3(words: Expr<"v128">, constants: VectorConstants): Expr<"v128"> {
  const bits = v128.and(i32x4.shl(words, int(20)), constants.words(0x87f00000 | 0));
  return f32x4.mul(bits, constants.floats(2 ** 120));
}

/** Loads the scales of a group for a quad of rows. */
export function groupScales(
  shape: PanelShape,
  place: GroupPlace,
  quad: number,
  constants: VectorConstants,
): Expr<"v128"> {
  if (!hasWholeScales(shape)) return loadScales(shape, place.group, quad, constants);
  return numbers(shape, place, { quad, offset: 0, factor: 0 }, constants);
}

/** Offsets of a group for a quad of rows: what is added to its signed integers times `scale`. */
export function groupOffsets(
  shape: PanelShape,
  place: GroupPlace,
  quad: number,
  scale: Expr<"v128">,
  constants: VectorConstants,
): Expr<"v128"> {
  const { minimaOffset: offset, rows, bits } = shape;
  const negated = numbers(shape, place, { quad, offset, factor: 2 * rows }, constants);
  return f32x4.sub(f32x4.mul(scale, constants.floats(2 ** (bits - 1))), negated);
}

function numbers(
  { scaleType, rows }: PanelShape,
  { group, part, factors }: GroupPlace,
  { quad, offset, factor }: { readonly quad: number; readonly offset: number; readonly factor: number },
  constants: VectorConstants,
): Expr<"v128"> {
  const at = offset + scaleBytes[scaleType] * (part * rows + 4 * quad);
  if (scaleType === "f32") return v128.load(group, at);
  if (scaleType === "f16") return floatsOfHalves(v128.load16x4_s(group, at), constants);
  const integers = i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(v128.load32_zero(group, at)));
  if (scaleType === "e4m3")
    return f32x4.mul(floatsOfE4m3(integers, constants), v128.load(factors.at(group), 16 * quad));
  const halves = v128.load16x4_s(factors.at(group), factor + 8 * quad);
  return f32x4.mul(f32x4.convert_i32x4_s(integers), floatsOfHalves(halves, constants));
}

/** Loads a row's scale, or its stored minimum, into the first lane. */
export function rowNumber(
  shape: PanelShape,
  { group, part, factors }: GroupPlace,
  row: Local<"i32">,
  isMinimum: boolean,
  constants: VectorConstants,
): Expr<"v128"> {
  const { scaleType, minimaOffset, rows } = shape;
  const lanes = lanesOf(1, constants);
  const bytes = scaleBytes[scaleType];
  const at = (base: Expr<"ptr">, step: number) => ptr.add(base, ptr.mul(widen(row), size(step)));
  if (scaleType === "e4m3") {
    const word = i32x4.replace_lane(constants.words(0), i32.load8_s(at(group, 1), part * rows), 0);
    return f32x4.mul(floatsOfE4m3(word, constants), lanes.load(at(factors.at(group), 4)));
  }
  const stored = scaleType === "i8" ? "int8" : scaleType;
  const value = lanes.load(at(group, bytes), stored, (isMinimum ? minimaOffset : 0) + bytes * part * rows);
  if (scaleType !== "i8") return value;
  return f32x4.mul(value, lanes.load(at(factors.at(group), 2), "f16", isMinimum ? 2 * rows : 0));
}
