/**
 * The sequences of a step as kernels see them: which rows belong to which sequence, and where the pages of its keys and values
 * are. The arrays do not move; they are written before each step, while nothing runs.
 */
import { byteSize, type TypedArray } from "../dtype.ts";

/** Numbers of a run in `SequenceTable.runs`: its first row, its number of rows, the position of its first row, its slot. */
export const RUN_FIELDS = 4;

/**
 * Storage types of the KV cache: int8 has a scale for each row of a head; int4 has a scale and a minimum for each row of values
 * and for each column of a page's keys (Liu et al. 2024, KIVI).
 */
export const kvCacheTypes = ["f32", "f16", "int8", "int4"] as const;
/**
 * Storage type of the KV cache: `f32` as computed, `f16` in half the memory, `int8` in about a quarter, `int4` in about a
 * seventh.
 */
export type KvCacheType = (typeof kvCacheTypes)[number];

/** Sizes of a layer's keys and values, and how many last positions its queries see (0 for all). */
export interface LayerCacheShape {
  /** Key and value heads of the layer. */
  readonly kvHeads: number;
  /** Elements of a head. */
  readonly headDim: number;
  /** Most positions that a query sees; 0 for all. */
  readonly window: number;
}

/** What a program's call stores for each sequence: the keys and values of a layer, or a state of fixed size. */
export type SequenceUse =
  | ({ readonly kind: "cache"; readonly layer: number } & LayerCacheShape)
  | { readonly kind: "state"; readonly index: number; readonly byteLength: number };

/** Pages of the keys and values of all layers with the same window and sizes. */
export interface PagedCache extends LayerCacheShape {
  /** Storage type of keys and values. */
  readonly type: KvCacheType;
  /** Positions per page, a power of two. */
  readonly pagePositions: number;
  /** Most pages per sequence. */
  readonly pagesMax: number;
  /** Addresses [slots * pagesMax] of pages in the kernels' memory. Pages outside a window are never read. */
  readonly pages: BigUint64Array;
  /** Bytes of a page, by the sequence's slot and the page's index. */
  page(slot: number, index: number): Uint8Array;
}

/** Positions per page of int4: they share the scales of keys. */
export const INT4_POSITIONS = 64;

/** One layer's part of each page. */
export interface LayerPages {
  /** Cache with the layer's pages. */
  readonly cache: PagedCache;
  /** Byte offset of the layer's part in a page. */
  readonly offset: number;
  /**
   * For int4, the f16 residual: attention reads the positions of the current, incomplete page here, and each complete page is
   * quantized to int4 from here. Only pages that tokens can still be added to are present.
   */
  readonly residual?: LayerPages | undefined;
}

/** One recurrent layer's part of each sequence's state. */
export interface StatePart {
  /** Byte offset of the part in a sequence's state. */
  readonly offset: number;
  /** Bytes of the part. */
  readonly byteLength: number;
}

/** The sequences of a step, as kernels read them. */
export interface SequenceTable {
  /** Handle by which programs refer to the table: an array of one element that only the runtime makes. */
  readonly handle: Int32Array;
  /**
   * Numbers [1 + RUN_FIELDS * runsMax]: the number of runs, then each run. A run is consecutive rows of the step that are
   * consecutive positions of one sequence. Runs are ordered by their rows and do not overlap.
   */
  readonly runs: Int32Array;
  /** Most runs in one call. */
  readonly runsMax: number;
  /** Most sequences in a step. */
  readonly slots: number;
  /** Addresses [slots] of states to read; `nextStates` has those to write, which replace them when the step has succeeded. */
  readonly states: BigUint64Array;
  /** Addresses [slots] of the states to write. */
  readonly nextStates: BigUint64Array;
  /** Bytes of a slot's current and next state. */
  state(slot: number): { readonly now: Uint8Array; readonly next: Uint8Array };
  /** Pages of a layer; undefined for a layer that the program does not have. */
  layerPages(layer: number): LayerPages | undefined;
  /** A call's part of a sequence's state; undefined for an unknown index. */
  statePart(index: number): StatePart | undefined;
}

/** Byte offsets of a layer's keys, values and scales in its part of a page, and the bytes of that part. */
export interface PartOffsets {
  readonly keys: number;
  readonly values: number;
  /**
   * Offsets of scales. int8: f32 [pagePositions, kvHeads]. int4: f16 scales and minima, [kvHeads, 2, columns] of keys and
   * [kvHeads, 2, pagePositions] of values.
   */
  readonly keyScales: number;
  readonly valueScales: number;
  readonly layerBytes: number;
}

/** Alignment of each part: a cache line. */
const PART_ALIGNMENT = 64;

const elementBytes: Readonly<Record<KvCacheType, number>> = { f32: 4, f16: 2, int8: 1, int4: 0.5 };

/** Columns of an int4 head as stored, a multiple of 32. */
export function int4Columns(headDim: number): number {
  return Math.ceil(headDim / 32) * 32;
}

/**
 * Offsets of keys and values [pagePositions, kvHeads, headDim], and then their scales; for int4, of [kvHeads, pagePositions,
 * int4Columns] in the order of native/families/attention/int4_pages.h.
 */
export function partOffsets(cache: Pick<PagedCache, "type" | "kvHeads" | "headDim" | "pagePositions">): PartOffsets {
  const { type, kvHeads, headDim, pagePositions } = cache;
  const columns = type === "int4" ? int4Columns(headDim) : headDim;
  const rows = pagePositions * kvHeads;
  const aligned = (bytes: number) => Math.ceil(bytes / PART_ALIGNMENT) * PART_ALIGNMENT;
  const rowBytes = aligned(rows * columns * elementBytes[type]);
  const scaleBytes = (numbers: number) => {
    if (type === "int8") return aligned(rows * byteSize("f32"));
    return type === "int4" ? aligned(2 * numbers * kvHeads * byteSize("f16")) : 0;
  };
  const keyScales = 2 * rowBytes;
  const valueScales = keyScales + scaleBytes(columns);
  return { keys: 0, values: rowBytes, keyScales, valueScales, layerBytes: valueScales + scaleBytes(pagePositions) };
}

const tables = new WeakMap<TypedArray, SequenceTable>();

/** Registers a table, so that programs' calls find it by its handle. */
export function registerTable(table: SequenceTable): void {
  tables.set(table.handle, table);
}

/** The table of a handle; undefined for any other array, whatever it contains. */
export function tableOf(handle: TypedArray): SequenceTable | undefined {
  return tables.get(handle);
}

/** One run of a step. */
export interface Run {
  readonly row: number;
  readonly rows: number;
  readonly position: number;
  readonly slot: number;
}

/** The runs of a table, limited to the first `rows` rows. */
export function* runsOf({ runs }: SequenceTable, rows: number): Generator<Run> {
  for (let i = 0; i < runs[0]!; i++) {
    const [row, count, position, slot] = runs.subarray(1 + i * RUN_FIELDS, 1 + (i + 1) * RUN_FIELDS) as unknown as [
      number,
      number,
      number,
      number,
    ];
    if (row + count <= rows) yield { row, rows: count, position, slot };
  }
}
