/** Pages and states in an archive: what another store computed is found by its ids, as far as the archive has not forgotten it. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CellStore } from "../../test/support/sequence-cells.ts";
import type { SequenceUse } from "../kernels/sequence-table.ts";
import type { PageArchive } from "./archive.ts";
import { bytesForSequence, sequenceLayout } from "./layout.ts";

const POSITIONS = 2;
const options = { contextLength: 40, sequences: 2, cacheBytes: 1 << 20, pagePositions: POSITIONS, stepTokens: 6 };
const cache = (layer: number, window = 0): SequenceUse => ({ kind: "cache", layer, kvHeads: 1, headDim: 1, window });
const state = (index: number): SequenceUse => ({ kind: "state", index, byteLength: 8 });
const models: Record<string, readonly SequenceUse[]> = {
  full: [cache(0), cache(1)],
  windows: [cache(0), cache(1, 3)],
  "windows alone": [cache(0, 2), cache(1, 7)],
  recurrent: [cache(0), state(0)],
  all: [cache(0), cache(1, 1), cache(2, 5), state(0)],
  "states alone": [state(0)],
};

/** Keys say what they are of in plain words, and bytes are those of a map. */
class MapArchive implements PageArchive {
  readonly blobs = new Map<string, Uint8Array>();
  readonly touched: string[] = [];
  readonly limits = new Map<string, number>();
  readonly #waiting: (() => void)[] = [];
  reads = 0;

  rootKey(branch: string): string {
    return `${branch}:`;
  }

  keyOf(previous: string, ids: readonly number[], salt: string): string {
    return `${previous}${salt}${ids.join()};`;
  }

  async has(name: string): Promise<boolean> {
    return this.blobs.has(name);
  }

  async read(name: string, target: Uint8Array): Promise<boolean> {
    this.reads++;
    const bytes = this.blobs.get(name);
    target.fill(0x77);
    if (bytes?.length !== target.length) return false;
    target.set(bytes);
    return true;
  }

  write(name: string, bytes: () => Uint8Array | null): void {
    this.#waiting.push(() => {
      const found = bytes();
      if (found) this.blobs.set(name, found);
    });
  }

  touch(names: readonly string[]): void {
    this.touched.push(...names);
  }

  limit(salt: string, bytes: number): void {
    this.limits.set(salt, bytes);
  }

  async flush(): Promise<void> {
    for (const write of this.#waiting.splice(0)) write();
  }
}

function storeWith(archive: PageArchive, uses: readonly SequenceUse[], more: object = {}): CellStore {
  const cells = new CellStore(uses, { ...options, ...more });
  cells.store.archive = archive;
  return cells;
}

/** Computes ids in a store of its own, in steps that end pages, as those of prompts do. */
async function compute(archive: MapArchive, uses: readonly SequenceUse[], ids: readonly number[], branch = "") {
  const cells = storeWith(archive, uses);
  const sequence = cells.store.open([], { branch });
  await cells.store.load(sequence, [...ids, 99]);
  const rest = ids.slice(sequence.position);
  await cells.extend(sequence, rest, 2 * POSITIONS);
  cells.verify(sequence);
  await archive.flush();
  sequence.dispose();
  await archive.flush();
  cells.store.dispose();
}

const numbers = (length: number) => Array.from({ length }, (_, i) => i);

describe.each(Object.entries(models))("a model of %s", (name, uses) => {
  test("goes on in another store from where its archive has the pages", async () => {
    const id = fc.constantFrom(0, 0, 0, 0, 1, 2);
    const ids = fc.array(id, { minLength: 1, maxLength: 30, size: "max" });
    const forgotten = fc.array(fc.nat(40), { maxLength: 4 });
    const isDamaged = fc.boolean();
    await fc.assert(
      fc.asyncProperty(
        fc.array(ids, { minLength: 1, maxLength: 3 }),
        ids,
        forgotten,
        isDamaged,
        async (all, asked, places, damages) => {
          const archive = new MapArchive();
          for (const one of all) await compute(archive, uses, one);
          const kept = [...archive.blobs.keys()];
          for (const place of places) {
            const lost = kept[place % Math.max(1, kept.length)];
            if (lost === undefined) continue;
            // Of another length: it is there, and cannot be read.
            if (damages) archive.blobs.set(lost, new Uint8Array(3));
            else archive.blobs.delete(lost);
          }
          const cells = storeWith(archive, uses);
          const sequence = cells.store.open();
          await cells.store.load(sequence, asked);
          expect(sequence.ids).toEqual(asked.slice(0, sequence.position));
          expect(sequence.position).toBeLessThan(asked.length);
          if (name === "full") expect(sequence.position).toBe(longest(archive, asked));
          cells.verify(sequence);
          await cells.extend(sequence, asked.slice(sequence.position), 3);
          cells.verify(sequence);
          cells.store.dispose();
          expect(cells.memory.bytes).toBe(0);
        },
      ),
      { numRuns: 60 },
    );
  });

  test("finds all of it at the end of a page that a step has ended, and reads no more than it needs", async () => {
    const archive = new MapArchive();
    await compute(archive, uses, numbers(24));
    const cells = storeWith(archive, uses);
    const sequence = cells.store.open();
    await cells.store.load(sequence, [...numbers(24), 50]);
    expect(sequence.position).toBe(24);
    cells.verify(sequence);
    const blocks = uses.flatMap((use) => (use.kind === "cache" ? [use] : []));
    const whole = blocks.some(({ window }) => window === 0) ? 12 : 0;
    const windows = new Set(blocks.map(({ window }) => window).filter((window) => window > 0));
    const inWindows = [...windows].reduce((sum, window) => sum + 12 - Math.floor((24 - window + 1) / POSITIONS), 0);
    expect(archive.reads).toBe(whole + inWindows + (uses.some(({ kind }) => kind === "state") ? 1 : 0));
  });

  test("has no room for it, and computes it", async () => {
    const archive = new MapArchive();
    await compute(archive, uses, numbers(24));
    // For one of them.
    const layout = sequenceLayout(uses, { ...options, type: "f32" });
    const cells = storeWith(archive, uses, { cacheBytes: bytesForSequence(layout, 26, 6) });
    const [held, sequence] = [cells.store.open(), cells.store.open()];
    await cells.extend(
      held,
      Array.from({ length: 24 }, () => 7),
      4,
    );
    await cells.store.load(sequence, [...numbers(24), 50]);
    cells.verify(held);
    cells.verify(sequence);
  });
});

/** Of a model that keeps all: tokens of full pages from the first on, of which the archive has all. */
function longest({ blobs }: MapArchive, ids: readonly number[]): number {
  let count = 0;
  let key = ":";
  while ((count + 1) * POSITIONS < ids.length) {
    key += `${ids.slice(count * POSITIONS, (count + 1) * POSITIONS).join()};`;
    if (!(blobs.get(`${key}-0`)?.length ?? 0) || blobs.get(`${key}-0`)!.length < 4) break;
    count++;
  }
  return count * POSITIONS;
}

describe("an archive", () => {
  test("is told of what is found in memory, and of branches apart", async () => {
    const archive = new MapArchive();
    const cells = storeWith(archive, models.full!);
    const first = cells.store.open([], { branch: "a" });
    await cells.extend(first, numbers(8), 4);
    await archive.flush();
    expect([...archive.blobs.keys()]).toEqual(["a:0,1;-0", "a:0,1;2,3;-0", "a:0,1;2,3;4,5;-0", "a:0,1;2,3;4,5;6,7;-0"]);
    const other = cells.store.open([], { branch: "b" });
    await cells.store.load(other, numbers(9));
    expect(other.position).toBe(0);
    archive.touched.length = 0;
    cells.store.open(numbers(5), { branch: "a" });
    expect(archive.touched).toEqual(["a:0,1;-0", "a:0,1;2,3;-0"]);
  });

  test("is told what scopes may have", () => {
    const archive = new MapArchive();
    const { store } = storeWith(archive, models.all!);
    store.open([], { scope: { salt: "a", pages: 3 } });
    store.open([], { scope: { salt: "b" } });
    const { kinds, stateBytes } = store.layout.shape;
    const bytes = kinds.reduce((sum, { byteLength }) => sum + byteLength, stateBytes);
    expect([...archive.limits]).toEqual([["a", 3 * bytes]]);
  });

  test("gets no pages that were evicted before it asked for them, and none twice", async () => {
    const archive = new MapArchive();
    const cells = storeWith(archive, models.full!);
    const first = cells.store.open();
    await cells.extend(first, numbers(8), 4);
    first.dispose();
    cells.store.clear();
    await archive.flush();
    expect(archive.blobs.size).toBe(0);
    await compute(archive, models.full!, numbers(8));
    const [before] = archive.blobs.values();
    await compute(archive, models.full!, numbers(12));
    expect([archive.blobs.size, archive.blobs.values().next().value]).toEqual([6, before]);
  });

  test("is read while others go on, and for a sequence that is disposed of meanwhile", async () => {
    const archive = new MapArchive();
    await compute(archive, models.full!, numbers(24));
    const cells = storeWith(archive, models.full!);
    const [other, sequence, gone] = [cells.store.open(), cells.store.open(), cells.store.open()];
    const loads = [cells.store.load(sequence, numbers(25)), cells.store.load(gone, numbers(25))];
    gone.dispose();
    await cells.extend(other, [5, 6, 7, 8], 2);
    await Promise.all(loads);
    expect([sequence.position, gone.position]).toEqual([24, 0]);
    for (const one of [other, sequence]) cells.verify(one);
    cells.store.dispose();
    expect(cells.memory.bytes).toBe(0);
  });
});

describe("scopes", () => {
  const ids = numbers(13);
  const publicPrompts = [[...numbers(7), 70, 71]];
  const scopes = {
    everyone: undefined,
    a: { salt: "a" },
    b: { salt: "b" },
    "a, of a public prompt": { salt: "a", publicPrompts },
    "b, of a public prompt": { salt: "b", publicPrompts },
  };
  /**
   * Tokens that each scope finds of what one has computed, of 13, of which 7 are the public prompt's: in memory, where a part of
   * a page is of use, and in an archive, which is asked for the pages of the public prompt as everyone's.
   */
  const found: Record<string, { readonly memory: readonly number[]; readonly archive: readonly number[] }> = {
    everyone: { memory: [12, 0, 0, 7, 7], archive: [12, 0, 0, 6, 6] },
    a: { memory: [0, 12, 0, 12, 0], archive: [0, 12, 0, 0, 0] },
    b: { memory: [0, 0, 12, 0, 12], archive: [0, 0, 12, 0, 0] },
    "a, of a public prompt": { memory: [6, 0, 0, 12, 6], archive: [6, 0, 0, 12, 6] },
    "b, of a public prompt": { memory: [6, 0, 0, 6, 12], archive: [6, 0, 0, 6, 12] },
  };

  test.each(Object.entries(scopes))("of %s find what is theirs, in memory and in an archive", async (name, scope) => {
    const positions = { memory: [] as number[], archive: [] as number[] };
    for (const other of Object.values(scopes)) {
      const archive = new MapArchive();
      const cells = storeWith(archive, models.full!);
      const first = cells.store.open(ids, { scope });
      await cells.extend(first, ids, 4);
      first.dispose();
      await archive.flush();
      const second = cells.store.open(ids, { scope: other });
      cells.verify(second);
      positions.memory.push(second.position);
      const there = storeWith(archive, models.full!);
      const third = there.store.open([], { scope: other });
      await there.store.load(third, ids);
      there.verify(third);
      positions.archive.push(third.position);
    }
    expect(positions).toEqual(found[name]);
  });
});
