/** Sequences of a step for tests of kernels: pages in a kernel memory, each where the caller says. */
import type { KernelMemory } from "../../src/kernels/contract.ts";
import {
  type LayerPages,
  type PagedCache,
  partOffsets,
  RUN_FIELDS,
  type Run,
  type SequenceTable,
  writeRuns,
} from "../../src/kernels/sequence-table.ts";

export interface SequencesShape extends Pick<PagedCache, "type" | "kvHeads" | "headDim" | "window" | "pagePositions"> {
  /** Of each slot, the number of the page that holds its positions 0 ..; -1 for none, which nothing may read. */
  readonly slots: readonly (readonly number[])[];
  /** The layer that calls are of, one of two in each page. */
  readonly layer: number;
}

/** Pages with the caller's bytes, and the table that leads to them. */
export class Sequences {
  readonly table: SequenceTable;
  readonly pages: LayerPages;
  /** All pages, one after the other. */
  readonly bytes: Uint8Array;

  constructor(memory: KernelMemory, shape: SequencesShape, bytes: Uint8Array, runsMax = 64) {
    const { slots, layer, type, kvHeads, headDim, window, pagePositions } = shape;
    const array = (length: number) => memory.allocate(Math.max(64, length));
    this.bytes = array(bytes.length);
    this.bytes.set(bytes);
    const pageBytes = pageBytesOf(shape);
    const pagesMax = Math.max(...slots.map((pages) => pages.length));
    /** Some bytes of each page. */
    const cacheOf = (part: PartShape & { readonly window: number }, from: number, to: number): PagedCache => {
      const room = array(8 * slots.length * pagesMax);
      const pages = new BigUint64Array(room.buffer, room.byteOffset, slots.length * pagesMax);
      const page = (slot: number, index: number) => {
        const number = slots[slot]![index]!;
        if (number < 0) throw new Error(`page ${index} of slot ${slot} is none`);
        return this.bytes.subarray(number * pageBytes + from, number * pageBytes + to);
      };
      for (const [slot, numbers] of slots.entries())
        for (const [index, number] of numbers.entries())
          if (number >= 0) pages[slot * pagesMax + index] = memory.addressOf(page(slot, index));
      return { ...part, pagesMax, pages, page };
    };
    const layerPages = (part: PartShape & { readonly window: number }, from: number, to: number): LayerPages => ({
      cache: cacheOf(part, from, to),
      offset: layer * partOffsets(part).layerBytes,
    });
    const own = { type, kvHeads, headDim, window, pagePositions };
    const start = residualStart(shape);
    const residual =
      type === "int4" ? layerPages({ ...own, type: "f16", window: 1, keepsFirst: true }, start, pageBytes) : undefined;
    this.pages = { ...layerPages(own, 0, start), residual };
    const runs = array(4 * (1 + RUN_FIELDS * runsMax));
    this.table = {
      handle: new Int32Array(1),
      runs: new Int32Array(runs.buffer, runs.byteOffset, 1 + RUN_FIELDS * runsMax),
      runsMax,
      slots: slots.length,
      states: new BigUint64Array(slots.length),
      nextStates: new BigUint64Array(slots.length),
      state: () => ({ now: new Uint8Array(0), next: new Uint8Array(0) }),
      layerPages: () => this.pages,
      statePart: () => undefined,
    };
  }

  setRuns(runs: readonly Run[]): void {
    writeRuns(this.table, runs);
  }
}

/** Layers of a page. */
const LAYERS = 2;

type PartShape = Pick<PagedCache, "type" | "kvHeads" | "headDim" | "pagePositions" | "keepsFirst">;

/** Bytes of a page: of int4, with what is in f16. */
export function pageBytesOf(shape: PartShape): number {
  return (
    residualStart(shape) + (shape.type === "int4" ? LAYERS * partOffsets({ ...shape, type: "f16" }).layerBytes : 0)
  );
}

/** Where what is in f16 begins in a page of int4. */
export function residualStart(shape: PartShape): number {
  return LAYERS * partOffsets(shape).layerBytes;
}
