/** The block table that kernels read, updated for the sequences of each step. */
import { InvalidArgumentError } from "../errors.ts";
import type { KernelMemory } from "../kernels/contract.ts";
import {
  type LayerPages,
  type PagedCache,
  RUN_FIELDS,
  registerTable,
  type SequenceTable,
  type StatePart,
} from "../kernels/sequence-table.ts";
import type { SequenceLayout } from "./layout.ts";
import type { PageStore } from "./page-store.ts";
import type { Sequence } from "./sequence.ts";

/** A sequence's part of a step: `tokens` tokens. */
export interface StepRun {
  readonly sequence: Sequence;
  readonly tokens: number;
  /**
   * Position of the first token minus the sequence's length: above 0 after tokens that are not committed, below 0 to
   * compute tokens again. Default 0.
   */
  readonly ahead?: number;
}

/**
 * The block table. A slot keeps the sequence that was last written to it, so that the next step writes only what is new.
 */
export class Table implements SequenceTable {
  readonly handle = new Int32Array(1);
  readonly runs: Int32Array;
  readonly runsMax: number;
  readonly slots: number;
  readonly states: BigUint64Array;
  readonly nextStates: BigUint64Array;
  readonly #store: PageStore;
  readonly #caches: readonly PagedCache[];
  readonly #layout: SequenceLayout;
  readonly #sequences: (Sequence | null)[];
  readonly #release: () => void;
  #moves = 0;

  constructor(memory: KernelMemory, store: PageStore, layout: SequenceLayout) {
    const { slots, pagesMax, pagePositions } = layout;
    const parts: Uint8Array[] = [];
    const allocate = (byteLength: number) => {
      const bytes = memory.allocate(byteLength);
      parts.push(bytes);
      return bytes;
    };
    const addresses = (length: number) => {
      const { buffer, byteOffset } = allocate(8 * length);
      return new BigUint64Array(buffer, byteOffset, length);
    };
    this.#store = store;
    this.#layout = layout;
    this.slots = slots;
    this.runsMax = slots;
    this.#sequences = new Array<Sequence | null>(slots).fill(null);
    const { buffer, byteOffset } = allocate(4 * (1 + RUN_FIELDS * slots));
    this.runs = new Int32Array(buffer, byteOffset, 1 + RUN_FIELDS * slots);
    this.states = addresses(slots);
    this.nextStates = addresses(slots);
    this.#caches = layout.kinds.map(({ type, kvHeads, headDim, window }, kind) => ({
      type,
      kvHeads,
      headDim,
      window,
      pagePositions,
      pagesMax,
      pages: addresses(slots * pagesMax),
      page: (slot, index) => this.#page(kind, slot, index),
    }));
    this.#release = () => {
      for (const bytes of parts) memory.free(bytes);
    };
    registerTable(this);
  }

  /** Writes the sequences of a step for kernels to read. */
  write(runs: readonly StepRun[]): void {
    if (this.#moves !== this.#store.pool.moves)
      for (const sequence of this.#sequences) if (sequence) sequence.changedFrom = 0;
    this.#moves = this.#store.pool.moves;
    const inStep = new Set(runs.map(({ sequence }) => sequence));
    let row = 0;
    for (const [i, { sequence, tokens, ahead = 0 }] of runs.entries()) {
      const slot = this.#slotOf(sequence, inStep);
      this.#writePages(slot, sequence);
      this.#writeStates(slot, sequence);
      this.runs.set([row, tokens, sequence.position + ahead, slot], 1 + RUN_FIELDS * i);
      row += tokens;
    }
    this.runs[0] = runs.length;
  }

  /** Ends the step. */
  clear(): void {
    this.runs[0] = 0;
  }

  forget(sequence: Sequence): void {
    const slot = this.#sequences.indexOf(sequence);
    if (slot >= 0) this.#sequences[slot] = null;
  }

  state(slot: number): { readonly now: Uint8Array; readonly next: Uint8Array } {
    const { now, next } = this.#sequences[slot]?.states ?? {};
    if (!now || !next) throw new InvalidArgumentError(`state: expected the slot of a step but found ${slot}`);
    return { now: now.block.bytes, next: next.block.bytes };
  }

  layerPages(layer: number): LayerPages | undefined {
    const place = this.#layout.layers.get(layer);
    return place && { ...this.#pagesOf(place.kind, place.number), residual: this.#residualOf(place) };
  }

  statePart(index: number): StatePart | undefined {
    return this.#layout.states.get(index);
  }

  dispose(): void {
    this.#sequences.fill(null);
    this.#release();
  }

  #pagesOf(kind: number, number: number): LayerPages {
    return { cache: this.#caches[kind]!, offset: number * this.#layout.kinds[kind]!.layerBytes };
  }

  #residualOf({ kind, number }: { readonly kind: number; readonly number: number }): LayerPages | undefined {
    const { type, kinds } = this.#layout;
    return type === "int4" ? this.#pagesOf(kinds.length / 2 + kind, number) : undefined;
  }

  #page(kind: number, slot: number, index: number): Uint8Array {
    const block = this.#sequences[slot]?.pages[index]?.blocks[kind];
    if (!block) throw new InvalidArgumentError(`page: expected one that slot ${slot} holds but found ${index}`);
    return block.bytes;
  }

  /** The slot for a sequence: that of its last step, else a free one, else that of a sequence outside of the step. */
  #slotOf(sequence: Sequence, inStep: ReadonlySet<Sequence>): number {
    const known = this.#sequences.indexOf(sequence);
    if (known >= 0) return known;
    const free = this.#sequences.indexOf(null);
    const slot = free >= 0 ? free : this.#sequences.findIndex((other) => !inStep.has(other!));
    this.#sequences[slot] = sequence;
    sequence.changedFrom = 0;
    return slot;
  }

  #writePages(slot: number, sequence: Sequence): void {
    const { pages, changedFrom } = sequence;
    for (const [kind, cache] of this.#caches.entries()) {
      const start = slot * cache.pagesMax;
      for (let i = changedFrom; i < pages.length; i++) {
        const block = pages[i]!.blocks[kind];
        if (block) cache.pages[start + i] = block.address;
      }
    }
    sequence.changedFrom = pages.length;
  }

  #writeStates(slot: number, { states: { now, next } }: Sequence): void {
    if (!now || !next) return;
    this.states[slot] = now.block.address;
    this.nextStates[slot] = next.block.address;
  }
}
