/**
 * Attention over a cache: new keys and values go into it first, then queries are answered in blocks. The queries of one
 * head of keys, of all tokens, are numbered one after the other; a block is eight or four of them, in the lanes of vectors, or
 * one.
 */
import type { AttentionArgs } from "../arguments.ts";
import type { CpuFeature } from "../contract.ts";
import { type Body, type Expr, type Local, leave, select, when } from "./assembler/expression.ts";
import { f32, f32x4, float, i32, int } from "./assembler/instructions.ts";
import type { Scope } from "./assembler/module.ts";
import { type AttentionFields, type AttentionShape, attentionBlock, attentionKey } from "./attention-shape.ts";
import { attendSingly } from "./attention-single.ts";
import { attendWidely, wideScratch } from "./attention-wide.ts";
import { halvesOfFloats } from "./halves.ts";
import { plainRow, wasmKernel } from "./kernel.ts";
import { type KernelCode, kernelFunction } from "./kernel-code.ts";
import { forLanes, largestLane, storedBytes } from "./lanes.ts";
import { advance, elementAt, forRange } from "./loops.ts";
import { VectorConstants } from "./weight-fields.ts";

/** Leaves when the new tokens do not fit the cache, after `before`. */
function checkPosition({ position, tokens, capacity }: AttentionFields, first: Local<"i32">, before: Body = []): Body {
  const fits = i32.le_u(tokens, capacity);
  const room = i32.sub(capacity, tokens);
  const isPlace = i32.and(i32.le_u(first, room), i32.eqz(i32.load(position, 4)));
  return [first.set(i32.load(position)), when(i32.eqz(select(fits, isPlace, int(0))), [before, leave])];
}

/** Kernels cannot raise errors. */
function fillNaN({ y, tokens, kvHeads, ratio, headDim }: AttentionFields, scope: Scope): Body {
  const count = i32.mul(i32.mul(tokens, i32.mul(kvHeads, ratio)), headDim);
  const fill = [f32.store(y, float(Number.NaN)), advance(y, 4)];
  return forRange(scope.local("i32", "filled"), int(0), count, fill);
}

/** Copies the keys and values of a token into the caches; where they do not fit, all results are NaN. */
function storeCode(shape: AttentionShape): KernelCode {
  const key = `attention_store_${shape.cache}`;
  return {
    key,
    build: () => [
      kernelFunction(key, attentionBlock, (fields, { tile }, scope) => {
        const constants = new VectorConstants(scope);
        const first = scope.local("i32", "first");
        const width = i32.mul(fields.kvHeads, fields.headDim);
        const copy = (from: Local<"ptr">, to: Local<"ptr">) => [
          from.set(elementAt(from, i32.mul(tile, width), 4)),
          to.set(elementAt(to, i32.mul(i32.add(first, tile), width), storedBytes[shape.cache])),
          copyToCache({ scope, constants, shape, count: width }, from, to),
        ];
        return [
          constants.prepare,
          checkPosition(fields, first, [when(i32.eqz(tile), [fillNaN(fields, scope)])]),
          shape.cache === "int8"
            ? [
                quantizeToCache(scope, constants, fields, { first, tile }, "key"),
                quantizeToCache(scope, constants, fields, { first, tile }, "value"),
              ]
            : [copy(fields.k, fields.keyCache), copy(fields.v, fields.valueCache)],
        ];
      }),
    ],
  };
}

interface CopyContext {
  readonly scope: Scope;
  readonly constants: VectorConstants;
  readonly shape: AttentionShape;
  readonly count: Expr<"i32">;
}

function copyToCache({ scope, constants, shape, count }: CopyContext, from: Local<"ptr">, to: Local<"ptr">): Body {
  const value = scope.local("v128", "value");
  const { body, halves } = halvesOfFloats(value, scope, constants);
  const pointers = [[from], [to, shape.cache]] as const;
  return forLanes({ scope, constants, count, pointers }, (lanes) => [
    value.set(lanes.load(from)),
    shape.cache === "f16" ? [body, lanes.store(to, halves, "f16")] : lanes.store(to, value),
  ]);
}

/** Rows smaller than this become zeros: their inverse scale would not be finite. */
const LARGEST_LEAST = Math.fround(1e-30);

/** Writes the rows of a token as integers, the largest value of each ±127, with their scales. */
function quantizeToCache(
  scope: Scope,
  constants: VectorConstants,
  fields: AttentionFields,
  { first, tile }: { readonly first: Local<"i32">; readonly tile: Local<"i32"> },
  kind: "key" | "value",
): Body {
  const from = kind === "key" ? fields.k : fields.v;
  const to = kind === "key" ? fields.keyCache : fields.valueCache;
  const scales = kind === "key" ? fields.keyScales : fields.valueScales;
  const at = scope.local("ptr", "at");
  const row = scope.local("i32", "row");
  const largest = scope.local("v128", "largest");
  const inverse = scope.local("v128", "inverse");
  const top = scope.local("f32", "top");
  const isZero = f32.lt(top, float(LARGEST_LEAST));
  const { kvHeads, headDim } = fields;
  const lanes = { scope, constants, count: headDim };
  return [
    row.set(i32.mul(i32.add(first, tile), kvHeads)),
    from.set(elementAt(from, i32.mul(i32.mul(tile, kvHeads), headDim), 4)),
    to.set(elementAt(to, i32.mul(row, headDim), 1)),
    scales.set(elementAt(scales, row, 4)),
    forRange(scope.local("i32", "head"), int(0), kvHeads, [
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
    ]),
  ];
}

function attendCode(shape: AttentionShape): KernelCode {
  const key = attentionKey(shape);
  return {
    key,
    build: () => [
      kernelFunction(key, attentionBlock, (fields, { tile, thread }, scope) => {
        const first = scope.local("i32", "first");
        const attend = shape.queries === 1 ? attendSingly : attendWidely;
        return [checkPosition(fields, first), attend({ shape, fields, scope, first, tile, thread })];
      }),
    ],
  };
}

/** Eight or four queries where there are about as many; else one at a time. */
function queriesOf({ tokens, heads, kvHeads }: AttentionArgs): AttentionShape["queries"] {
  const queries = (tokens * heads) / kvHeads;
  return queries >= 7 ? 8 : queries >= 3 ? 4 : 1;
}

const attentionRow = (name: string, needs: readonly CpuFeature[], isRelaxed: boolean) =>
  wasmKernel<AttentionArgs>({
    ...plainRow,
    name,
    needs,
    scratchBytes: (args, threads) => threads * threadBytes(args),
    step(args, place) {
      const { tokens, heads, kvHeads, headDim, capacity, scale, window, softcap } = args;
      const queries = queriesOf(args);
      const shape: AttentionShape = {
        queries,
        // One query is multiplied in the plain way.
        isRelaxed: isRelaxed && queries > 1,
        cache: cacheType(args),
        hasWindow: window > 0,
        hasSoftcap: softcap > 0,
      };
      const blocks = Math.ceil((tokens * heads) / kvHeads / queries);
      const values = attentionBlock.encode({
        q: place.read(args.q),
        k: place.read(args.k),
        v: place.read(args.v),
        keyCache: place.write(args.keyCache),
        valueCache: place.write(args.valueCache),
        keyScales: args.keyScales ? place.write(args.keyScales) : 0,
        valueScales: args.valueScales ? place.write(args.valueScales) : 0,
        position: place.read(args.position),
        y: place.write(args.y),
        scores: place.scratch,
        threadBytes: threadBytes(args),
        tokens,
        kvHeads,
        ratio: heads / kvHeads,
        headDim,
        capacity,
        blocks,
        // Longer ones show all, too, and need not fit 32 bits.
        window: Math.min(window, capacity),
        scale,
        softcap,
      });
      return {
        phases: [
          { code: storeCode(shape), tiles: tokens, args: values },
          { code: attendCode(shape), tiles: blocks * kvHeads, args: values },
        ],
      };
    },
  });

function cacheType({ keyCache }: AttentionArgs): AttentionShape["cache"] {
  if (keyCache instanceof Int8Array) return "int8";
  return keyCache instanceof Uint16Array ? "f16" : "f32";
}

function threadBytes(args: AttentionArgs): number {
  const queries = queriesOf(args);
  return Math.ceil((queries === 1 ? 4 * args.capacity : wideScratch(args, queries)) / 64) * 64;
}

export const attentionWasm = attentionRow("attention_f32_1x1x4_wasm_simd", ["simd128"], false);
/** Engines whose relaxed dot products are right have the multiply-add, too. */
export const attentionRelaxedWasm = attentionRow("attention_f32_1x1x4_wasm_relaxed", ["relaxed_dot16"], true);
