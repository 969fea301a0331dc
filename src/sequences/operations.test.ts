/** Random operations on a store, beside a model of it: the ids of each sequence in plain lists. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { CellStore } from "../../test/support/sequence-cells.ts";
import { memorySource } from "../byte-source.ts";
import { UnsupportedError } from "../errors.ts";
import type { SequenceUse } from "../kernels/sequence-table.ts";
import { bytesForSequence, sequenceLayout } from "./layout.ts";
import type { Page } from "./page.ts";
import type { Sequence } from "./sequence.ts";

const CONTEXT = 36;
const POSITIONS = 2;
const SLOTS = 3;
const STEP_ROWS = 6;

const cache = (layer: number, window = 0): SequenceUse => ({ kind: "cache", layer, kvHeads: 1, headDim: 1, window });
const state = (index: number, byteLength = 4): SequenceUse => ({ kind: "state", index, byteLength });

/** Kinds of models. */
const models: Record<string, readonly SequenceUse[]> = {
  full: [cache(0), cache(1)],
  windows: [cache(0), cache(1, 3)],
  "windows alone": [cache(0, 2), cache(1, 7)],
  recurrent: [cache(0), state(0), state(1, 68)],
  all: [cache(0), cache(1, 1), cache(2, 5), state(0)],
  "states alone": [state(0)],
};

/** Few ids, of which one is frequent, so that sequences often have something in common. */
const id = fc.constantFrom(0, 0, 0, 0, 0, 1, 2);
const ids = fc.array(id, { minLength: 1, maxLength: 30, size: "max" });
const pick = fc.nat(99);
const operation = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant("open" as const), ids, branch: fc.constantFrom("", "", "b") }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("continue" as const), pick, ids }) },
  {
    weight: 14,
    arbitrary: fc.record({
      kind: fc.constant("step" as const),
      runs: fc.array(fc.record({ pick, ids: fc.array(id, { minLength: 1, maxLength: STEP_ROWS, size: "max" }) }), {
        minLength: 1,
        maxLength: SLOTS,
      }),
      outcome: fc.constantFrom("commit" as const, "commit" as const, "some" as const, "fail" as const),
      meanwhile: fc.constantFrom("nothing" as const, "nothing" as const, "fork" as const, "dispose" as const),
      isCut: fc.boolean(),
      keepsStart: fc.boolean(),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("fork" as const), pick }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("truncate" as const), pick, position: pick }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("dispose" as const), pick }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("release" as const), pick, ids: fc.option(ids) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("save" as const), pick }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("restore" as const), pick }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("clear" as const) }) },
);
type Operation = typeof operation extends fc.Arbitrary<infer O> ? O : never;
type Step = Operation & { kind: "step" };

/** A sequence and what it should hold. */
interface Held {
  readonly sequence: Sequence;
  ids: number[];
  /** Where its last step began, if it can be cut back to there whatever its layers are. */
  start?: number;
}

class Run {
  readonly cells: CellStore;
  readonly held: Held[] = [];
  /** By branch: the ids of what was ever computed, up to ends of pages, and of what was restored, whose last page counts. */
  readonly computed: { ids: number[]; branch: string }[] = [];
  readonly files: { ids: number[]; branch: string; bytes: Uint8Array }[] = [];
  readonly #cacheBytes: number;
  readonly #tableBytes: number;
  /** Whether all that was computed can be found: no window leaves anything behind, no state is missing. */
  readonly #isFull: boolean;
  readonly #hasWindows: boolean;

  constructor(uses: readonly SequenceUse[], spareBytes: number) {
    const options = { contextLength: CONTEXT, sequences: SLOTS, pagePositions: POSITIONS, stepTokens: STEP_ROWS };
    const layout = sequenceLayout(uses, { ...options, type: "f32" });
    this.#cacheBytes = bytesForSequence(layout, CONTEXT, STEP_ROWS) + spareBytes;
    this.cells = new CellStore(uses, { ...options, cacheBytes: this.#cacheBytes });
    this.#tableBytes = this.cells.memory.bytes;
    this.#hasWindows = uses.some((use) => use.kind === "cache" && use.window > 0);
    this.#isFull = uses.every((use) => use.kind === "cache" && use.window === 0);
  }

  #pick(index: number): Held | undefined {
    return this.held[index % Math.max(1, this.held.length)];
  }

  async do(operation: Operation): Promise<void> {
    const { store } = this.cells;
    switch (operation.kind) {
      case "open":
        return this.#open(operation.ids, operation.branch);
      case "continue": {
        const { ids, sequence } = this.#pick(operation.pick) ?? { ids: [], sequence: { branch: "" } };
        return this.#open([...ids, ...operation.ids], sequence.branch);
      }
      case "step":
        return this.#step(operation);
      case "clear":
        return store.clear();
      case "restore":
        return this.#restore(operation.pick);
    }
    const chosen = this.#pick(operation.pick);
    if (!chosen) return;
    const { sequence } = chosen;
    if (operation.kind === "fork") this.held.push({ sequence: sequence.fork(), ids: [...chosen.ids] });
    else if (operation.kind === "dispose") this.#dispose(chosen);
    else if (operation.kind === "save") this.#save(chosen);
    else if (operation.kind === "truncate") {
      const position = operation.position % (chosen.ids.length + 1);
      const kept = sequence.truncate(position);
      expect(kept).toBeLessThanOrEqual(position);
      if (position === chosen.ids.length) expect(kept).toBe(position);
      const { start = CONTEXT } = chosen;
      if (start <= position && !this.#hasWindows) expect(kept).toBeGreaterThanOrEqual(start);
      if (kept < position) delete chosen.start;
      chosen.ids = chosen.ids.slice(0, kept);
    } else {
      sequence.release();
      delete chosen.start;
      expect(sequence.position).toBe(0);
      chosen.ids = operation.ids?.slice(0, sequence.match(operation.ids)) ?? [];
    }
  }

  #open(ids: readonly number[], branch: string): void {
    const sequence = this.cells.store.open(ids, { branch });
    expect(sequence.position).toBeLessThan(ids.length);
    const { evictedPages } = this.cells.store.statistics;
    if (this.#isFull && evictedPages === 0) expect(sequence.position).toBe(this.#longestPrefix(ids, branch));
    this.held.push({ sequence, ids: ids.slice(0, sequence.position) });
  }

  /** Of what was computed, all of whose pages are there. */
  #longestPrefix(ids: readonly number[], branch: string): number {
    const lengths = this.computed
      .filter((chain) => chain.branch === branch)
      .map((chain) => {
        const differs = chain.ids.findIndex((id, i) => id !== ids[i]);
        return differs < 0 ? chain.ids.length : differs;
      });
    return Math.min(ids.length - 1, Math.max(0, ...lengths));
  }

  #note({ sequence: { branch }, ids }: Held): void {
    this.computed.push({ branch, ids: ids.slice(0, Math.floor(ids.length / POSITIONS) * POSITIONS) });
  }

  #dispose(chosen: Held): void {
    chosen.sequence.dispose();
    this.held.splice(this.held.indexOf(chosen), 1);
  }

  async #step({ runs, outcome, meanwhile, isCut, keepsStart }: Step): Promise<void> {
    const ready: { held: Held; sequence: Sequence; ids: number[] }[] = [];
    for (const run of runs) {
      const held = this.#pick(run.pick);
      if (!held || ready.some(({ sequence }) => sequence === held.sequence)) continue;
      const { sequence } = held;
      const end = Math.min(CONTEXT, isCut ? sequence.nextBoundary : CONTEXT);
      const ids = run.ids.slice(0, end - held.ids.length);
      if (ids.length > 0 && (await this.#reserve(held, ids.length))) ready.push({ held, sequence, ids });
    }
    // Room for one may have been made by disposing of another.
    const steps = ready.filter(({ sequence }) => !sequence.isDisposed);
    if (steps.length === 0) return;
    const forks: Held[] = [];
    const during = () => {
      const { held, sequence } = steps[0]!;
      if (meanwhile === "fork") forks.push({ sequence: sequence.fork(), ids: [...held.ids] });
      if (meanwhile === "dispose") this.#dispose(held);
    };
    if (outcome === "fail") await expect(this.cells.step(steps, { fails: true, during })).rejects.toThrow("aborted");
    else await this.cells.step(steps, { during });
    this.held.push(...forks);
    if (outcome === "fail") return;
    for (const { held, sequence, ids } of steps) {
      if (sequence.isDisposed) continue;
      const isWhole = outcome === "commit" || this.cells.store.layout.shape.stateBytes > 0;
      const accepted = isWhole ? ids : ids.slice(0, Math.ceil(ids.length / 2));
      sequence.commit(accepted, { keepsStart });
      if (keepsStart) held.start = held.ids.length;
      held.ids = [...held.ids, ...accepted];
      this.#note(held);
    }
  }

  /** Without room nothing changes, and with nobody else there is room. */
  async #reserve(held: Held, count: number): Promise<boolean> {
    const { length } = held.sequence.pages;
    delete held.start;
    if (held.sequence.reserve(count)) return true;
    expect(held.sequence.ids).toEqual(held.ids);
    expect(held.sequence.pages.length).toBe(length);
    if (count % 2 === 0) return false;
    for (const other of [...this.held]) if (other !== held) this.#dispose(other);
    expect(held.sequence.reserve(count)).toBe(true);
    return true;
  }

  #save({ sequence, ids }: Held): void {
    const parts = [...this.cells.store.save(sequence, "program")];
    this.files.push({ ids: [...ids], branch: sequence.branch, bytes: new Uint8Array(Buffer.concat(parts)) });
  }

  async #restore(index: number): Promise<void> {
    const file = this.files[index % Math.max(1, this.files.length)];
    if (!file) return;
    const before = this.cells.store.statistics;
    try {
      const sequence = await this.cells.store.restore(memorySource("file", file.bytes), "program");
      expect(sequence.branch).toBe(file.branch);
      this.held.push({ sequence, ids: [...file.ids] });
      this.computed.push({ branch: file.branch, ids: file.ids });
    } catch (error) {
      expect(error).toBeInstanceOf(UnsupportedError);
      expect(this.cells.store.statistics.pages).toBe(before.pages);
    }
  }

  /** Contents, counts of references, and bytes. */
  check(): void {
    const { store, memory } = this.cells;
    const holders = new Map<Page, number>();
    for (const { sequence, ids } of this.held) {
      if (sequence.ids.join() !== ids.join()) expect(sequence.ids).toEqual(ids);
      this.cells.verify(sequence);
      for (const page of sequence.pages) holders.set(page, (holders.get(page) ?? 0) + 1);
    }
    for (const [page, count] of holders) if (page.holders !== count) expect(page.holders).toBe(count);
    const { bytes, usedBytes, pages, sequences, limitBytes } = store.statistics;
    expect([pages, sequences, limitBytes, memory.bytes]).toEqual([
      holders.size,
      this.held.length,
      this.#cacheBytes,
      bytes + this.#tableBytes,
    ]);
    if (usedBytes > bytes || bytes > this.#cacheBytes) expect.fail(`${usedBytes} of ${bytes} bytes`);
  }

  /** No reference is left, and no byte. */
  end(): void {
    const { store, memory } = this.cells;
    for (const held of [...this.held]) this.#dispose(held);
    store.clear();
    const zeroState = store.layout.shape.stateBytes;
    expect(store.statistics).toMatchObject({ sequences: 0, pages: 0, idlePages: 0 });
    expect(store.statistics.usedBytes).toBeLessThanOrEqual(zeroState);
    store.dispose();
    expect(memory.bytes).toBe(0);
  }
}

test.each(Object.keys(models))(
  "%s: whatever is done, each sequence holds what was computed for its ids",
  async (name) => {
    const operations = fc.array(operation, { minLength: 10, maxLength: 80, size: "max" });
    const property = fc.asyncProperty(
      operations,
      fc.oneof(fc.nat(1000), fc.nat(20000)),
      async (operations, spareBytes) => {
        const run = new Run(models[name]!, spareBytes);
        for (const operation of operations) {
          await run.do(operation);
          run.check();
        }
        run.end();
      },
    );
    await fc.assert(property, { numRuns: 50 });
  },
);
