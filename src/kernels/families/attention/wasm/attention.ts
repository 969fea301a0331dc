/**
 * Kernels of attention over the pages of several sequences, optionally with RoPE, and over a contiguous KV cache, which is one
 * page of one sequence. New keys and values are stored before queries are computed.
 */

import type { CpuFeature, Kernel } from "../../../contract.ts";
import { type KvCacheType, partOffsets } from "../../../sequence-table.ts";
import { plainRow, type WasmRow, wasmKernel } from "../../../wasm/kernel.ts";
import type { Placement, WasmPhase } from "../../../wasm/kernel-code.ts";
import type { AttentionArgs, RopeSequenceAttentionArgs, SequenceAttentionArgs } from "../fields.ts";
import { int4AttendCode, int4FillCode, int4ThreadBytes } from "./int4.ts";
import { mergeCode } from "./merge.ts";
import { type AttentionShape, type AttentionSizes, attentionBlock, splitOf } from "./shape.ts";
import { RUN_TABLE, runCode, storeCode } from "./store.ts";
import { attendCode } from "./tile.ts";

/** Arguments that all forms of a call have. */
type Common = Pick<SequenceAttentionArgs, "heads" | "kvHeads" | "headDim" | "scale" | "window" | "softcap" | "y">;

/** Queries, with keys and values if these are to be stored; or all three in one matrix, to be rotated first. */
type Given = Pick<SequenceAttentionArgs, "q" | "k" | "v"> | Pick<RopeSequenceAttentionArgs, "qkv" | "angles" | "half">;

type Fields = Readonly<Partial<Record<keyof (typeof attentionBlock)["fields"], number>>>;

/** The KV cache of a call. */
interface Cache {
  readonly type: KvCacheType;
  readonly pagePositions: number;
  readonly pagesMax: number;
  /** Addresses of the cache and its table, to be written if the call `stores`. `table` is scratch for a table of one run. */
  place(place: Placement, stores: boolean, table: number): Fields;
  /** Whether the cache is contiguous, so that the call makes its own table. */
  readonly isAlone: boolean;
}

interface Call {
  readonly rows: number;
  readonly common: Common;
  readonly given: Given;
  readonly cache: Cache;
  readonly sinks: Float32Array | null;
}

const aligned = (bytes: number) => Math.ceil(bytes / 64) * 64;

function sizesOf({ rows, common, cache }: Call): AttentionSizes {
  const { heads, kvHeads, headDim, window } = common;
  return { rows, heads, kvHeads, headDim, window, positions: cache.pagesMax * cache.pagePositions };
}

/** `splitOf` the call; attention over int4 pages is not split and has another size of scratch. */
function splitFor(call: Call, threads: number) {
  const sizes = sizesOf(call);
  const all = splitOf(sizes, threads);
  return call.cache.type === "int4" ? { ...all, threadBytes: int4ThreadBytes(sizes) } : all;
}

/** Offsets in scratch: the table of one run, rotated queries, scratch of each thread, then states of chunks. */
function scratchPlaces(call: Call, threads: number) {
  const { rows, common, given } = call;
  const { threadBytes, slots } = splitFor(call, threads);
  const queries = RUN_TABLE.bytes;
  const own = queries + ("qkv" in given ? aligned(4 * rows * common.heads * common.headDim) : 0);
  const states = own + threads * threadBytes;
  const slotCount = common.kvHeads * slots.slotGroups * slots.slotChunks;
  return { table: 0, queries, own, states, bytes: states + slotCount * slots.slotBytes };
}

function givenFields(given: Given, place: Placement, rotated: number): Fields {
  if ("qkv" in given) {
    const { qkv, angles, half } = given;
    return { qkv: place.read(qkv), angles: place.read(angles), half, q: rotated };
  }
  const { q, k, v } = given;
  return { q: place.read(q), k: k ? place.read(k) : 0, v: v ? place.read(v) : 0 };
}

const noFields = Object.fromEntries(Object.keys(attentionBlock.fields).map((name) => [name, 0])) as Required<Fields>;

function phasesOf(call: Call, isRelaxed: boolean, place: Placement): WasmPhase[] {
  const { rows, common, given, cache, sinks } = call;
  const { kvHeads, headDim, scale, softcap } = common;
  const { single, ratio, split, threadBytes, slots } = splitFor(call, place.threads);
  const places = scratchPlaces(call, place.threads);
  const stores = "qkv" in given || given.k !== null;
  const type = cache.type === "int4" ? "f16" : cache.type;
  const shape: AttentionShape = {
    single,
    hasLonger: rows > 1,
    isMixed: rows > 1 && ratio % 4 > 0,
    isRelaxed,
    cache: type,
    hasWindow: common.window > 0,
    hasSoftcap: softcap > 0,
    hasSinks: sinks !== null,
  };
  const args = attentionBlock.encode({
    ...noFields,
    ...cache.place(place, stores, place.scratch + places.table),
    ...givenFields(given, place, place.scratch + places.queries),
    y: place.write(common.y),
    sinks: sinks ? place.read(sinks) : 0,
    scratch: place.scratch + places.own,
    threadBytes,
    slots: place.scratch + places.states,
    ...slots,
    ...split,
    ...{ rows, kvHeads, ratio, headDim, pagePositions: cache.pagePositions, pagesMax: cache.pagesMax, scale, softcap },
    // A window longer than the cache shows all positions, too; the bound keeps it within 32 bits.
    window: Math.min(common.window, sizesOf(call).positions),
  });
  const storing = stores ? [{ code: storeCode(type, "qkv" in given), tiles: rows, args }] : [];
  if (cache.type === "int4")
    return [
      ...storing,
      ...(stores ? [{ code: int4FillCode, tiles: rows, args }] : []),
      { code: int4AttendCode(shape), tiles: rows * common.heads, args },
    ];
  return [
    ...(cache.isAlone ? [{ code: runCode, tiles: 1, args }] : []),
    ...storing,
    { code: attendCode(shape), tiles: split.tiles, args },
    ...(split.parts > 1 ? [{ code: mergeCode(shape), tiles: split.tiles, args }] : []),
  ];
}

/** A contiguous cache: one page at address 0, so that offsets within the page are addresses. */
function loneCache({ capacity, keyCache, valueCache, position }: AttentionArgs): Cache {
  return {
    type: "f32",
    pagePositions: capacity,
    pagesMax: 1,
    isAlone: true,
    place: ({ read, write }, stores, table) => ({
      keyOffset: stores ? write(keyCache) : read(keyCache),
      valueOffset: stores ? write(valueCache) : read(valueCache),
      position: read(position),
      runs: table,
      pages: table + RUN_TABLE.page,
    }),
  };
}

function pagedCache({ rows, table, pages }: SequenceAttentionArgs | RopeSequenceAttentionArgs): Cache {
  const { cache, offset, residual = pages } = pages;
  const { type, pagePositions, pagesMax } = cache;
  const parts = partOffsets(cache);
  const halves = partOffsets(residual.cache);
  return {
    type,
    pagePositions,
    pagesMax,
    isAlone: false,
    place: (place) => ({
      runs: place.read(table.runs),
      pages: place.pages(residual.cache, table, rows),
      keyOffset: residual.offset + halves.keys,
      valueOffset: residual.offset + halves.values,
      keyScaleOffset: offset + parts.keyScales,
      valueScaleOffset: offset + parts.valueScales,
      ...(type === "int4"
        ? {
            fullPages: place.pages(cache, table, rows),
            fullKeyOffset: offset + parts.keys,
            fullValueOffset: offset + parts.values,
          }
        : {}),
    }),
  };
}

const loneCall = (args: AttentionArgs): Call => ({
  rows: args.tokens,
  common: args,
  given: args,
  cache: loneCache(args),
  sinks: null,
});

const pagedCall = (args: SequenceAttentionArgs | RopeSequenceAttentionArgs): Call => ({
  rows: args.rows,
  common: args,
  given: args,
  cache: pagedCache(args),
  sinks: args.sinks,
});

/** Engines whose relaxed dot products are right have relaxed multiply-add, too. */
const variants = {
  simd: { isRelaxed: false, needs: ["simd128"] },
  relaxed: { isRelaxed: true, needs: ["relaxed_dot16"] },
} as const satisfies Record<string, { isRelaxed: boolean; needs: readonly CpuFeature[] }>;

/* @__NO_SIDE_EFFECTS__ */
function attentionRow<A>(operator: string, variant: keyof typeof variants, callOf: (args: A) => Call): Kernel<A> {
  const { isRelaxed, needs } = variants[variant];
  const row: WasmRow<A> = {
    ...plainRow,
    name: `${operator}_f32_1x1x4_wasm_${variant}`,
    needs,
    scratchBytes: (args, threads) => scratchPlaces(callOf(args), threads).bytes,
    step: (args, place) => ({ phases: phasesOf(callOf(args), isRelaxed, place) }),
  };
  return wasmKernel(row);
}

export const attentionWasm = attentionRow<AttentionArgs>("attention", "simd", loneCall);
export const attentionRelaxedWasm = attentionRow<AttentionArgs>("attention", "relaxed", loneCall);
export const updateAndAttendWasm = attentionRow<SequenceAttentionArgs>("update_and_attend", "simd", pagedCall);
export const updateAndAttendRelaxedWasm = attentionRow<SequenceAttentionArgs>(
  "update_and_attend",
  "relaxed",
  pagedCall,
);
export const ropeUpdateAndAttendWasm = attentionRow<RopeSequenceAttentionArgs>(
  "rope_update_and_attend",
  "simd",
  pagedCall,
);
export const ropeUpdateAndAttendRelaxedWasm = attentionRow<RopeSequenceAttentionArgs>(
  "rope_update_and_attend",
  "relaxed",
  pagedCall,
);
