/**
 * Phases before attention: RoPE, where wanted, and storing of keys and values in the KV cache, a tile for each row; and the
 * table of a call over a contiguous cache.
 */
import { type Body, type Expr, type Local, leave, select, when } from "../../../wasm/assembler/expression.ts";
import { f32, f32x4, float, i32, i64, int, long, ptr, size } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { halvesOfFloats } from "../../../wasm/generate/halves.ts";
import { forLanes, largestLane, storedBytes } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, forRange } from "../../../wasm/generate/loops.ts";
import { forRuns } from "../../../wasm/generate/runs.ts";
import { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import { PagePlace } from "./pages.ts";
import { rotateHeads } from "./rope.ts";
import { type AttentionFields, type AttentionShape, attentionBlock } from "./shape.ts";

/** Layout of the table that `runCode` writes: the numbers of one run, then the address of its page. */
export const RUN_TABLE = { page: 24, bytes: 64 } as const;

/** Writes the table of a call over a contiguous cache: one run, or none if its rows do not fit, and a page at address 0. */
export const runCode: KernelCode = {
  key: "attention_run",
  build: () => [
    kernelFunction("attention_run", attentionBlock, ({ position, rows, pagePositions, runs, pages }, _, scope) => {
      const first = scope.local("i32", "first");
      const isPlace = i32.and(i32.le_u(first, i32.sub(pagePositions, rows)), i32.eqz(i32.load(position, 4)));
      return [
        first.set(i32.load(position)),
        i32.store(runs, select(i32.le_u(rows, pagePositions), isPlace, int(0))),
        i32.store(runs, int(0), 4),
        i32.store(runs, rows, 8),
        i32.store(runs, first, 12),
        i32.store(runs, int(0), 16),
        i64.store(pages, long(0n)),
      ];
    }),
  ],
};

/** Stores the keys and values of a row. Rows that belong to no run are not stored. */
export function storeCode(cache: AttentionShape["cache"], isRotated: boolean): KernelCode {
  const key = `attention_store_${cache}${isRotated ? "_rotated" : ""}`;
  return {
    key,
    build: () => [
      kernelFunction(key, attentionBlock, (fields, { tile, thread }, scope) => {
        const storing: Storing = { scope, constants: new VectorConstants(scope), fields, cache };
        const at = new PagePlace(scope);
        const { kvHeads, headDim, keyOffset, valueOffset, keyScaleOffset, valueScaleOffset, k, v } = fields;
        const find = (offset: Local<"ptr">, bytes: Expr<"ptr">) =>
          offset.set(elementAt(ptr.add(at.page, offset), i32.mul(at.place, kvHeads), bytes));
        const width = elementAt(size(0), headDim, storedBytes[cache]);
        const given = [k, v].map((from) => from.set(elementAt(from, i32.mul(tile, i32.mul(kvHeads, headDim)), 4)));
        const [position, slot] = [scope.local("i32", "position"), scope.local("i32", "slot")];
        return [
          storing.constants.prepare,
          findPlace({ scope, fields, position, slot }, at, tile),
          isRotated ? rotateRow(storing, tile, thread) : given,
          [keyOffset, valueOffset].map((offset) => find(offset, width)),
          cache === "int8" ? [keyScaleOffset, valueScaleOffset].map((offset) => find(offset, size(4))) : [],
          storeRow(storing, k, keyOffset, keyScaleOffset),
          storeRow(storing, v, valueOffset, valueScaleOffset),
        ];
      }),
    ],
  };
}

interface Storing {
  readonly scope: Scope;
  readonly constants: VectorConstants;
  readonly fields: AttentionFields;
  readonly cache: AttentionShape["cache"];
}

/** Finds a row's position, slot and page; leaves the function if the row belongs to no run. */
export function findPlace(
  {
    scope,
    fields,
    position,
    slot,
  }: Pick<Storing, "scope" | "fields"> & Readonly<Record<"position" | "slot", Local<"i32">>>,
  at: PagePlace,
  row: Local<"i32">,
): Body {
  const nowhere = int(-1);
  return [
    position.set(nowhere),
    forRuns(scope, fields, (run) => [
      when(i32.lt_u(i32.sub(row, run.first), run.count), [
        position.set(i32.add(run.position, i32.sub(row, run.first))),
        slot.set(run.slot),
      ]),
    ]),
    when(i32.eq(position, nowhere), [leave]),
    at.find(fields, slot, position),
  ];
}

/** Rotates the row's queries into `q`, and its keys into the thread's scratch, to which `k` then points. */
function rotateRow({ scope, constants, fields }: Storing, row: Local<"i32">, thread: Local<"i32">): Body {
  const { qkv, angles, q, k, v, half, headDim, kvHeads, ratio, scratch, threadBytes } = fields;
  const heads = scope.local("i32", "heads");
  const to = scope.local("ptr", "rotated");
  const rotate = (count: Expr<"i32">, y: Local<"ptr">) =>
    rotateHeads({ scope, constants, x: qkv, y, angles, heads: count, headDim, half });
  return [
    heads.set(i32.mul(kvHeads, ratio)),
    qkv.set(elementAt(qkv, i32.mul(row, i32.mul(i32.add(heads, i32.add(kvHeads, kvHeads)), headDim)), 4)),
    angles.set(elementAt(angles, i32.mul(row, half), 8)),
    q.set(elementAt(q, i32.mul(row, i32.mul(heads, headDim)), 4)),
    rotate(heads, q),
    k.set(elementAt(scratch, thread, threadBytes)),
    to.set(k),
    rotate(kvHeads, to),
    v.set(qkv),
  ];
}

/** Stores keys or values of a row in the cache. The pointers advance. */
function storeRow(storing: Storing, from: Local<"ptr">, to: Local<"ptr">, scales: Local<"ptr">): Body {
  const { scope, constants, fields, cache } = storing;
  if (cache === "int8") return quantizeRow(storing, from, to, scales);
  const value = scope.local("v128", "value");
  const { body, halves } = halvesOfFloats(value, scope, constants);
  const count = i32.mul(fields.kvHeads, fields.headDim);
  return forLanes({ scope, constants, count, pointers: [[from], [to, cache]] }, (lanes) => [
    value.set(lanes.load(from)),
    cache === "f16" ? [body, lanes.store(to, halves, "f16")] : lanes.store(to, value),
  ]);
}

/** Heads whose largest magnitude is below this become zeros: their inverse scale would not be finite. */
const LARGEST_LEAST = Math.fround(1e-30);

/** Quantizes the heads of a row to int8, the largest magnitude of each to 127, and stores their scales. */
function quantizeRow(
  { scope, constants, fields }: Storing,
  from: Local<"ptr">,
  to: Local<"ptr">,
  scales: Local<"ptr">,
): Body {
  const at = scope.local("ptr", "at");
  const largest = scope.local("v128", "largest");
  const inverse = scope.local("v128", "inverse");
  const top = scope.local("f32", "top");
  const isZero = f32.lt(top, float(LARGEST_LEAST));
  const lanes = { scope, constants, count: fields.headDim };
  return forRange(scope.local("i32", "head"), int(0), fields.kvHeads, [
    largest.set(constants.words(0)),
    at.set(from),
    forLanes({ ...lanes, pointers: [[at]] }, ({ load }) => [largest.set(f32x4.max(largest, f32x4.abs(load(at))))]),
    top.set(largestLane(largest)),
    inverse.set(f32x4.splat(select(isZero, float(0), f32.div(float(127), top)))),
    f32.store(scales, select(isZero, float(0), f32.div(top, float(127)))),
    forLanes({ ...lanes, pointers: [[from], [to, "int8"]] }, ({ load, store }) => [
      store(to, f32x4.mul(load(from), inverse), "int8"),
    ]),
    advance(scales, 4),
  ]);
}
