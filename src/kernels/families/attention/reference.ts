/**
 * Reference kernels of attention over a contiguous KV cache and over the pages of several sequences: plain loops, sums in
 * double precision, results rounded to float32.
 */
import { viewOf } from "../../../dtype.ts";
import { InvalidArgumentError } from "../../../errors.ts";
import { f16Table, f32ToF16 } from "../../../half.ts";
import { roundHalfEven } from "../../../rounding.ts";
import { type Kernel, referenceRow } from "../../contract.ts";
import {
  INT4_POSITIONS,
  type KvCacheType,
  type LayerPages,
  type PagedCache,
  partOffsets,
  type Run,
  runsOf,
} from "../../sequence-table.ts";
import type { AttentionArgs, SequenceAttentionArgs } from "./fields.ts";
import { Int4Rows } from "./int4-pages.ts";

export const attentionReference: Kernel<AttentionArgs> = {
  target: "reference",
  layouts: null,
  bits: null,
  needs: [],
  mStep: 1,
  nStep: 1,
  name: "attention_f32_1x1x1_reference",
  scratchBytes: ({ capacity, headDim }) => attendBytes(capacity, headDim),
  bind(args, scratch) {
    const place = attendPlace(scratch, args.capacity, args.headDim);
    const { tokens, heads, kvHeads, headDim, position } = args;
    const query = { ...args, sinks: null };
    const keys = { cache: args.keyCache, scales: null, headDim };
    const values = { cache: args.valueCache, scales: null, headDim };
    return () => {
      const first = Number(position[0]!);
      if (first < 0 || first + tokens > args.capacity)
        throw new InvalidArgumentError(
          `attention: expected positions in 0..${args.capacity - 1} but found ${first} to ${first + tokens - 1}`,
        );
      if (args.k) storeRows(keys, args.k, first * kvHeads);
      if (args.v) storeRows(values, args.v, first * kvHeads);
      const at = (p: number) => ({ keys, values, row: p });
      for (let t = 0; t < tokens; t++)
        for (let head = 0; head < heads; head++) attend(query, { row: t, position: first + t, head }, at, place);
    };
  },
};

export const updateAndAttendReference: Kernel<SequenceAttentionArgs> = {
  ...referenceRow,
  name: "update_and_attend_f32_1x1x1_reference",
  scratchBytes: ({ pages: { cache }, headDim }) => attendBytes(cache.pagesMax * cache.pagePositions, headDim),
  bind(args, scratch) {
    const { rows, heads, kvHeads, headDim, table, y, k, v } = args;
    const { cache, residual = args.pages } = args.pages;
    const { pagePositions, pagesMax } = cache;
    const place = attendPlace(scratch, pagesMax * pagePositions, headDim);
    return () => {
      y.fill(Number.NaN);
      for (const run of runsOf(table, rows)) {
        const pagesAt = pageReader(args.pages, run);
        const rowsAt = residual === args.pages ? pagesAt : pageReader(residual, run);
        const isSamePage = (a: number, b: number) => Math.floor(a / pagePositions) === Math.floor(b / pagePositions);
        const width = kvHeads * headDim;
        for (let i = 0; i < run.rows && k && v; i++) {
          const { keys, values, row } = rowsAt(run.position + i);
          const own = (all: Float32Array) => all.subarray((run.row + i) * width, (run.row + i + 1) * width);
          storeRows(keys as CacheRows, own(k), row * kvHeads);
          storeRows(values as CacheRows, own(v), row * kvHeads);
          if (cache.type === "int4" && row === INT4_POSITIONS - 1) fillPage(rowsAt, pagesAt, run.position + i);
        }
        for (let i = 0; i < run.rows; i++)
          for (let head = 0; head < heads; head++) {
            const last = run.position + i;
            const isNear = (position: number) => position < pagePositions || isSamePage(position, last);
            const at: RowsAt = (position) => (isNear(position) ? rowsAt : pagesAt)(position);
            attend(args, { row: run.row + i, position: last, head }, at, place);
          }
      }
    };
  },
};

/** Finds keys and values of a run's positions in the sequence's pages. */
function pageReader({ cache, offset }: LayerPages, { slot }: Run): RowsAt {
  const pages = new Map<number, ReturnType<typeof layerRows>>();
  const find: RowsAt = (position) => {
    const index = Math.floor(position / cache.pagePositions);
    const parts = pages.get(index) ?? layerRows(cache, cache.page(slot, index).subarray(offset));
    pages.set(index, parts);
    return { ...parts, row: position % cache.pagePositions };
  };
  const found: ReturnType<RowsAt>[] = [];
  return (position) => {
    found[position] ??= find(position);
    return found[position];
  };
}

/** Quantizes the f16 page of a position into its int4 page. */
function fillPage(halves: RowsAt, pages: RowsAt, position: number): void {
  const [from, to] = [halves(position), pages(position)];
  for (const part of ["keys", "values"] as const)
    (to[part] as Int4Rows).fill((from[part] as CacheRows).cache as Uint16Array);
}

const dtypes: Readonly<Record<Exclude<KvCacheType, "int4">, "f32" | "f16" | "i8">> = {
  f32: "f32",
  f16: "f16",
  int8: "i8",
};

/** Keys and values of one layer in one page; `bytes` are the layer's part of the page. */
function layerRows(cache: PagedCache, bytes: Uint8Array): { keys: LayerRows; values: LayerRows } {
  const { type, kvHeads, headDim, pagePositions } = cache;
  const offsets = partOffsets(cache);
  if (type === "int4") {
    const part = (isOfKeys: boolean, at: number, end: number, scalesAt: number, scalesEnd: number) => {
      const scales = new Uint16Array(bytes.buffer, bytes.byteOffset + scalesAt, (scalesEnd - scalesAt) / 2);
      return new Int4Rows({ bytes: bytes.subarray(at, end), scales }, isOfKeys, kvHeads, headDim);
    };
    return {
      keys: part(true, offsets.keys, offsets.values, offsets.keyScales, offsets.valueScales),
      values: part(false, offsets.values, offsets.keyScales, offsets.valueScales, offsets.layerBytes),
    };
  }
  const rows = pagePositions * kvHeads;
  const part = (at: number, scalesAt: number): CacheRows => ({
    cache: viewOf(dtypes[type], bytes.buffer, bytes.byteOffset + at, rows * headDim),
    scales: type === "int8" ? new Float32Array(bytes.buffer, bytes.byteOffset + scalesAt, rows) : null,
    headDim,
  });
  return { keys: part(offsets.keys, offsets.keyScales), values: part(offsets.values, offsets.valueScales) };
}

/** Rows of `headDim` values, with a scale for each row of int8. */
interface CacheRows {
  readonly cache: Float32Array | Uint16Array | Int8Array;
  readonly scales: Float32Array | null;
  readonly headDim: number;
}

type LayerRows = CacheRows | Int4Rows;

/** Stores values as rows, beginning at `row`. */
function storeRows({ cache, scales, headDim }: CacheRows, values: Float32Array, row: number): void {
  if (cache instanceof Float32Array) cache.set(values, row * headDim);
  else if (cache instanceof Uint16Array)
    for (let i = 0; i < values.length; i++) cache[row * headDim + i] = f32ToF16(values[i]!);
  else
    for (let start = 0; start < values.length; start += headDim, row++)
      scales![row] = quantizeRow(values.subarray(start, start + headDim), cache, row * headDim);
}

/** Rows whose largest magnitude is below this become zeros: their inverse scale would not be finite. */
const LARGEST_LEAST = Math.fround(1e-30);

/** Quantizes a row to int8, its largest magnitude to 127; returns the scale. In float32, so that all kernels store the same. */
function quantizeRow(values: Float32Array, target: Int8Array, at: number): number {
  let largest = 0;
  for (const value of values) largest = Math.max(largest, Math.abs(value));
  const isZero = largest < LARGEST_LEAST;
  const inverse = isZero ? 0 : Math.fround(127 / largest);
  for (let i = 0; i < values.length; i++) target[at + i] = roundHalfEven(Math.fround(values[i]! * inverse));
  return isZero ? 0 : Math.fround(largest / 127);
}

/** Reads a row of a head. */
function readRow(rows: LayerRows, row: number, target: Float64Array): void {
  const { length } = target;
  const at = row * length;
  const source = rows instanceof Int4Rows ? rows.read() : rows.cache;
  if (source instanceof Uint16Array) {
    const table = f16Table();
    for (let d = 0; d < length; d++) target[d] = table[source[at + d]!]!;
  } else if (source instanceof Int8Array) {
    const scale = (rows as CacheRows).scales![row]!;
    for (let d = 0; d < length; d++) target[d] = source[at + d]! * scale;
  } else for (let d = 0; d < length; d++) target[d] = source[at + d]!;
}

/** Finds a position's keys and values: the rows [positions, kvHeads] that have them, and the place of the position there. */
type RowsAt = (position: number) => {
  readonly keys: LayerRows;
  readonly values: LayerRows;
  readonly row: number;
};

/** Scratch: scores of all positions, a row of a head, and sums of one head. */
interface AttendPlace {
  readonly scores: Float64Array;
  readonly values: Float64Array;
  readonly sums: Float64Array;
}

function attendBytes(positions: number, headDim: number): number {
  return 8 * (positions + 2 * headDim);
}

function attendPlace({ buffer, byteOffset }: Uint8Array, positions: number, headDim: number): AttendPlace {
  return {
    scores: new Float64Array(buffer, byteOffset, positions),
    values: new Float64Array(buffer, byteOffset + 8 * positions, headDim),
    sums: new Float64Array(buffer, byteOffset + 8 * (positions + headDim), headDim),
  };
}

/** Arguments of a query that both operators have. */
type QueryArgs = Pick<
  SequenceAttentionArgs,
  "q" | "y" | "heads" | "kvHeads" | "headDim" | "scale" | "window" | "softcap" | "sinks"
>;

/** One query of one head: softmax(q . k * scale) . v over the positions it sees. */
function attend(
  { q, y, heads, kvHeads, headDim, scale, window, softcap, sinks }: QueryArgs,
  { row, position: last, head }: { readonly row: number; readonly position: number; readonly head: number },
  at: RowsAt,
  { scores, values, sums }: AttendPlace,
): void {
  const query = (row * heads + head) * headDim;
  const kvHead = Math.floor((head * kvHeads) / heads);
  const first = window > 0 ? Math.max(0, last - window + 1) : 0;
  const sink = sinks ? sinks[head]! : Number.NEGATIVE_INFINITY;
  let max = sink;
  for (let p = first; p <= last; p++) {
    const { keys, row } = at(p);
    readRow(keys, row * kvHeads + kvHead, values);
    let dot = 0;
    for (let d = 0; d < headDim; d++) dot += q[query + d]! * values[d]!;
    const score = softcap > 0 ? softcap * Math.tanh((dot * scale) / softcap) : dot * scale;
    scores[p] = score;
    if (score > max) max = score;
  }
  sums.fill(0);
  let total = Math.exp(sink - max);
  for (let p = first; p <= last; p++) {
    const { values: own, row } = at(p);
    readRow(own, row * kvHeads + kvHead, values);
    const weight = Math.exp(scores[p]! - max);
    total += weight;
    for (let d = 0; d < headDim; d++) sums[d]! += weight * values[d]!;
  }
  for (let d = 0; d < headDim; d++) y[query + d] = sums[d]! / total;
}
