/** Reads rows of embedding tables: floats, or packed linear weights (tied embeddings). A tile is one index. */

import type { Kernel } from "../../../contract.ts";
import { fieldTables } from "../../../layout/fields.ts";
import type { Indices } from "../../../records.ts";
import { type Body, type Expr, type Local, when, widen } from "../../../wasm/assembler/expression.ts";
import {
  f32x4,
  i8x16,
  i16x8,
  i32,
  i32x4,
  i64,
  int,
  long,
  ptr,
  size,
  v128,
} from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { FactorPlaces, rowNumber } from "../../../wasm/generate/group-scales.ts";
import { forLanes, lanesOf, type StoredType, storedBytes } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, forRange, repeat } from "../../../wasm/generate/loops.ts";
import {
  LEVELS_OFFSET,
  PANEL_ROWS,
  type PanelShape,
  panelShape,
  panelSizes,
  shapeKey,
} from "../../../wasm/generate/packed-panels.ts";
import { blockBytes } from "../../../wasm/generate/panel-blocks.ts";
import { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { plainRow, wasmKernel } from "../../../wasm/kernel.ts";
import { ArgumentBlock, type FieldsOf, type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import type { FloatEmbeddingArgs, SharedEmbeddingArgs } from "../fields.ts";

export const indexType = (indices: Indices) => (indices instanceof Int32Array ? "i32" : "i64");

/** Sets `row` to the tile's index, or leaves `isKnown` 0 if there is no such row, whose result is then NaN. */
export function readIndex(
  type: "i32" | "i64",
  {
    indices,
    rows,
    tile,
    row,
    isKnown,
  }: Readonly<Record<"rows" | "tile" | "row" | "isKnown", Local<"i32">>> & {
    indices: Local<"ptr">;
  },
): Body {
  if (type === "i32") return [row.set(i32.load(elementAt(indices, tile, 4))), isKnown.set(i32.lt_u(row, rows))];
  const wide = i64.load(elementAt(indices, tile, 8));
  return [row.set(i32.wrap_i64(wide)), isKnown.set(i32.and(i64.lt_u(wide, long(1n << 31n)), i32.lt_u(row, rows)))];
}

const floatBlock = new ArgumentBlock({ weights: "ptr", indices: "ptr", y: "ptr", rows: "i32", dim: "i32" });

function floatCode(type: StoredType, index: "i32" | "i64"): KernelCode {
  const key = `embedding_${type}_${index}`;
  return {
    key,
    build: () => [
      kernelFunction(key, floatBlock, ({ weights, indices, y, rows, dim }, { tile }, scope) => {
        const constants = new VectorConstants(scope);
        const row = scope.local("i32", "row");
        const isKnown = scope.local("i32", "is_known");
        const streams = { scope, constants, count: dim };
        return [
          constants.prepare,
          readIndex(index, { indices, rows, tile, row, isKnown }),
          y.set(elementAt(y, i32.mul(tile, dim), 4)),
          when(
            isKnown,
            [
              weights.set(elementAt(weights, row, scaled(dim, storedBytes[type]))),
              forLanes({ ...streams, pointers: [[weights, type], [y]] }, (lanes) => [
                lanes.store(y, lanes.load(weights, type)),
              ]),
            ],
            forLanes({ ...streams, pointers: [[y]] }, (lanes) => [lanes.store(y, constants.floats(Number.NaN))]),
          ),
        ];
      }),
    ],
  };
}

/** count * bytes as an address. */
function scaled(count: Expr<"i32">, bytes: number): Expr<"ptr"> {
  return ptr.mul(widen(count), size(bytes));
}

export const embeddingFloatWasm: Kernel<FloatEmbeddingArgs> = wasmKernel<FloatEmbeddingArgs>({
  ...plainRow,
  name: "embedding_f32_1x1x4_wasm_simd",
  step({ rows, dim, weights, indices, y }, place) {
    const values = {
      weights: place.read(weights.data),
      indices: place.read(indices),
      y: place.write(y),
      rows,
      dim,
    };
    const code = floatCode(weights.dtype as StoredType, indexType(indices));
    return { phases: [{ code, tiles: indices.length, args: floatBlock.encode(values) }] };
  },
});

const sharedBlock = new ArgumentBlock({
  panels: "ptr",
  panelBytes: "ptr",
  frontBytes: "ptr",
  levels: "ptr",
  indices: "ptr",
  y: "ptr",
  n: "i32",
  k: "i32",
  groups: "i32",
  first: "i32",
  rows: "i32",
});
type SharedFields = FieldsOf<typeof sharedBlock>;

function sharedCode(shape: PanelShape, index: "i32" | "i64"): KernelCode {
  const key = `shared_embedding_${index}_${shapeKey(shape)}`;
  return {
    key,
    build: () => [
      kernelFunction(key, sharedBlock, (fields, { tile }, scope) => {
        const constants = new VectorConstants(scope);
        const { indices, n, k, y, levels, panels, panelBytes, first, rows } = fields;
        const row = scope.local("i32", "row");
        const isKnown = scope.local("i32", "is_known");
        const table = scope.local("v128", "level_table");
        const at = scope.local("ptr", "at");
        const fill = (value: number) =>
          forLanes({ scope, constants, count: k, pointers: [[y]] }, (lanes) => [
            lanes.store(y, constants.floats(value)),
          ]);
        return [
          constants.prepare,
          shape.hasLevels ? table.set(v128.load(levels)) : [],
          readIndex(index, { indices, rows, tile, row, isKnown }),
          row.set(i32.sub(row, first)),
          y.set(elementAt(y, i32.mul(tile, k), 4)),
          when(
            isKnown,
            [
              when(
                i32.lt_u(row, n),
                [
                  at.set(elementAt(panels, i32.div_u(row, int(shape.rows)), panelBytes)),
                  row.set(i32.rem_u(row, int(shape.rows))),
                  readGroups({ shape, scope, constants, table, row, at }, fields),
                ],
                fill(0),
              ),
            ],
            fill(Number.NaN),
          ),
        ];
      }),
    ],
  };
}

interface RowReader {
  readonly shape: PanelShape;
  readonly scope: Scope;
  readonly constants: VectorConstants;
  readonly table: Local<"v128">;
  /** Row within the panel. */
  readonly row: Local<"i32">;
  /** Address of the row's group. */
  readonly at: Local<"ptr">;
}

function readGroups(reader: RowReader, { y, k, groups, frontBytes }: SharedFields): Body {
  const { shape, scope, constants, row, at } = reader;
  const scale = scope.local("v128", "scale");
  const zero = scope.local("v128", "zero");
  const left = scope.local("i32", "left");
  const count = scope.local("i32", "count");
  const minimum = scope.local("v128", "minimum");
  const factors = new FactorPlaces(scope, shape);
  const number = (part: number, isMinimum: boolean) =>
    f32x4.splat(f32x4.extract_lane(rowNumber(shape, { group: at, part, factors }, row, isMinimum, constants), 0));
  const byteOfRow = (offset: number) => i32.load8_s(ptr.add(at, widen(row)), offset);
  const zeroPoint = (part: number) =>
    shape.oddZero === 0
      ? byteOfRow(shape.zerosOffset)
      : i32.mul(i32.and(byteOfRow(part * shape.rows), int(1)), int(shape.oddZero));
  return [
    left.set(k),
    factors.start(frontBytes),
    repeat(scope.local("i32", "group"), groups, [
      Array.from({ length: shape.parts }, (_, part) => [
        scale.set(number(part, false)),
        shape.hasZeros ? zero.set(i32x4.splat(zeroPoint(part))) : [],
        shape.hasMinima ? minimum.set(f32x4.neg(number(part, true))) : [],
        count.set(int(shape.partSize)),
        when(i32.lt_u(left, count), [count.set(left)]),
        left.set(i32.sub(left, count)),
        readChunks(reader, { y, part, count, scale, zero, minimum }),
      ]),
      advance(at, shape.groupBytes),
      factors.next(),
    ]),
  ];
}

interface GroupReader {
  readonly y: Local<"ptr">;
  /** Index of the group among those that are stored as one. */
  readonly part: number;
  /** Number of weights of the group. */
  readonly count: Local<"i32">;
  readonly scale: Local<"v128">;
  readonly zero: Local<"v128">;
  readonly minimum: Local<"v128">;
}

/** Dequantizes the values of a group, four at a time; the last may be fewer. */
function readChunks(reader: RowReader, { y, part, count, scale, zero, minimum }: GroupReader): Body {
  const { shape, scope, constants, table, row, at } = reader;
  const { vectors, fields } = fieldTables[shape.bits]!;
  const words = scope.localArray("i32", "word", vectors);
  const chunk = scope.local("ptr", "chunk");
  const left = scope.local("i32", "left_of_group");
  const value = scope.local("v128", "value");
  const bytes = scope.local("v128", "bytes");
  const store = (lanes: 1 | 4) => lanesOf(lanes, constants).store(y, value);
  const signed = shape.hasLevels
    ? i8x16.swizzle(table, bytes)
    : i8x16.sub(bytes, constants.bytes(2 ** (shape.bits - 1)));
  const integers = i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(signed));
  const level = shape.hasMinima ? i32x4.add(integers, constants.words(2 ** (shape.bits - 1))) : integers;
  const product = f32x4.mul(f32x4.convert_i32x4_s(shape.hasZeros ? i32x4.sub(level, zero) : level), scale);
  const write = [
    value.set(shape.hasMinima ? f32x4.add(product, minimum) : product),
    when(
      i32.ge_s(left, int(4)),
      [store(4), advance(y, 16)],
      forRange(scope.local("i32", "single"), int(0), left, [
        store(1),
        advance(y, 4),
        value.set({ type: "v128", node: rotate(value) }),
      ]),
    ),
    left.set(i32.sub(left, int(4))),
    when(i32.lt_s(left, int(0)), [left.set(int(0))]),
  ];
  const take = fields.map((_, f) => bytes.set(i32x4.splat(fieldOfWords(shape, f, words))));
  const start = left.set(count);
  const turns = scope.local("i32", "turns");
  const steps = shape.partLength / 4;
  if (shape.rows === PANEL_ROWS) {
    // A run of vectors may contain two groups.
    const isShared = steps < fields.length;
    const before = isShared ? 0 : (part * steps * 64 * vectors) / fields.length;
    return [
      start,
      chunk.set(ptr.add(elementAt(at, row, 4), size(before))),
      repeat(turns, int(isShared ? 1 : steps / fields.length), [
        words.map((word, v) => word.set(i32.load(chunk, shape.vectorsOffset + 64 * v))),
        (isShared ? take.slice(part * steps, (part + 1) * steps) : take).map((set) => [set, write]),
        advance(chunk, 64 * vectors),
      ]),
    ];
  }
  // In panel32, a vector holds four rows of each of several quads, one in each bit field, with the highest bit of each byte
  // flipped.
  const quad = i32.div_u(row, int(4));
  const field = i32.rem_u(quad, int(fields.length));
  return [
    start,
    chunk.set(elementAt(elementAt(at, i32.div_u(quad, int(fields.length)), 16 * vectors), i32.rem_u(row, int(4)), 4)),
    advance(chunk, part * steps * blockBytes(shape)),
    repeat(turns, int(steps), [
      words.map((word, v) => word.set(i32.xor(i32.load(chunk, shape.vectorsOffset + 16 * v), int(0x80808080)))),
      take.map((set, f) => when(i32.eq(field, int(f)), [set])),
      write,
      advance(chunk, blockBytes(shape)),
    ]),
  ];
}

/** Extracts field `f`, four bytes, from a row's words. */
function fieldOfWords({ bits }: PanelShape, f: number, words: readonly Local<"i32">[]): Expr<"i32"> {
  return fieldTables[bits]!.fields[f]!.map(({ vector, shift, width, at }) => {
    const mask = Math.imul(0x01010101, (1 << width) - 1);
    return i32.shl(i32.and(i32.shr_u(words[vector]!, int(shift)), int(mask)), int(at));
  }).reduce((all, piece) => i32.or(all, piece));
}

/** The vector with its 32-bit lanes rotated down by one. */
function rotate(value: Local<"v128">) {
  const lanes = Array.from({ length: 16 }, (_, i) => (i + 4) % 16);
  return { kind: "shuffle", lanes, operands: [value.node, value.node] } as const;
}

export const embeddingSharedWasm: Kernel<SharedEmbeddingArgs> = wasmKernel<SharedEmbeddingArgs>({
  ...plainRow,
  name: "shared_embedding_wx_1x1x4_wasm_simd",
  layouts: ["panel16", "panel32"],
  bits: [1, 2, 3, 4, 5, 6, 7, 8],
  readsMinima: true,
  step({ weights, indices, y, first, rows }, place) {
    const shape = panelShape(weights);
    const { n, k, groups, panelBytes, firstPanel, frontBytes } = panelSizes(weights, shape);
    const packed = place.read(weights.bytes);
    const values = {
      panels: packed + firstPanel,
      levels: packed + LEVELS_OFFSET,
      panelBytes,
      frontBytes,
      indices: place.read(indices),
      y: place.write(y),
      n,
      k,
      groups,
      first,
      rows,
    };
    const code = sharedCode(shape, indexType(indices));
    return { phases: [{ code, tiles: indices.length, args: sharedBlock.encode(values) }] };
  },
});
