/** Attention code: the shape it is specialized for, its arguments, and how a call's work is split. */
import { ArgumentBlock, type FieldsOf } from "../../../wasm/kernel-code.ts";

/** Queries of one KV head that are computed together. */
type GroupQueries = 1 | 2 | 4;

export interface AttentionShape {
  /** Queries of a group in runs of one row. */
  readonly single: GroupQueries;
  /** Whether runs may be longer; their groups have four queries. */
  readonly hasLonger: boolean;
  /** Whether a group may have queries of several rows. */
  readonly isMixed: boolean;
  /** Whether multiply-adds are relaxed (one instruction). */
  readonly isRelaxed: boolean;
  readonly cache: "f32" | "f16" | "int8";
  readonly hasWindow: boolean;
  readonly hasSoftcap: boolean;
  readonly hasSinks: boolean;
}

/** Shape of the code for groups of `queries` queries. */
export interface GroupShape extends AttentionShape {
  readonly queries: GroupQueries;
}

export const attentionBlock = new ArgumentBlock({
  /** float32 [rows, heads, headDim]; in scratch if this call rotates them. */
  q: "ptr",
  k: "ptr",
  v: "ptr",
  /** If the call rotates queries and keys: float32 [rows, heads + 2 kvHeads, headDim] and [rows, 2, half]. */
  qkv: "ptr",
  angles: "ptr",
  y: "ptr",
  /** float32 [heads] */
  sinks: "ptr",
  /** The runs of rows, and the block table: 64-bit addresses of pages [slots, pagesMax]. */
  runs: "ptr",
  pages: "ptr",
  /** Byte offsets of the layer's parts in a page. */
  keyOffset: "ptr",
  valueOffset: "ptr",
  keyScaleOffset: "ptr",
  valueScaleOffset: "ptr",
  /** Block table and offsets of full int4 pages; `pages` then is that of the f16 residual. */
  fullPages: "ptr",
  fullKeyOffset: "ptr",
  fullValueOffset: "ptr",
  /** Position of the first row, in calls over a contiguous cache. */
  position: "ptr",
  /** Scratch of each thread for the item it works on. */
  scratch: "ptr",
  threadBytes: "ptr",
  /** Split-K: states of chunks until they are merged, [kvHeads, slotGroups, slotChunks]. */
  slots: "ptr",
  slotBytes: "ptr",
  slotGroups: "i32",
  slotChunks: "i32",
  rows: "i32",
  kvHeads: "i32",
  /** Query heads for each KV head. */
  ratio: "i32",
  headDim: "i32",
  half: "i32",
  pagePositions: "i32",
  pagesMax: "i32",
  window: "i32",
  /** How short runs are split: by spans of KV heads, or by parts of the positions (split-K; 1: never). */
  spanHeads: "i32",
  headSpans: "i32",
  parts: "i32",
  /** Number of runs from which on each short run is a single item: enough for all threads. */
  manyRuns: "i32",
  /** Tiles of the phase that computes attention; tile t takes items t, t + tiles, ... */
  tiles: "i32",
  scale: "f32",
  softcap: "f32",
});
export type AttentionFields = FieldsOf<typeof attentionBlock>;

export function attentionKey(shape: AttentionShape): string {
  const { single, hasLonger, isMixed, isRelaxed, cache, hasWindow, hasSoftcap, hasSinks } = shape;
  const marks = {
    _longer: hasLonger,
    _mixed: isMixed,
    _relaxed: isRelaxed,
    _window: hasWindow,
    _softcap: hasSoftcap,
    _sinks: hasSinks,
  };
  const names = Object.entries(marks).map(([name, isSo]) => (isSo ? name : ""));
  return `attention_${single}_${cache}${names.join("")}`;
}

/** Longest short run, in rows. Its items are all queries of some heads, or of all heads over a part of the positions. */
export const SHORT_ROWS = 4;
/** Groups, of one head, in an item of a longer run: their kept data fits the L1 cache. */
export const SPAN_GROUPS = 8;
/** Tiles for each thread, in calls with more rows than short runs have. */
const TILES_PER_THREAD = 8;

/** Positions of a block, which are computed together: their keys or values fit the L1 cache. */
export const BLOCK = 16;
/**
 * Positions of a chunk, which has its own softmax state until it is merged into that of the chunks before it. Chunks begin at
 * multiples of CHUNK, and blocks at multiples of BLOCK, so that sums are the same for any split of the work.
 */
export const CHUNK = 256;

/** Bytes of a vector. */
export const VECTOR = 16;
/** Bytes of a group's weights of a block, followed, at FACTOR, by the factor that rescales its earlier sums. */
export const WEIGHTS = VECTOR * (BLOCK + 1);
export const FACTOR = VECTOR * BLOCK;
/** Byte offsets in a softmax state: largest scores, totals of the weights, then sums of weighted values. */
export const STATE = { largest: 0, totals: 16, sums: 32 } as const;
/**
 * Byte offsets in a group's kept data: first and last positions and the queries, which take as much as a state. The state of
 * all chunks so far and that of the current chunk follow.
 */
export const KEPT = { firsts: 0, lasts: 16, queries: 32 } as const;

/** Sizes of a call. */
export interface AttentionSizes {
  readonly rows: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Positions that a sequence can have. */
  readonly positions: number;
  readonly window: number;
}

const stateBytes = (headDim: number, queries: number) => STATE.sums + VECTOR * queries * Math.ceil(headDim / 4);

/**
 * How a call's work is split, and the bytes that it needs. Calls with more rows than short runs have are all split alike.
 */
export function splitOf(sizes: AttentionSizes, threads: number) {
  const { rows, heads, kvHeads, headDim, positions, window } = sizes;
  const ratio = heads / kvHeads;
  const single: GroupQueries = ratio >= 3 ? 4 : ratio === 2 ? 2 : 1;
  const queries = rows > 1 ? 4 : single;
  const spanHeads = Math.ceil(kvHeads / Math.min(kvHeads, threads));
  const headSpans = Math.ceil(kvHeads / spanHeads);
  const isShort = rows <= SHORT_ROWS;
  const parts = isShort ? threads : 1;
  const rowBytes = VECTOR * Math.ceil(headDim / 4);
  const itemBytes = (itemHeads: number, groups: number) =>
    groups * (3 * stateBytes(headDim, queries) + WEIGHTS) + itemHeads * BLOCK * (4 + rowBytes);
  const shortGroups = Math.ceil((Math.min(rows, SHORT_ROWS) * ratio) / queries);
  const bytes = Math.max(
    itemBytes(kvHeads, kvHeads * Math.max(shortGroups, Math.ceil(ratio / single))),
    isShort ? 0 : itemBytes(1, SPAN_GROUPS),
    4 * kvHeads * headDim,
  );
  const seen = window > 0 ? Math.min(positions, window + SHORT_ROWS) : positions;
  return {
    single,
    ratio,
    split: {
      ...{ spanHeads, headSpans, parts, manyRuns: 2 * threads },
      tiles: isShort ? rows * Math.max(headSpans, parts) : TILES_PER_THREAD * threads,
    },
    threadBytes: Math.ceil(bytes / 64) * 64,
    slots: {
      slotBytes: parts > 1 ? stateBytes(headDim, queries) : 0,
      slotGroups: rows * Math.ceil(ratio / single),
      slotChunks: Math.ceil(seen / CHUNK) + 1,
    },
  };
}
