/** Loops over arrays of floats, four at a time and then singly, with elements stored as f32, f16, bf16 or int8. */
import {
  type Body,
  type Expr,
  type Local,
  type Statement,
  shuffle,
  shuffle4,
  whileDo,
} from "../assembler/expression.ts";
import { f32, f32x4, i8x16, i16x8, i32, i32x4, int, v128 } from "../assembler/instructions.ts";
import type { Scope } from "../assembler/module.ts";
import { eightHalves, floatsOfHalves } from "./halves.ts";
import { advance } from "./loops.ts";
import type { VectorConstants } from "./weight-fields.ts";

/** Storage type of elements; int8 is converted to and from floats of the same value. */
export type StoredType = "f32" | "f16" | "bf16" | "int8";

/** Bytes of an element, by storage type. */
export const storedBytes: Readonly<Record<StoredType, number>> = { f32: 4, f16: 2, bf16: 2, int8: 1 };

/** Loads and stores four elements or one. When one is loaded, the unused lanes are 0. */
export interface Lanes {
  /** Number of elements: one, or the four of a vector. */
  readonly count: 1 | 4;
  /** Loads elements of a stored type as floats. */
  load(address: Expr<"ptr">, type?: StoredType, offset?: number): Expr<"v128">;
  /** Stores floats as elements of a type. */
  store(address: Expr<"ptr">, value: Expr<"v128">, type?: StoredType): Statement;
}

/** Loads and stores of `count` elements. */
export function lanesOf(count: 1 | 4, constants: VectorConstants): Lanes {
  return {
    count,
    load: (address, type = "f32", offset = 0) => {
      if (type === "int8") return loadBytes(count, address, offset, constants);
      if (type === "f32") return count === 4 ? v128.load(address, offset) : v128.load32_zero(address, offset);
      const words =
        count === 4
          ? v128.load16x4_s(address, offset)
          : i32x4.replace_lane(constants.words(0), i32.load16_s(address, offset), 0);
      return type === "bf16" ? i32x4.shl(words, int(16)) : floatsOfHalves(words, constants);
    },
    store: (address, value, type = "f32") => {
      if (type === "int8") return storeBytes(count, address, value);
      if (type === "f32") return count === 4 ? v128.store(address, value) : v128.store32_lane(address, value, 0);
      if (count === 1) return i32.store16(address, i32x4.extract_lane(value, 0));
      const low = [0, 1, 4, 5, 8, 9, 12, 13];
      return v128.store64_lane(address, shuffle(value, constants.words(0), [...low, ...low]), 0);
    },
  };
}

function loadBytes(count: 1 | 4, address: Expr<"ptr">, offset: number, constants: VectorConstants): Expr<"v128"> {
  const words =
    count === 4
      ? i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(v128.load32_zero(address, offset)))
      : i32x4.replace_lane(constants.words(0), i32.load8_s(address, offset), 0);
  return f32x4.convert_i32x4_s(words);
}

/** Stores floats as int8, rounded half to even. */
function storeBytes(count: 1 | 4, address: Expr<"ptr">, value: Expr<"v128">): Statement {
  const words = i32x4.trunc_sat_f32x4_s(f32x4.nearest(value));
  if (count === 1) return i32.store8(address, i32x4.extract_lane(words, 0));
  const shorts = i16x8.narrow_i32x4_s(words, words);
  return v128.store32_lane(address, i8x16.narrow_i16x8_s(shorts, shorts), 0);
}

export interface Streams {
  readonly scope: Scope;
  readonly constants: VectorConstants;
  readonly count: Expr<"i32">;
  /** Pointers that advance with the elements, and the elements' storage types. */
  readonly pointers: readonly (readonly [Local<"ptr">, StoredType?])[];
}

/** Runs the body for `count` elements, four at a time and then one by one. */
export function forLanes(streams: Streams, body: (lanes: Lanes) => Body): Body {
  const { scope, constants, count, pointers } = streams;
  const left = scope.local("i32", "left");
  const turn = (lanes: Lanes) => [
    body(lanes),
    pointers.map(([pointer, type = "f32"]) => advance(pointer, lanes.count * storedBytes[type])),
    left.set(i32.sub(left, int(lanes.count))),
  ];
  const loop = (lanes: Lanes) => whileDo(i32.ge_u(left, int(lanes.count)), turn(lanes));
  const pairs = () => {
    const { convert, quad, isNeeded } = pairsOfQuads(streams);
    const twice = [turn(quad(0)), turn(quad(1))];
    return isNeeded() ? whileDo(i32.ge_u(left, int(8)), [convert(), twice]) : [];
  };
  return [
    left.set(count),
    pointers.some(([, type]) => type === "f16") ? pairs() : [],
    loop(lanesOf(4, constants)),
    loop(lanesOf(1, constants)),
  ];
}

/** Lanes of two quads at once: the body's f16 loads are collected and converted eight at a time, before the first quad. */
function pairsOfQuads({ scope, constants, pointers }: Streams) {
  const converted = new Map<Expr<"ptr">, readonly Local<"v128">[]>();
  const quads = lanesOf(4, constants);
  const quad = (index: number): Lanes => ({
    ...quads,
    load: (address, type, offset = 0) => {
      if (type !== "f16" || offset > 0 || !pointers.some(([pointer]) => pointer === address))
        return quads.load(address, type, offset);
      if (!converted.has(address)) converted.set(address, scope.localArray("v128", "floats", 2));
      return converted.get(address)![index]!;
    },
  });
  const convert = () =>
    eightHalves(
      { scope, constants },
      [...converted].map(([from, floats]) => ({ from, offset: 0, floats })),
    );
  return { quad, convert, isNeeded: () => converted.size > 0 };
}

/** a * b + c; if relaxed, in one instruction, and the engine chooses whether the product is rounded. */
export function multiplyAdd(isRelaxed: boolean, a: Expr<"v128">, b: Expr<"v128">, c: Expr<"v128">): Expr<"v128"> {
  return isRelaxed ? f32x4.relaxed_madd(a, b, c) : f32x4.add(c, f32x4.mul(a, b));
}

/** The sum of four lanes. */
export function sumOfLanes(value: Local<"v128">): Expr<"f32"> {
  const lane = (i: number) => f32x4.extract_lane(value, i);
  return f32.add(f32.add(lane(0), lane(1)), f32.add(lane(2), lane(3)));
}

/** The largest of four lanes. */
export function largestLane(value: Local<"v128">): Expr<"f32"> {
  const lane = (i: number) => f32x4.extract_lane(value, i);
  return f32.max(f32.max(lane(0), lane(1)), f32.max(lane(2), lane(3)));
}

/** Transposes a 4 x 4 matrix of lanes. */
export function transposed(rows: readonly Expr<"v128">[]): Expr<"v128">[] {
  const [a, b, c, d] = rows as [Expr<"v128">, Expr<"v128">, Expr<"v128">, Expr<"v128">];
  const low = [shuffle4(a, b, [0, 4, 1, 5]), shuffle4(c, d, [0, 4, 1, 5])] as const;
  const high = [shuffle4(a, b, [2, 6, 3, 7]), shuffle4(c, d, [2, 6, 3, 7])] as const;
  return [low, high].flatMap(([x, y]) => [shuffle4(x, y, [0, 1, 4, 5]), shuffle4(x, y, [2, 3, 6, 7])]);
}
