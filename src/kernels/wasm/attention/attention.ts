/**
 * Attention over a cache: new keys and values go into it first, then queries are answered in blocks. The queries of one
 * head of keys, of all tokens, are numbered one after the other; a block is four of them, two or one.
 */
import type { AttentionArgs } from "../../arguments.ts";
import type { CpuFeature } from "../../contract.ts";
import { type Body, type Expr, type Local, leave, select, when } from "../assembler/expression.ts";
import { f32, f32x4, float, i32, int } from "../assembler/instructions.ts";
import type { Scope } from "../assembler/module.ts";
import { halvesOfFloats } from "../generate/halves.ts";
import { forLanes, largestLane, storedBytes } from "../generate/lanes.ts";
import { advance, elementAt, forRange } from "../generate/loops.ts";
import { VectorConstants } from "../generate/weight-fields.ts";
import { plainRow, wasmKernel } from "../kernel.ts";
import { type KernelCode, kernelFunction } from "../kernel-code.ts";
import type { BlockContext } from "./block.ts";
import { mergeParts } from "./merge.ts";
import { tileBytes } from "./places.ts";
import { type AttentionFields, type AttentionShape, attentionBlock, attentionKey } from "./shape.ts";
import { attend } from "./tile.ts";

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

/** Where the caches hold the new tokens already: all results are NaN where they cannot. */
const checkCode: KernelCode = {
  key: "attention_check",
  build: () => [
    kernelFunction("attention_check", attentionBlock, (fields, _, scope) =>
      checkPosition(fields, scope.local("i32", "first"), fillNaN(fields, scope)),
    ),
  ],
};

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

/** Code of a tile that begins with the check of its place. */
function tileCode(key: string, shape: AttentionShape, build: (context: BlockContext) => Body): KernelCode {
  return {
    key,
    build: () => [
      kernelFunction(key, attentionBlock, (fields, { tile, thread }, scope) => {
        const first = scope.local("i32", "first");
        return [checkPosition(fields, first), build({ shape, fields, scope, first, tile, thread })];
      }),
    ],
  };
}

const attendCode = (shape: AttentionShape) => tileCode(attentionKey(shape), shape, attend);
const mergeCode = (shape: AttentionShape) => tileCode(`${attentionKey(shape)}_merge`, shape, mergeParts);

/** Tokens up to which parts of the positions are tiles. */
const FEW_TOKENS = 4;
/** Blocks of queries of a tile otherwise: what they keep fits the first-level cache. */
const SPAN_GROUPS = 8;

/** Blocks of queries, and how tiles split them and the positions; see `TilePlaces`. */
function splitOf({ tokens, heads, kvHeads }: AttentionArgs, threads: number) {
  const queriesOfHead = (tokens * heads) / kvHeads;
  const queries: AttentionShape["queries"] = queriesOfHead >= 3 ? 4 : queriesOfHead === 2 ? 2 : 1;
  const blocks = Math.ceil(queriesOfHead / queries);
  const split =
    tokens <= FEW_TOKENS
      ? { parts: threads, spans: 1, spanGroups: kvHeads * blocks, spanHeads: kvHeads }
      : { parts: 1, spans: kvHeads * Math.ceil(blocks / SPAN_GROUPS), spanGroups: SPAN_GROUPS, spanHeads: 1 };
  return { queries, blocks, ...split };
}

function scratchBytes(args: AttentionArgs): number {
  const { queries, spanGroups, spanHeads } = splitOf(args, 1);
  return Math.ceil(tileBytes(args.headDim, { groups: spanGroups, heads: spanHeads, queries }) / 64) * 64;
}

const attentionRow = (name: string, needs: readonly CpuFeature[], isRelaxed: boolean) =>
  wasmKernel<AttentionArgs>({
    ...plainRow,
    name,
    needs,
    scratchBytes: (args, threads) => threads * scratchBytes(args),
    step(args, place) {
      const { tokens, heads, kvHeads, headDim, capacity, scale, window, softcap } = args;
      const { queries, blocks, ...split } = splitOf(args, place.threads);
      const shape: AttentionShape = {
        queries,
        isRelaxed,
        cache: cacheType(args),
        hasWindow: window > 0,
        hasSoftcap: softcap > 0,
      };
      const cachePlace = args.k ? place.write : place.read;
      const values = attentionBlock.encode({
        q: place.read(args.q),
        k: args.k ? place.read(args.k) : 0,
        v: args.v ? place.read(args.v) : 0,
        keyCache: cachePlace(args.keyCache),
        valueCache: cachePlace(args.valueCache),
        keyScales: args.keyScales ? place.write(args.keyScales) : 0,
        valueScales: args.valueScales ? place.write(args.valueScales) : 0,
        position: place.read(args.position),
        y: place.write(args.y),
        scratch: place.scratch,
        scratchBytes: scratchBytes(args),
        ...split,
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
          args.k
            ? { code: storeCode(shape), tiles: tokens, args: values }
            : { code: checkCode, tiles: 1, args: values },
          { code: attendCode(shape), tiles: split.parts * split.spans, args: values },
          ...(split.parts === 1 ? [] : [{ code: mergeCode(shape), tiles: blocks * kvHeads, args: values }]),
        ],
      };
    },
  });

function cacheType({ keyCache }: AttentionArgs): AttentionShape["cache"] {
  if (keyCache instanceof Int8Array) return "int8";
  return keyCache instanceof Uint16Array ? "f16" : "f32";
}

export const attentionWasm = attentionRow("attention_f32_1x1x4_wasm_simd", ["simd128"], false);
/** Engines whose relaxed dot products are right have the multiply-add, too. */
export const attentionRelaxedWasm = attentionRow("attention_f32_1x1x4_wasm_relaxed", ["relaxed_dot16"], true);
