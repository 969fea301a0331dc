import { describe, expect, test } from "vitest";
import { CellStore } from "../../test/support/sequence-cells.ts";
import { memorySource } from "../byte-source.ts";
import { ContextLengthError, InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { SequenceUse } from "../kernels/sequence-table.ts";
import { bytesForSequence, sequenceLayout } from "./layout.ts";
import type { Sequence } from "./sequence.ts";
import { SequenceStore } from "./store.ts";

const cache = (layer: number, window = 0, kvHeads = 1): SequenceUse => ({
  kind: "cache",
  layer,
  kvHeads,
  headDim: 1,
  window,
});
const state = (index: number): SequenceUse => ({ kind: "state", index, byteLength: 8 });
const options = { contextLength: 64, sequences: 2, cacheBytes: 1 << 20, pagePositions: 4, stepTokens: 8 };
const numbers = (length: number, first = 0) => Array.from({ length }, (_, i) => first + i);

describe("prefixes", () => {
  test("a sequence begins with what another has computed, full pages and parts of them, but for the last id", async () => {
    const cells = new CellStore([cache(0), cache(1)], options);
    const first = cells.store.open();
    await cells.extend(first, numbers(14), 5);
    expect(cells.store.open(numbers(14)).ids).toEqual(numbers(12));
    expect(cells.store.open(numbers(12)).position).toBe(11);
    expect(cells.store.open([...numbers(7), 50, 51]).position).toBe(7);
    expect(cells.store.open([1]).position).toBe(0);
    expect(cells.store.open(numbers(14), { branch: "long" }).position).toBe(0);
    first.dispose();
    const later = cells.store.open([...numbers(10), 60, 61, 62]);
    expect(later.position).toBe(10);
    await cells.extend(later, [60, 61, 62]);
    expect(later.ids).toEqual([...numbers(10), 60, 61, 62]);
    expect(cells.store.statistics.reusedTokens).toBe(12 + 11 + 7 + 10);
  });

  test("two that compute the same hold it once", async () => {
    const cells = new CellStore([cache(0)], options);
    const [a, b] = [cells.store.open(), cells.store.open()];
    await cells.extend(a, numbers(8));
    await cells.extend(b, numbers(8));
    expect(cells.store.statistics).toMatchObject({ pages: 2, sharedPages: 2, sequences: 2 });
  });

  test("a fork shares all pages, and the last one until one of them goes on", async () => {
    const cells = new CellStore([cache(0)], options);
    const parent = cells.store.open();
    await cells.extend(parent, numbers(6));
    const forks = [parent.fork(), parent.fork()];
    expect(cells.store.statistics).toMatchObject({ pages: 2, sharedPages: 2 });
    for (const [i, fork] of forks.entries()) expect(await cells.extend(fork, [70 + i])).toBe(true);
    await cells.extend(parent, [80]);
    expect(cells.store.statistics).toMatchObject({ pages: 4, sharedPages: 1 });
    for (const sequence of [parent, ...forks]) sequence.dispose();
    expect(cells.store.statistics).toMatchObject({ pages: 0, idlePages: 1, sequences: 0 });
  });
});

describe("windows", () => {
  test("pages behind a window are given back as a sequence grows, and those of full layers stay", async () => {
    const cells = new CellStore([cache(0), cache(1, 8)], { ...options, contextLength: 1024, cacheBytes: 1 << 18 });
    const sequence = cells.store.open();
    const used: number[] = [];
    for (let i = 0; i < 32; i++) {
      await cells.extend(sequence, numbers(8, 8 * i));
      used.push(cells.store.statistics.usedBytes);
    }
    const growth = used.map((bytes, i) => bytes - (used[i - 1] ?? 0));
    // Two pages of 64 bytes for keys and as many for values, of one layer.
    expect(new Set(growth.slice(8))).toEqual(new Set([2 * 128]));
    expect(growth[0]).toBe(4 * 128);
  });

  test("what a window has left behind cannot be gone back to, but a little can", async () => {
    const cells = new CellStore([cache(0), cache(1, 8)], options);
    const sequence = cells.store.open();
    await cells.extend(sequence, numbers(40), 4);
    const fork = sequence.fork();
    expect(fork.truncate(37)).toBe(37);
    await cells.extend(fork, [99, 98]);
    expect(sequence.truncate(20)).toBe(0);
    expect(await cells.extend(sequence, numbers(12))).toBe(true);
  });

  test("a fork keeps the window that it stands at", async () => {
    const cells = new CellStore([cache(0), cache(1, 8)], options);
    const sequence = cells.store.open();
    await cells.extend(sequence, numbers(20), 4);
    const pin = sequence.fork();
    await cells.extend(sequence, numbers(20, 20), 4);
    const later = cells.store.open([...numbers(20), 77, 78]);
    expect(later.position).toBe(20);
    expect(await cells.extend(later, [77, 78])).toBe(true);
    later.dispose();
    pin.dispose();
    expect(cells.store.open([...numbers(20), 77, 78]).position).toBe(0);
  });
});

describe("recurrent state", () => {
  test("a sequence goes back to the ends of pages where a step has ended", async () => {
    const cells = new CellStore([cache(0), state(0), state(1)], options);
    const sequence = cells.store.open();
    expect(sequence.nextBoundary).toBe(4);
    await cells.extend(sequence, numbers(4));
    await cells.extend(sequence, numbers(6, 4));
    expect(sequence.nextBoundary).toBe(12);
    await cells.extend(sequence, numbers(2, 10));
    await cells.extend(sequence, numbers(1, 12));
    expect(sequence.truncate(11)).toBe(4);
    expect(await cells.extend(sequence, [40, 41])).toBe(true);
    expect(cells.store.open([...numbers(12), 5]).position).toBe(12);
    expect(cells.store.open([...numbers(11), 5]).position).toBe(4);
    expect(sequence.truncate(3)).toBe(0);
  });

  test("a long sequence keeps few states: those near its end, those where others part, and ever fewer before", async () => {
    const cells = new CellStore([cache(0), state(0)], { ...options, contextLength: 1024 });
    const sequence = cells.store.open();
    await cells.extend(sequence, numbers(100), 4);
    await cells.extend(cells.store.open([...numbers(68), 5000]), [5000, 5001, 5002, 5003], 4);
    await cells.extend(sequence, numbers(924, 100), 4);
    const reached = numbers(256, 1).map((page) => {
      const other = cells.store.open([...numbers(4 * page), 5000, 5001]);
      const { position } = other;
      other.dispose();
      // What must be computed again is no more than what lies between there and the end.
      expect(4 * page - position).toBeLessThanOrEqual(1024 - 4 * page + 4);
      return position;
    });
    const kept = new Set(reached);
    expect(kept.size).toBeLessThan(20);
    for (const position of [1024, 1020, 1016, 68]) expect(kept).toContain(position);
  });

  test("forks go on from one state by themselves", async () => {
    const cells = new CellStore([cache(0), state(0)], options);
    const sequence = cells.store.open();
    await cells.extend(sequence, numbers(5));
    const fork = sequence.fork();
    await cells.extend(sequence, [20]);
    await cells.extend(fork, [30]);
    await cells.extend(sequence, [21]);
    expect(fork.ids).toEqual([...numbers(5), 30]);
  });

  test("all tokens of a step are committed, since its state has seen them", async () => {
    const cells = new CellStore([cache(0), state(0)], options);
    const sequence = cells.store.open();
    sequence.reserve(3);
    await cells.step([{ sequence, ids: [1, 2, 3] }]);
    expect(() => sequence.commit([1, 2])).toThrow("expected 3 tokens, those of the last step, but found 2");
    sequence.commit([1, 2, 3]);
  });
});

describe("steps", () => {
  test("run several sequences, more than there are slots in turn, and only so many at once", async () => {
    const cells = new CellStore([cache(0)], options);
    const all = [0, 1, 2, 3].map(() => cells.store.open());
    for (const round of [0, 1, 2])
      for (const pair of [all.slice(0, 2), all.slice(1, 3), all.slice(2)]) {
        const runs = pair.map((sequence, i) => ({ sequence, ids: numbers(1 + i + round) }));
        for (const { sequence, ids } of runs) expect(sequence.reserve(ids.length)).toBe(true);
        await cells.step(runs);
        for (const { sequence, ids } of runs) sequence.commit(ids);
      }
    const runs = all.map((sequence) => ({ sequence, ids: [1] }));
    await expect(cells.step(runs)).rejects.toThrow("expected from 1 to 2 sequences in a step but found 4");
  });

  test("one that fails changes nothing, and only what was computed is committed", async () => {
    const cells = new CellStore([cache(0), cache(1, 4)], options);
    const sequence = cells.store.open();
    await cells.extend(sequence, numbers(6));
    sequence.reserve(4);
    await expect(cells.step([{ sequence, ids: [50, 51, 52, 53] }], { fails: true })).rejects.toThrow("aborted");
    expect(sequence.ids).toEqual(numbers(6));
    expect(() => sequence.commit([50])).toThrow("expected at most 0 tokens, those of the last step, but found 1");
    await cells.step([{ sequence, ids: [60, 61, 62] }]);
    sequence.commit([60]);
    expect(await cells.extend(sequence, [70, 71])).toBe(true);
    expect(sequence.ids).toEqual([...numbers(6), 60, 70, 71]);
  });

  test("a sequence in a step may be disposed of and forked, not changed", async () => {
    const cells = new CellStore([cache(0)], options);
    const sequence = cells.store.open();
    await cells.extend(sequence, numbers(5));
    sequence.reserve(2);
    let fork = sequence;
    await cells.store.step([{ sequence, tokens: 2 }], async () => {
      expect(() => sequence.truncate(2)).toThrow(InvalidArgumentError);
      expect(() => sequence.reserve(1)).toThrow("expected a sequence that is not in a step");
      await expect(cells.store.step([{ sequence, tokens: 2 }], async () => {})).rejects.toThrow("one step at a time");
      fork = sequence.fork();
      const before = cells.store.statistics.usedBytes;
      sequence.dispose();
      expect(cells.store.statistics.usedBytes).toBe(before);
    });
    expect(() => sequence.fork()).toThrow("expected an open sequence but found one that was disposed of");
    expect(await cells.extend(fork, [9, 8, 7])).toBe(true);
    fork.dispose();
    expect(cells.store.statistics).toMatchObject({ sequences: 0, pages: 0 });
  });
});

describe("memory", () => {
  test("a context that is not used takes nothing but its table", () => {
    const cells = new CellStore([cache(0)], {
      ...options,
      contextLength: 131072,
      cacheBytes: 2 ** 33,
      pagePositions: 32,
    });
    cells.store.open();
    expect(cells.store.statistics.bytes).toBe(0);
    expect(cells.memory.bytes).toBeLessThan(2 * 4096 * 8 + 1024);
  });

  test("the least recently used pages make room, and reserve is false when all are held", async () => {
    const cells = new CellStore([cache(0)], { ...options, cacheBytes: 8 * 128 });
    const [old, newer] = [cells.store.open(), cells.store.open()];
    await cells.extend(old, numbers(8));
    await cells.extend(newer, numbers(8, 20));
    old.dispose();
    newer.dispose();
    const big = cells.store.open();
    expect(await cells.extend(big, numbers(20, 40), 4)).toBe(true);
    expect(cells.store.open(numbers(8)).position).toBe(4);
    expect(cells.store.open(numbers(8, 20)).position).toBe(7);
    expect(big.reserve(8)).toBe(false);
    expect(big.position).toBe(20);
    expect(cells.store.statistics.bytes).toBeLessThanOrEqual(8 * 128);
  });

  /** 16 sequences of one page, each with slabs of its own: all that was between them is given up. */
  async function scattered(): Promise<{ cells: CellStore; kept: Sequence[] }> {
    const sizes = { contextLength: 1800, sequences: 16, cacheBytes: 1 << 16 };
    const cells = new CellStore([cache(0), cache(1, 4)], { ...options, ...sizes });
    const all = numbers(256).map(() => cells.store.open());
    for (const [i, sequence] of all.entries()) expect(await cells.extend(sequence, [i, 0, 0])).toBe(true);
    const kept = all.filter((_, i) => i % 16 === 0);
    for (const sequence of all) if (!kept.includes(sequence)) sequence.dispose();
    expect(cells.store.statistics).toMatchObject({ pages: 16, bytes: 1 << 16 });
    return { cells, kept };
  }

  const stepAll = async (cells: CellStore, kept: readonly Sequence[]) => {
    const runs = kept.map((sequence) => ({ sequence, ids: [1] }));
    for (const { sequence } of runs) expect(sequence.reserve(1)).toBe(true);
    await cells.step(runs);
    for (const { sequence, ids } of runs) sequence.commit(ids);
  };

  test("kinds give each other room: what is moved is found where it is then", async () => {
    const { cells, kept } = await scattered();
    const grown = kept[0]!;
    // 440 pages of full layers: more than half of all blocks, which were shared evenly.
    expect(await cells.extend(grown, numbers(1752), 8)).toBe(true);
    await stepAll(cells, kept);
    for (const sequence of kept) cells.verify(sequence);
    expect(cells.store.statistics.bytes).toBeLessThanOrEqual(1 << 16);
  });

  test("slabs that are nearly empty are given back, one a step", async () => {
    const { cells, kept } = await scattered();
    for (let i = 0; i < 20; i++) await stepAll(cells, kept);
    // Of 16 slabs of 2048 bytes of each kind; each sequence has 6 pages by now.
    expect(cells.store.statistics.bytes).toBeLessThanOrEqual(16 * 6 * 2 * 128 * 2);
    for (const sequence of kept) cells.verify(sequence);
  });

  test("nothing moves while a step runs, and what has no room meanwhile has it afterwards", async () => {
    const { cells: others } = await scattered();
    const saved = others.store.open();
    expect(await others.extend(saved, numbers(1600), 8)).toBe(true);
    const file = memorySource("file", new Uint8Array(Buffer.concat([...others.store.save(saved, "")])));
    const { cells, kept } = await scattered();
    for (const sequence of kept) expect(sequence.reserve(1)).toBe(true);
    const runs = kept.map((sequence) => ({ sequence, tokens: 1 }));
    const places = () =>
      kept.flatMap(({ pages }) => pages.flatMap(({ blocks }) => blocks.map((block) => block?.address)));
    await cells.store.step(runs, async () => {
      const before = places();
      await expect(cells.store.restore(file, "")).rejects.toThrow("file: expected room for 1600 tokens");
      expect(places()).toEqual(before);
    });
    cells.verify(await cells.store.restore(file, ""));
    for (const sequence of kept) cells.verify(sequence);
  });

  test("what no sequence reads makes room, even in pages that one holds", async () => {
    const cells = new CellStore([cache(0), cache(1, 8)], { ...options, contextLength: 256, cacheBytes: 40 * 128 });
    const sequence = cells.store.open();
    await cells.extend(sequence, numbers(20), 4);
    const pin = sequence.fork();
    await cells.extend(sequence, numbers(21, 20), 4);
    sequence.dispose();
    pin.dispose();
    const later = cells.store.open(numbers(41));
    expect(later.position).toBe(40);
    expect(later.pages.slice(0, 5).some(({ blocks }) => blocks[1])).toBe(true);
    const other = cells.store.open();
    while (other.reserve(4)) await cells.extend(other, numbers(4, other.position + 100));
    expect(later.pages.slice(0, 5).some(({ blocks }) => blocks[1])).toBe(false);
    other.dispose();
    expect(await cells.extend(later, [40])).toBe(true);
  });

  test("where the memory has no more, that is the limit", async () => {
    const cells = new CellStore([cache(0)], options);
    cells.memory.bytesMax = cells.memory.bytes + 70_000;
    const sequence = cells.store.open();
    const slab = 65536;
    expect(await cells.extend(sequence, numbers(64), 8)).toBe(true);
    const others = numbers(40).map((i) => ({ sequence: cells.store.open(), ids: numbers(56, 100 * i) }));
    const grown: boolean[] = [];
    for (const { sequence, ids } of others) grown.push(await cells.extend(sequence, ids, 8));
    expect(grown).toContain(false);
    expect(cells.store.statistics).toMatchObject({ bytes: slab, limitBytes: slab });
  });

  test("all of it is given back", async () => {
    const cells = new CellStore([cache(0), cache(1, 8), state(0)], options);
    const sequence = cells.store.open();
    await cells.extend(sequence, numbers(30), 8);
    cells.store.dispose();
    expect(sequence.isDisposed).toBe(true);
    expect(cells.memory.bytes).toBe(0);
    expect(() => cells.store.open()).toThrow(UnsupportedError);
  });
});

describe("bad input", () => {
  test.each([
    [{ contextLength: 0 }, "contextLength: expected a whole number from 1 to 2147483647 but found 0"],
    [{ sequences: 1.5 }, "sequences: expected a whole number"],
    [{ pagePositions: 12 }, "pagePositions: expected a power of two but found 12"],
    [{ cacheBytes: 500 }, "cacheBytes: expected at least 547, for 12 tokens of one sequence in f32, but found 500"],
    [{ cacheBytes: Number.NaN }, "cacheBytes: expected at least 547"],
  ])("%j", (wrong, message) => {
    expect(() => new CellStore([cache(0)], { ...options, ...wrong })).toThrow(InvalidArgumentError);
    expect(() => new CellStore([cache(0)], { ...options, ...wrong })).toThrow(message);
  });

  test("calls of one layer that differ", () => {
    expect(() => new CellStore([cache(0), cache(0, 0, 2)], options)).toThrow(
      "layer 0: expected keys and values of one shape but found [1, 1] and [2, 1]",
    );
    const cells = new CellStore([cache(0, 8), cache(0, 4), cache(1, 64)], options);
    // The longest window is kept.
    expect(cells.store.layout.kinds).toMatchObject([
      { window: 8, layers: 1 },
      { window: 0, layers: 1 },
    ]);
    const all = new CellStore([cache(0, 8), cache(0), cache(0, 4)], options);
    expect(all.store.layout.kinds).toMatchObject([{ window: 0, layers: 1 }]);
  });

  test("sequences that cannot do what they are asked", async () => {
    const cells = new CellStore([cache(0)], options);
    const sequence = cells.store.open();
    expect(() => sequence.reserve(65)).toThrow(ContextLengthError);
    expect(() => sequence.reserve(0)).toThrow("sequence.reserve: expected at least one token but found 0");
    await expect(cells.step([{ sequence, ids: [1] }])).rejects.toThrow("found no room reserved for 1 tokens");
    sequence.reserve(1);
    await cells.step([{ sequence, ids: [1] }]);
    expect(() => sequence.commit([-1])).toThrow("expected token ids but found -1");
    expect(() => sequence.commit([1, 2])).toThrow("expected at most 1 tokens");
    sequence.commit([1]);
    expect(() => sequence.truncate(2)).toThrow("expected a position from 0 to 1 but found 2");
    expect(() => sequence.match([1])).toThrow("expected a sequence without tokens but found 1");
    const other = new SequenceStore(cells.memory, cells.uses, { ...options, type: "f32" });
    await expect(other.step([{ sequence, tokens: 1 }], async () => {})).rejects.toThrow("of this store");
    sequence.dispose();
    sequence.dispose();
    for (const call of [() => sequence.fork(), () => sequence.reserve(1), () => sequence.release()])
      expect(call).toThrow("expected an open sequence but found one that was disposed of");
  });
});

describe("a flood of one salt", () => {
  test.each([
    ["full pages", [cache(0)]],
    ["states, too", [cache(0), state(0)]],
  ])("takes nothing from another that has less of %s", async (_name, uses) => {
    const layout = sequenceLayout(uses, { ...options, type: "f32" });
    // Of some 40 pages.
    const cells = new CellStore(uses, { ...options, cacheBytes: 5 * bytesForSequence(layout, 32, 8) });
    const prompt = (salt: number) => numbers(24, 1000 * salt);
    const run = async (salt: string, ids: readonly number[]) => {
      const sequence = cells.store.open(ids, { scope: { salt } });
      const found = sequence.position;
      await cells.extend(sequence, ids.slice(found), 4);
      cells.verify(sequence);
      sequence.dispose();
      return found;
    };
    await run("a", prompt(1));
    for (let i = 0; i < 100; i++) await run("b", prompt(2 + i));
    expect(cells.store.statistics.evictedPages).toBeGreaterThan(300);
    expect(await run("a", prompt(1))).toBeGreaterThanOrEqual(20);
    // Those who flood find the last of what they had.
    expect(await run("b", prompt(101))).toBeGreaterThanOrEqual(20);
  });

  test("ends at the pages that the salt may have, from which others are free", async () => {
    const uses = [cache(0)];
    const layout = sequenceLayout(uses, { ...options, type: "f32" });
    const cells = new CellStore(uses, { ...options, cacheBytes: 5 * bytesForSequence(layout, 32, 8) });
    const run = async (salt: string, ids: readonly number[], pages?: number) => {
      const sequence = cells.store.open(ids, { scope: { salt, pages } });
      const found = sequence.position;
      await cells.extend(sequence, ids.slice(found), 4);
      sequence.dispose();
      return found;
    };
    const prompt = (seed: number) => numbers(16, 1000 * seed);
    for (const seed of [1, 2, 3]) await run("a", prompt(seed), 8);
    for (const seed of [4, 5, 6]) await run("b", prompt(seed));
    expect(await run("a", prompt(3), 8)).toBeGreaterThanOrEqual(12);
    expect(await run("b", prompt(4))).toBeGreaterThanOrEqual(12);
    expect(await run("a", prompt(1), 8)).toBe(0);
  });
});
