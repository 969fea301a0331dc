/** Unpacks vectors of packed weights: fields by shifts and masks, scales to float32, zero points to integers. */

import { fieldTables } from "../../layout/fields.ts";
import { type Body, bytes16, type Expr, floats4, type Local, type Statement, words4 } from "../assembler/expression.ts";
import { f32x4, i16x8, i32x4, int, v128 } from "../assembler/instructions.ts";
import type { Scope } from "../assembler/module.ts";
import type { PanelShape } from "./packed-panels.ts";

/** Vector constants in locals, so that loops do not make them again; `prepare` sets those that were requested. */
export class VectorConstants {
  /** Statements that set the constants, to put at the start of the function. */
  readonly prepare: Statement[] = [];
  readonly #scope: Scope;
  readonly #bytes = new Map<number, Local<"v128">>();
  readonly #words = new Map<number, Local<"v128">>();
  readonly #floats = new Map<number, Local<"v128">>();
  readonly #temporaries = new Map<string, Local<"v128">>();

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  /** A local whose 16 bytes all have this value. */
  bytes(value: number): Local<"v128"> {
    return this.#bytes.get(value) ?? this.#add(this.#bytes, value, `bytes_${value}`, bytes16(value));
  }

  /** A local whose 4 words of 32 bits all have this value. */
  words(value: number): Local<"v128"> {
    const word = value >>> 0;
    return this.#words.get(word) ?? this.#add(this.#words, word, `words_${word}`, words4(word));
  }

  /** A local whose 4 floats all have this value. */
  floats(value: number): Local<"v128"> {
    const name = () => `floats_${String(value).replace(/[^a-z0-9]/gi, "_")}`;
    return this.#floats.get(value) ?? this.#add(this.#floats, value, name(), floats4(value));
  }

  /** A local for use within a statement; equal names give the same local. */
  temporary(name: string): Local<"v128"> {
    const local = this.#temporaries.get(name) ?? this.#scope.local("v128", name);
    this.#temporaries.set(name, local);
    return local;
  }

  #add(known: Map<number, Local<"v128">>, value: number, name: string, vector: Expr<"v128">): Local<"v128"> {
    const local = this.#scope.local("v128", name);
    known.set(value, local);
    this.prepare.push(local.set(vector));
    return local;
  }
}

/** Extracts field `index`, as unsigned bytes, from the vectors of a chunk. */
export function fieldOf(
  bits: number,
  index: number,
  vectors: readonly Local<"v128">[],
  constants: VectorConstants,
): Expr<"v128"> {
  const pieces = fieldTables[bits]!.fields[index]!.map(({ vector, shift, width, at }) => {
    const source = vectors[vector]!;
    if (width === 8) return source;
    const moved =
      shift > at ? i16x8.shr_u(source, int(shift - at)) : shift < at ? i16x8.shl(source, int(at - shift)) : source;
    return v128.and(moved, constants.bytes(((1 << width) - 1) << at));
  });
  return pieces.reduce((all, piece) => v128.or(all, piece));
}

/** 2^112, the difference of the exponent biases of float32 and float16. */
const HALF_SCALE = 2 ** 112;

/**
 * Loads four scales as float32. float16 scales are loaded too small by HALF_SCALE: the caller multiplies sums by it, which also
 * handles subnormal scales.
 */
export function loadScales(
  shape: PanelShape,
  address: Expr<"ptr">,
  quad: number,
  constants: VectorConstants,
): Expr<"v128"> {
  if (!shape.hasHalfScales) return v128.load(address, 16 * quad);
  if (shape.hasPositiveScales) return i32x4.shl(v128.load16x4_u(address, 8 * quad), int(13));
  const moved = i32x4.shl(v128.load16x4_s(address, 8 * quad), int(13));
  return v128.and(moved, constants.words(0x8fffe000));
}

/**
 * Loads four zero points of a group as 32-bit integers. Where integer scales tell them, those of part `part` of a stored group:
 * all bits are set where a scale is odd.
 */
export function loadZeros(shape: PanelShape, group: Expr<"ptr">, part: number, quad: number): Expr<"v128"> {
  const isTold = shape.oddZero !== 0;
  const bytes = v128.load32_zero(group, isTold ? part * shape.rows + 4 * quad : shape.zerosOffset + 4 * quad);
  const integers = i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(bytes));
  return isTold ? i32x4.shr_s(i32x4.shl(integers, int(31)), int(31)) : integers;
}

/** `loadZeros` times the `sum` of a record of activations, which has the zero point of odd scales as a factor. */
export function zeroProducts(shape: PanelShape, zeros: Expr<"v128">, sum: Expr<"v128">): Expr<"v128"> {
  return shape.oddZero === 0 ? i32x4.mul(zeros, sum) : v128.and(zeros, sum);
}

/** sum * HALF_SCALE for float16 scales; sum unchanged otherwise. */
export function unscaleHalves(shape: PanelShape, sum: Expr<"v128">, constants: VectorConstants): Expr<"v128"> {
  return shape.hasHalfScales ? f32x4.mul(sum, constants.floats(HALF_SCALE)) : sum;
}

/** Loads the vectors of a chunk for one quad of rows. */
export function loadChunk(vectors: readonly Local<"v128">[], address: Expr<"ptr">, offset: number, quad: number): Body {
  return vectors.map((vector, v) => vector.set(v128.load(address, offset + 64 * v + 16 * quad)));
}
