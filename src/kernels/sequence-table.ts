/**
 * What kernels see of the sequences of a step: which rows are whose, and where the pages of their keys and values lie. The
 * arrays stay where they are; they are written before each step, while nothing runs.
 */
import { byteSize, type TypedArray } from "../dtype.ts";

/** Numbers of a run in `SequenceTable.runs`: its first row, its rows, the position of its first row, its slot, 1 for prefill. */
export const RUN_FIELDS = 5;

/**
 * What keys and values are kept in: int8 has a scale for each row of a head; int4 a step and a least value for each row of
 * values and for each column of a page's keys (Liu et al. 2024, KIVI).
 */
export const kvCacheTypes = ["f32", "f16", "int8", "int4"] as const;
/**
 * The type that keys and values are kept in: `f32` as computed, `f16` in half the memory, `int8` in about a quarter, `int4`
 * in about a seventh.
 */
export type KvCacheType = (typeof kvCacheTypes)[number];

/** Sizes of the keys and values of a layer, and how many last positions its queries see (0 for all). */
export interface LayerCacheShape {
  /** Key and value heads of the layer. */
  readonly kvHeads: number;
  /** Elements of a head. */
  readonly headDim: number;
  /** Positions that a query sees at most. */
  readonly window: number;
}

/** What a call of a program keeps of each sequence: the keys and values of a layer, or a state of fixed size. */
export type SequenceUse =
  | ({ readonly kind: "cache"; readonly layer: number } & LayerCacheShape)
  | { readonly kind: "state"; readonly index: number; readonly byteLength: number };

/** Where the keys and values of the layers of one kind are. */
export interface PagedCache extends LayerCacheShape {
  /** Type that keys and values are stored in. */
  readonly type: KvCacheType;
  /** Positions of a page, a power of two. */
  readonly pagePositions: number;
  /** Most pages of a sequence. */
  readonly pagesMax: number;
  /** Addresses [slots * pagesMax] of pages in the memory of kernels. Those behind a window are never read. */
  readonly pages: BigUint64Array;
  /** The bytes of a page, by the sequence's slot and the page's index. */
  page(slot: number, index: number): Uint8Array;
}

/** Positions of a page of int4: those that share steps of keys. */
export const INT4_POSITIONS = 64;

/** The part of each page that belongs to one layer. */
export interface LayerPages {
  /** Cache that holds the layer's pages. */
  readonly cache: PagedCache;
  /** Bytes from the start of a page to the layer's part. */
  readonly offset: number;
  /**
   * Pages of f16 beside those of int4: tokens read their own page here, and full pages of int4 are made of it.
   * Only pages that tokens to come are in are there.
   */
  readonly residual?: LayerPages | undefined;
}

/** The part of each sequence's state that belongs to one recurrent layer. */
export interface StatePart {
  /** Byte within a sequence's state at which the part begins. */
  readonly offset: number;
  /** Bytes of the part. */
  readonly byteLength: number;
}

/** The sequences of a step, as kernels read them. */
export interface SequenceTable {
  /** What programs hold instead of the table: a value of one element that only the runtime makes. */
  readonly handle: Int32Array;
  /**
   * Numbers [1 + RUN_FIELDS * runsMax]: how many runs there are, then each. A run is consecutive rows of the step that
   * are consecutive positions of one sequence. Runs are in the order of their rows and share none.
   */
  readonly runs: Int32Array;
  /** Most runs of tokens in one call. */
  readonly runsMax: number;
  /** Sequences that can be in a step. */
  readonly slots: number;
  /**
   * Addresses [slots] of states to read; `nextStates` has those to write, which take their places when the step has
   * succeeded.
   */
  readonly states: BigUint64Array;
  /** Addresses of the states that a call writes, one a run. */
  readonly nextStates: BigUint64Array;
  /** Both states of a slot as bytes. */
  state(slot: number): { readonly now: Uint8Array; readonly next: Uint8Array };
  /** Pages of a layer; undefined for a layer that the program does not have. */
  layerPages(layer: number): LayerPages | undefined;
  /** Place of a call's state within a sequence's; undefined for an index without one. */
  statePart(index: number): StatePart | undefined;
}

/** Bytes at which the parts of a layer begin in its part of a page, and the bytes of that part. */
export interface PartOffsets {
  readonly keys: number;
  readonly values: number;
  /**
   * Place of the keys' scales where they are int8: f32 [pagePositions, kvHeads]; where they are int4, f16
   * [kvHeads, 2, columns] of steps and least values, and of values [kvHeads, 2, pagePositions].
   */
  readonly keyScales: number;
  readonly valueScales: number;
  readonly layerBytes: number;
}

/** Each part begins at a cache line. */
const PART_ALIGNMENT = 64;

const elementBytes: Readonly<Record<KvCacheType, number>> = { f32: 4, f16: 2, int8: 1, int4: 0.5 };

/** Columns that heads of int4 have room for. */
export function int4Columns(headDim: number): number {
  return Math.ceil(headDim / 32) * 32;
}

/**
 * Keys and values [pagePositions, kvHeads, headDim], then their scales; of int4, [kvHeads, pagePositions, int4Columns] in the
 * order of native/families/attention/int4_pages.h.
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

/** Lets calls of programs find a table by its handle. */
export function registerTable(table: SequenceTable): void {
  tables.set(table.handle, table);
}

/** The table of a handle; undefined for any other memory, whatever is in it. */
export function tableOf(handle: TypedArray): SequenceTable | undefined {
  return tables.get(handle);
}

/** One run of a step. */
export interface Run {
  readonly row: number;
  readonly rows: number;
  readonly position: number;
  readonly slot: number;
  /**
   * Whether its tokens are of a prompt: kernels may compute these in another way than those of answers, and compute each of
   * them in that way, however many there are. Default false.
   */
  readonly isPrefill?: boolean;
}

/** Writes the runs of a step to a table. */
export function writeRuns({ runs }: Pick<SequenceTable, "runs">, all: readonly Run[]): void {
  runs[0] = all.length;
  for (const [i, { row, rows, position, slot, isPrefill = false }] of all.entries())
    runs.set([row, rows, position, slot, Number(isPrefill)], 1 + i * RUN_FIELDS);
}

/** The runs of a table as far as they are among the first `rows` rows. */
export function* runsOf({ runs }: SequenceTable, rows: number): Generator<Run> {
  for (let i = 0; i < runs[0]!; i++) {
    const at = 1 + i * RUN_FIELDS;
    const [row, count] = [runs[at]!, runs[at + 1]!];
    if (row + count > rows) continue;
    yield { row, rows: count, position: runs[at + 2]!, slot: runs[at + 3]!, isPrefill: runs[at + 4] === 1 };
  }
}
