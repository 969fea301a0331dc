/** Tables of sequences over pages of a test's own, for kernels that attend over them. */
import { viewOf } from "../../src/dtype.ts";
import {
  type KvCacheType,
  type LayerPages,
  type PagedCache,
  partOffsets,
  RUN_FIELDS,
  type Run,
  type SequenceTable,
  writeRuns,
} from "../../src/kernels/sequence-table.ts";
import type { Random } from "./random.ts";

export interface PagedShape {
  /** Not int4, whose pages are two: `Sequences` has them. */
  readonly type: Exclude<KvCacheType, "int4">;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly window: number;
  readonly pagePositions: number;
  readonly pagesMax: number;
  readonly slots: number;
}

/** Where a table and its pages lie. */
export interface PageMemory {
  allocate(byteLength: number): Uint8Array;
  addressOf(bytes: Uint8Array): bigint;
}

/** Memory of no kernel: for those that take pages as bytes. */
export const looseMemory: PageMemory = { allocate: (byteLength) => new Uint8Array(byteLength), addressOf: () => 0n };

const LAYERS = 2;

/** Keys or values of positions one after the other; scales of each row of a head where they are integers. */
export interface CacheRows {
  readonly cache: Float32Array | Uint16Array | Int8Array;
  readonly scales: Float32Array | null;
}

/** A table whose pages are allocated in no order; two layers of one kind are in each. */
export class PagedTable implements SequenceTable {
  readonly handle = new Int32Array(1);
  readonly runs: Int32Array;
  readonly runsMax: number;
  readonly slots: number;
  readonly states = new BigUint64Array(0);
  readonly nextStates = new BigUint64Array(0);
  readonly cache: PagedCache & Pick<PagedShape, "type">;
  readonly #pages: Uint8Array[];
  readonly #addressOf: PageMemory["addressOf"];

  constructor(shape: PagedShape, memory: PageMemory, random: Random) {
    const { slots, pagesMax } = shape;
    const count = slots * pagesMax;
    this.slots = this.runsMax = slots;
    this.#addressOf = memory.addressOf;
    const runs = memory.allocate(4 * (1 + RUN_FIELDS * slots));
    this.runs = new Int32Array(runs.buffer, runs.byteOffset, 1 + RUN_FIELDS * slots);
    const addresses = memory.allocate(8 * count);
    const bytes = LAYERS * partOffsets(shape).layerBytes;
    const order = Array.from({ length: count }, () => ({ key: random.next(), page: memory.allocate(bytes) }));
    this.#pages = order.sort((a, b) => a.key - b.key).map(({ page }) => page);
    const pages = new BigUint64Array(addresses.buffer, addresses.byteOffset, count);
    this.cache = { ...shape, pages, page: (slot, index) => this.#pages[slot * pagesMax + index]! };
    this.#pages.forEach((page, i) => {
      pages[i] = memory.addressOf(page);
    });
  }

  /** The same pages, shared in the same way, elsewhere. */
  copy(memory: PageMemory, random: Random): PagedTable {
    const copy = new PagedTable({ ...this.cache, slots: this.slots }, memory, random);
    const firsts = new Map<Uint8Array, number>();
    this.#pages.forEach((page, i) => {
      const first = firsts.get(page) ?? i;
      firsts.set(page, first);
      if (first === i) copy.#pages[i]!.set(page);
      else copy.#setPage(i, copy.#pages[first]!);
    });
    copy.runs.set(this.runs);
    return copy;
  }

  /** Lets a sequence begin with the pages of another. */
  share(from: number, to: number, pages: number): void {
    const { pagesMax } = this.cache;
    for (let i = 0; i < pages; i++) this.#setPage(to * pagesMax + i, this.#pages[from * pagesMax + i]!);
  }

  #setPage(index: number, page: Uint8Array): void {
    this.#pages[index] = page;
    this.cache.pages[index] = this.#addressOf(page);
  }

  setRuns(runs: readonly Run[]): void {
    writeRuns(this, runs);
  }

  /** All bytes of all pages, one slot after the other. */
  bytes(): Uint8Array {
    const size = this.#pages[0]!.length;
    const all = new Uint8Array(size * this.#pages.length);
    this.#pages.forEach((page, i) => {
      all.set(page, i * size);
    });
    return all;
  }

  layerPages(layer: number): LayerPages | undefined {
    return layer < LAYERS ? { cache: this.cache, offset: layer * partOffsets(this.cache).layerBytes } : undefined;
  }

  statePart(): undefined {}

  state(): never {
    throw new TypeError("the test's table has no states");
  }

  /** Random keys and values in all places of a layer, but NaN from the position on that `ends` says of each slot. */
  fill(layer: number, ends: readonly number[], random: Random): void {
    const { pagesMax, pagePositions, kvHeads, headDim } = this.cache;
    const width = kvHeads * headDim;
    const filled = new Set<Uint8Array>();
    for (let slot = 0; slot < this.slots; slot++)
      for (let index = 0; index < pagesMax; index++) {
        const page = this.#pages[slot * pagesMax + index]!;
        if (filled.has(page)) continue;
        filled.add(page);
        const { keys, values } = this.#parts(page, layer);
        for (let p = 0; p < pagePositions; p++) {
          const isKnown = index * pagePositions + p < ends[slot]!;
          for (let i = p * width; i < (p + 1) * width; i++) {
            keys.cache[i] = stored(keys.cache, random, isKnown, 1);
            values.cache[i] = stored(values.cache, random, isKnown, 3);
          }
          for (let i = p * kvHeads; i < (p + 1) * kvHeads && keys.scales && values.scales; i++) {
            keys.scales[i] = isKnown ? 0.005 + 0.01 * random.next() : Number.NaN;
            values.scales[i] = isKnown ? 0.005 + 0.01 * random.next() : Number.NaN;
          }
        }
      }
  }

  /** Keys and values of the first positions of a sequence, as one array each. */
  contiguous(layer: number, slot: number, capacity: number): { keys: CacheRows; values: CacheRows } {
    const { kvHeads, headDim, type } = this.cache;
    const make = (): CacheRows => ({
      cache: new arrays[type](capacity * kvHeads * headDim),
      scales: type === "int8" ? new Float32Array(capacity * kvHeads) : null,
    });
    const [keys, values] = [make(), make()];
    this.#eachPart(layer, slot, capacity, (parts, first, count) => {
      for (const [all, part] of [
        [keys, parts.keys],
        [values, parts.values],
      ] as const) {
        all.cache.set(part.cache.subarray(0, count * kvHeads * headDim), first * kvHeads * headDim);
        all.scales?.set(part.scales!.subarray(0, count * kvHeads), first * kvHeads);
      }
    });
    return { keys, values };
  }

  /** Writes such keys and values of a sequence's first positions. */
  setContiguous(layer: number, slot: number, { keys, values }: { keys: CacheRows; values: CacheRows }): void {
    const { kvHeads, headDim } = this.cache;
    const width = kvHeads * headDim;
    const capacity = keys.cache.length / width;
    this.#eachPart(layer, slot, capacity, (parts, first, count) => {
      for (const [all, part] of [
        [keys, parts.keys],
        [values, parts.values],
      ] as const) {
        part.cache.set(all.cache.subarray(first * width, (first + count) * width));
        part.scales?.set(all.scales!.subarray(first * kvHeads, (first + count) * kvHeads));
      }
    });
  }

  /** The parts of a layer in the pages of a sequence, with the first position of each and how many it has. */
  #eachPart(
    layer: number,
    slot: number,
    capacity: number,
    visit: (parts: { keys: CacheRows; values: CacheRows }, first: number, count: number) => void,
  ): void {
    const { pagePositions } = this.cache;
    for (let p = 0; p < capacity; p += pagePositions)
      visit(this.#parts(this.cache.page(slot, p / pagePositions), layer), p, Math.min(pagePositions, capacity - p));
  }

  #parts({ buffer, byteOffset }: Uint8Array, layer: number) {
    const { type, pagePositions, kvHeads, headDim } = this.cache;
    const offsets = partOffsets(this.cache);
    const start = byteOffset + layer * offsets.layerBytes;
    const rows = pagePositions * kvHeads;
    const part = (at: number, scalesAt: number): CacheRows => ({
      cache: viewOf(dtypes[type], buffer, start + at, rows * headDim),
      scales: type === "int8" ? new Float32Array(buffer, start + scalesAt, rows) : null,
    });
    return { keys: part(offsets.keys, offsets.keyScales), values: part(offsets.values, offsets.valueScales) };
  }
}

const arrays = { f32: Float32Array, f16: Uint16Array, int8: Int8Array } as const;
const dtypes = { f32: "f32", f16: "f16", int8: "i8" } as const;

const NAN_HALF = 0x7e00;

/** A number up to some size in the way that it is stored; NaN, or with a scale that is, where it is not known. */
function stored(array: Float32Array | Uint16Array | Int8Array, random: Random, isKnown: boolean, size: number): number {
  if (array instanceof Int8Array) return random.integer(-127, 127);
  if (array instanceof Float32Array) return isKnown ? size * (2 * random.next() - 1) : Number.NaN;
  return isKnown ? random.integer(0, 0x4000) | (random.next() < 0.5 ? 0x8000 : 0) : NAN_HALF;
}
