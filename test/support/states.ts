/** States of the sequences of a step for tests of kernels, in a kernel memory: those to read and those to write. */
import type { KernelMemory } from "../../src/kernels/contract.ts";
import {
  RUN_FIELDS,
  type Run,
  type SequenceTable,
  type StatePart,
  writeRuns,
} from "../../src/kernels/sequence-table.ts";

/** Bytes around the call's part of a state, which it must leave alone. */
const MARGIN = 64;

/** The part of a layer in the states of some slots, and the table that leads to them. */
export class States {
  readonly table: SequenceTable;
  readonly part: StatePart;
  readonly #blocks: readonly { now: Uint8Array; next: Uint8Array }[];
  readonly #memory: KernelMemory;

  constructor(memory: KernelMemory, slots: number, elements: number, runsMax = 64) {
    const byteLength = 4 * elements;
    this.#memory = memory;
    this.part = { offset: MARGIN, byteLength };
    const block = () => memory.allocate(byteLength + 2 * MARGIN);
    this.#blocks = Array.from({ length: slots }, () => ({ now: block(), next: block().fill(0xa5) }));
    const addresses = () => {
      const { buffer, byteOffset } = memory.allocate(8 * slots);
      return new BigUint64Array(buffer, byteOffset, slots);
    };
    const runs = memory.allocate(4 * (1 + RUN_FIELDS * runsMax));
    this.table = {
      handle: new Int32Array(1),
      runs: new Int32Array(runs.buffer, runs.byteOffset, 1 + RUN_FIELDS * runsMax),
      runsMax,
      slots,
      states: addresses(),
      nextStates: addresses(),
      state: (slot) => this.#blocks[slot]!,
      layerPages: () => undefined,
      statePart: () => this.part,
    };
    this.#setAddresses();
  }

  setRuns(runs: readonly Run[]): void {
    writeRuns(this.table, runs);
  }

  /** What a slot's state is now, or will be after the step. */
  of(slot: number, when: "now" | "next" = "now"): Float32Array {
    const { buffer, byteOffset } = this.#blocks[slot]![when];
    return new Float32Array(buffer, byteOffset + MARGIN, this.part.byteLength / 4);
  }

  /** Bytes of a slot's next state around the call's part, which are 0xa5 until something writes them. */
  around(slot: number): readonly number[] {
    const { next } = this.#blocks[slot]!;
    return [...next.subarray(0, MARGIN), ...next.subarray(MARGIN + this.part.byteLength)];
  }

  /** Ends a step: the states that these slots got are theirs. */
  commit(slots: readonly number[]): void {
    for (const slot of slots) {
      const block = this.#blocks[slot]!;
      [block.now, block.next] = [block.next, block.now];
    }
    this.#setAddresses();
  }

  #setAddresses(): void {
    for (const [slot, { now, next }] of this.#blocks.entries()) {
      this.table.states[slot] = this.#memory.addressOf(now);
      this.table.nextStates[slot] = this.#memory.addressOf(next);
    }
  }
}
