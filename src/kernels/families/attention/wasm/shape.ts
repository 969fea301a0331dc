/** What attention code is specialised to, what it is told when it runs, and how a call's work is split. */
import { ArgumentBlock, type FieldsOf } from "../../../wasm/kernel-code.ts";

/** Queries that are answered together: of one head of keys. */
type GroupQueries = 1 | 2 | 4;

export interface AttentionShape {
  /** Queries of a group in runs of one row, and whether there may be longer ones, whose groups are of four. */
  readonly single: GroupQueries;
  readonly hasLonger: boolean;
  /** Whether queries of several rows are in a group. */
  readonly isMixed: boolean;
  /** Multiplies and adds in one instruction. */
  readonly isRelaxed: boolean;
  readonly cache: "f32" | "f16" | "int8";
  readonly hasWindow: boolean;
  readonly hasSoftcap: boolean;
  readonly hasSinks: boolean;
}

/** The code for groups of so many queries. */
export interface GroupShape extends AttentionShape {
  readonly queries: GroupQueries;
}

export const attentionBlock = new ArgumentBlock({
  /** float32 [rows, heads, headDim]; rotated ones are in scratch. */
  q: "ptr",
  k: "ptr",
  v: "ptr",
  /** float32 [rows, heads + 2 kvHeads, headDim] and [rows, 2, half], where they are rotated first. */
  qkv: "ptr",
  angles: "ptr",
  y: "ptr",
  /** float32 [heads] */
  sinks: "ptr",
  /** The runs of rows, and the 64-bit addresses of pages [slots, pagesMax]. */
  runs: "ptr",
  pages: "ptr",
  /** Where the parts of the layer begin in a page. */
  keyOffset: "ptr",
  valueOffset: "ptr",
  keyScaleOffset: "ptr",
  valueScaleOffset: "ptr",
  /** The same of full pages of int4; `pages` are those in f16 then. */
  fullPages: "ptr",
  fullKeyOffset: "ptr",
  fullValueOffset: "ptr",
  /** Position of the first row, in calls over a cache without pages. */
  position: "ptr",
  /** What each thread keeps while it works on an item. */
  scratch: "ptr",
  threadBytes: "ptr",
  /** States of chunks that wait for each other: [kvHeads, slotGroups, slotChunks]. */
  slots: "ptr",
  slotBytes: "ptr",
  slotGroups: "i32",
  slotChunks: "i32",
  rows: "i32",
  kvHeads: "i32",
  /** Heads of queries for each head of keys. */
  ratio: "i32",
  headDim: "i32",
  half: "i32",
  pagePositions: "i32",
  pagesMax: "i32",
  window: "i32",
  /** How short runs become items: by spans of heads of keys, or by parts of the positions (1: never). */
  spanHeads: "i32",
  headSpans: "i32",
  parts: "i32",
  /** Runs that are enough for all threads: each is an item then. */
  manyRuns: "i32",
  /** Tiles of the phase that attends; each takes every so many items. */
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

/** Runs of up to so many rows are short: an item is all queries of some heads, or of all over a part of the positions. */
export const SHORT_ROWS = 4;
/** Groups of an item of a longer run, of one head: what they keep fits the first-level cache. */
export const SPAN_GROUPS = 8;
/** Items of many rows are dealt out to so many tiles. */
const TILES_PER_THREAD = 8;

/** Positions that are worked on before the next ones are: as many rows of a cache fit the first-level cache together. */
export const BLOCK = 16;
/**
 * Positions whose results are summed apart and then added to those before them: they begin at multiples of this, and
 * blocks at multiples of theirs, so that sums are the same for any split of the work.
 */
export const CHUNK = 256;

/** Bytes of a vector. */
export const VECTOR = 16;
/** A group's weights of a block, then the factor of its earlier sums. */
export const WEIGHTS = VECTOR * (BLOCK + 1);
export const FACTOR = VECTOR * BLOCK;
/** What has been seen so far: largest scores, totals, then sums of weighted values. */
export const STATE = { largest: 0, totals: 16, sums: 32 } as const;
/**
 * What a group keeps: first and last positions and queries, as long as a state; then the state of all chunks so far and
 * that of the chunk.
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

/** How a call's work is split, and the bytes that it needs; the same for all calls with more rows than short runs have. */
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
