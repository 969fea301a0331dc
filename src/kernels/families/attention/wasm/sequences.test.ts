/**
 * Attention over the pages of several sequences: beside the reference, and bit for bit the same however rows, sequences,
 * pages, tiles and threads are arranged.
 */
import { describe, expect, it } from "vitest";
import { type Bench, describeRows, heap, machine, run } from "../../../../../test/support/conformance.ts";
import { looseMemory, type PagedShape, PagedTable, type PageMemory } from "../../../../../test/support/paged.ts";
import { Random } from "../../../../../test/support/random.ts";
import { expectSame } from "../../../../../test/support/same.ts";
import type { Kernel } from "../../../contract.ts";
import type { KvCacheType, Run } from "../../../sequence-table.ts";
import { WasmEngine } from "../../../wasm/engine/engine.ts";
import { hasWideMemory } from "../../../wasm/engine/engine-memory.ts";
import * as table from "../../index.ts";
import type { AttentionArgs, RopeSequenceAttentionArgs, SequenceAttentionArgs } from "../fields.ts";
import { updateAndAttendReference } from "../reference.ts";
import { ropeUpdateAndAttendReference } from "../rope-attention-reference.ts";
import * as rows from "./attention.ts";

const cpu = machine();
const LAYER = 1;
const threadCounts = [1, 2, 3, 8];
const benchOf = (threads: number): Bench => ({ memory: heap, threads });

interface Heads {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
}

interface Case extends Heads {
  readonly type: Exclude<KvCacheType, "int4">;
  readonly window: number;
  readonly softcap: number;
  readonly hasSinks?: boolean;
  readonly pagePositions: number;
}

/** Groups of queries of one row, of several rows, and both; dimensions that fill no vectors. */
const cases: readonly Case[] = [
  { type: "f16", heads: 8, kvHeads: 2, headDim: 16, window: 0, softcap: 0, pagePositions: 32 },
  { type: "f32", heads: 6, kvHeads: 2, headDim: 10, window: 37, softcap: 0, hasSinks: true, pagePositions: 4 },
  { type: "int8", heads: 2, kvHeads: 2, headDim: 20, window: 0, softcap: 5, pagePositions: 64 },
  { type: "f16", heads: 4, kvHeads: 2, headDim: 24, window: 300, softcap: 0, hasSinks: true, pagePositions: 16 },
  { type: "int8", heads: 5, kvHeads: 1, headDim: 9, window: 5, softcap: 0, hasSinks: true, pagePositions: 8 },
  { type: "f32", heads: 3, kvHeads: 3, headDim: 16, window: 0, softcap: 0, pagePositions: 128 },
];

const POSITIONS = 640;
const nameOf = (item: Case) => JSON.stringify(item);

function tableOf(item: Case, slots: number, memory: PageMemory, random: Random): PagedTable {
  const { type, kvHeads, headDim, window, pagePositions } = item;
  const shape: PagedShape = {
    type,
    kvHeads,
    headDim,
    window,
    pagePositions,
    pagesMax: POSITIONS / pagePositions,
    slots,
  };
  return new PagedTable(shape, memory, random);
}

/** Queries, keys and values of some rows. */
interface Rows {
  readonly q: Float32Array;
  readonly k: Float32Array;
  readonly v: Float32Array;
}

function rowsOf({ heads, kvHeads, headDim }: Heads, count: number, random: Random): Rows {
  return {
    q: random.floats(count * heads * headDim, 2),
    k: random.floats(count * kvHeads * headDim, 2),
    v: random.floats(count * kvHeads * headDim, 3),
  };
}

function argsOf(item: Case, paged: PagedTable, count: number, given: Rows): SequenceAttentionArgs {
  const { heads, kvHeads, headDim, window, softcap } = item;
  return {
    ...{ rows: count, heads, kvHeads, headDim, window, softcap, scale: headDim ** -0.5, ...given },
    sinks: item.hasSinks ? Float32Array.from({ length: heads }, (_, head) => head - 1.5) : null,
    ...{ table: paged, pages: paged.layerPages(LAYER)!, y: new Float32Array(count * heads * headDim).fill(7) },
  };
}

/** Runs of all kinds of lengths and places; row 60 is of none. */
const mixedRuns: readonly Run[] = [
  { row: 0, rows: 1, position: 530, slot: 3 },
  { row: 1, rows: 1, position: 0, slot: 0 },
  { row: 2, rows: 3, position: 254, slot: 5 },
  { row: 5, rows: 9, position: 250, slot: 1 },
  { row: 14, rows: 33, position: 100, slot: 4 },
  { row: 47, rows: 4, position: 511, slot: 2 },
  { row: 51, rows: 5, position: 17, slot: 6 },
  { row: 57, rows: 3, position: 257, slot: 7 },
];
const MIXED_ROWS = 61;
const freeRows = [56, 60];
/** Slot 7 begins with the pages of slot 1 up to this position. */
const SHARED = 128;

function mixedTable(item: Case, random: Random): PagedTable {
  const paged = tableOf(item, 8, looseMemory, random);
  const ends = Array.from({ length: 8 }, (_, slot) => mixedRuns.find((r) => r.slot === slot)!.position);
  paged.share(1, 7, SHARED / item.pagePositions);
  paged.fill(LAYER, ends, random);
  paged.setRuns(mixedRuns);
  return paged;
}

/** Every place within a bound of the largest magnitude there can be. */
function expectNear(found: Float32Array, expected: Float32Array, name: string, bound = 1e-4): void {
  for (let i = 0; i < found.length; i++)
    if (!(Math.abs(found[i]! - expected[i]!) <= bound) && !Number.isNaN(expected[i]!))
      expect(found[i], `${name} [${i}]`).toBe(expected[i]);
    else if (Number.isNaN(found[i]!) !== Number.isNaN(expected[i]!))
      expect(found[i], `${name} [${i}]`).toBe(expected[i]);
}

/** Queries, keys and values in one matrix, and angles that turn nothing or something. */
function ropeArgsOf(args: SequenceAttentionArgs, { q, k, v }: Rows, angles: Float32Array): RopeSequenceAttentionArgs {
  const { q: _, k: __, v: ___, ...rest } = args;
  return { ...rest, qkv: columnsOf(args, { q, k, v }), angles, half: angles.length / (2 * args.rows) };
}

function columnsOf({ rows: count }: { rows: number }, { q, k, v }: Rows): Float32Array {
  const part = (all: Float32Array, t: number) => all.subarray((t * all.length) / count, ((t + 1) * all.length) / count);
  return Float32Array.from(
    Array.from({ length: count }, (_, t) => [q, k, v].flatMap((all) => [...part(all, t)])).flat(),
  );
}

const wasm = <A>(family: readonly Kernel<A>[]) => family.filter(({ target }) => target === "wasm");

describeRows(wasm(table.updateAndAttend), cpu, (kernel) => {
  it.each(cases.map((item) => [nameOf(item), item] as const))(
    "attends over mixed runs as the reference: %s",
    (name, item) => {
      const random = new Random(5);
      const paged = mixedTable(item, random);
      const given = rowsOf(item, MIXED_ROWS, random);
      const reference = paged.copy(looseMemory, random);
      const expected = argsOf(item, reference, MIXED_ROWS, given);
      run(updateAndAttendReference, expected, benchOf(1));
      const width = item.heads * item.headDim;
      for (const row of freeRows) expect(expected.y.subarray(row * width, (row + 1) * width)).toEqual(nans(width));
      for (const threads of threadCounts) {
        const own = paged.copy(looseMemory, random);
        const found = argsOf(item, own, MIXED_ROWS, given);
        run(kernel, found, benchOf(threads));
        expectNear(found.y, expected.y, `${name}, ${threads} threads`);
        expectSame(own.bytes(), reference.bytes(), `pages of ${name}, ${threads} threads`);
      }
    },
  );

  it("reads pages that hold keys and values already and writes none", () => {
    const random = new Random(6);
    for (const item of cases.slice(0, 3)) {
      const paged = mixedTable(item, random);
      const given = rowsOf(item, MIXED_ROWS, random);
      const first = argsOf(item, paged, MIXED_ROWS, given);
      run(kernel, first, benchOf(2));
      const before = paged.bytes();
      const again = { ...argsOf(item, paged, MIXED_ROWS, given), k: null, v: null };
      run(kernel, again, benchOf(3));
      expectSame(again.y, first.y, nameOf(item));
      expectSame(paged.bytes(), before, nameOf(item));
    }
  });

  it("leaves out runs that are not all within its rows", () => {
    const item = cases[0]!;
    const random = new Random(7);
    const paged = mixedTable(item, random);
    const given = rowsOf(item, 10, random);
    const before = paged.bytes();
    const args = argsOf(item, paged, 10, given);
    run(kernel, args, benchOf(2));
    const width = item.heads * item.headDim;
    expect(args.y.subarray(0, 5 * width).some(Number.isNaN)).toBe(false);
    expect(args.y.subarray(5 * width)).toEqual(nans(5 * width));
    const changed = paged.bytes().findIndex((byte, i) => byte !== before[i]);
    expect(changed).toBeGreaterThanOrEqual(0);
    paged.setRuns([]);
    const all = paged.bytes();
    run(kernel, args, benchOf(2));
    expect(args.y).toEqual(nans(args.y.length));
    expectSame(paged.bytes(), all);
  });
});

const nans = (length: number) => new Float32Array(length).fill(Number.NaN);

describeRows(wasm(table.ropeUpdateAndAttend), cpu, (kernel) => {
  it.each(cases.map((item) => [nameOf(item), item] as const))(
    "rotates and attends as the reference: %s",
    (name, item) => {
      const random = new Random(8);
      const paged = mixedTable(item, random);
      const given = rowsOf(item, MIXED_ROWS, random);
      const angles = random.floats(MIXED_ROWS * 2 * Math.floor(item.headDim / 2), 1);
      const expected = ropeArgsOf(argsOf(item, paged.copy(looseMemory, random), MIXED_ROWS, given), given, angles);
      run(ropeUpdateAndAttendReference, expected, benchOf(1));
      let first: Float32Array | null = null;
      for (const threads of threadCounts) {
        const own = paged.copy(looseMemory, random);
        const found = ropeArgsOf(argsOf(item, own, MIXED_ROWS, given), given, angles);
        run(kernel, found, benchOf(threads));
        // Integers of keys may differ by one where rotated keys differ in their last bit.
        expectNear(found.y, expected.y, `${name}, ${threads} threads`, item.type === "f32" ? 1e-4 : 5e-2);
        first ??= found.y;
        expectSame(found.y, first, `${name}, ${threads} threads`);
      }
    },
  );
});

/** A sequence of rows from a position on, in steps of some rows each, among others or alone. */
interface Arrangement {
  readonly name: string;
  readonly steps: readonly number[];
  readonly threads: number;
  /** Rows of another sequence before those of the sequence in each step, and after them. */
  readonly others?: readonly [number, number];
}

const N = 37;
const arrangements: readonly Arrangement[] = [
  { name: "at once", steps: [N], threads: 1 },
  { name: "at once, 2 threads", steps: [N], threads: 2 },
  { name: "at once, 3 threads", steps: [N], threads: 3 },
  { name: "one by one", steps: Array(N).fill(1), threads: 1 },
  { name: "one by one, 2 threads", steps: Array(N).fill(1), threads: 2 },
  { name: "one by one, 3 threads", steps: Array(N).fill(1), threads: 3 },
  { name: "one by one, 8 threads", steps: Array(N).fill(1), threads: 8 },
  { name: "in chunks", steps: [5, 2, 1, 17, 3, 4, 5], threads: 2 },
  { name: "two by two, 3 threads", steps: [...Array((N - 1) / 2).fill(2), 1], threads: 3 },
  { name: "one by one among others", steps: Array(N).fill(1), threads: 2, others: [1, 0] },
  { name: "in chunks among others", steps: [7, 1, 4, 2, 16, 7], threads: 3, others: [9, 2] },
];

/** Results of the rows of slot 1 and what its pages hold then. */
function arranged(
  kernel: Kernel<SequenceAttentionArgs>,
  item: Case,
  start: number,
  given: Rows,
  paged: PagedTable,
  { steps, threads, others = [0, 0] }: Arrangement,
) {
  const { heads, kvHeads, headDim } = item;
  const random = new Random(99);
  const y = new Float32Array(N * heads * headDim);
  let done = 0;
  for (const count of steps) {
    const all = others[0] + count + others[1];
    const rowsOfStep = rowsOf(item, all, random);
    const place = (to: Float32Array, from: Float32Array, width: number) =>
      to.set(from.subarray(done * width, (done + count) * width), others[0] * width);
    place(rowsOfStep.q, given.q, heads * headDim);
    place(rowsOfStep.k, given.k, kvHeads * headDim);
    place(rowsOfStep.v, given.v, kvHeads * headDim);
    paged.setRuns(
      [
        { row: 0, rows: others[0], position: 40, slot: 0 },
        { row: others[0], rows: count, position: start + done, slot: 1 },
        { row: others[0] + count, rows: others[1], position: 300, slot: 2 },
      ].filter((part) => part.rows > 0),
    );
    const args = argsOf(item, paged, all, rowsOfStep);
    run(kernel, args, benchOf(threads));
    const width = heads * headDim;
    y.set(args.y.subarray(others[0] * width, (others[0] + count) * width), done * width);
    done += count;
  }
  return y;
}

const kernels = [
  [rows.updateAndAttendWasm, rows.attentionWasm],
  [rows.updateAndAttendRelaxedWasm, rows.attentionRelaxedWasm],
] as const;

for (const [kernel, contiguous] of kernels)
  describeRows([kernel], cpu, () => {
    it.each(cases.flatMap((item) => [0, 247].map((start) => [start, nameOf(item), item] as const)))(
      "gives the same bits from position %i however rows come: %s",
      (start, name, item) => {
        const random = new Random(start);
        const paged = tableOf(item, 3, looseMemory, random);
        paged.fill(LAYER, [40, start, 300], random);
        const given = rowsOf(item, N, random);
        const expected = arranged(kernel, item, start, given, paged.copy(looseMemory, random), arrangements[0]!);
        expect(expected.some(Number.isNaN)).toBe(false);
        for (const arrangement of arrangements.slice(1)) {
          const found = arranged(kernel, item, start, given, paged.copy(looseMemory, random), arrangement);
          expectSame(found, expected, `${name}, ${arrangement.name}`);
        }
        // Caches without pages are of f32 and have no sinks.
        for (const threads of item.hasSinks || item.type !== "f32" ? [] : [1, 3]) {
          const { keys, values } = paged.contiguous(LAYER, 1, 571);
          const args: AttentionArgs = {
            ...argsOf(item, paged, N, given),
            ...{ keyCache: keys.cache as Float32Array, valueCache: values.cache as Float32Array },
            ...{ tokens: N, capacity: 571, position: BigInt64Array.of(BigInt(start)) },
          };
          run(contiguous, args, benchOf(threads));
          expectSame(args.y, expected, `${name}, contiguous, ${threads} threads`);
        }
      },
    );

    it("hides what later rows hold from those before them, and what is behind windows", () => {
      for (const item of cases) {
        const random = new Random(11);
        const paged = tableOf(item, 3, looseMemory, random);
        paged.fill(LAYER, [40, 250, 300], random);
        const given = rowsOf(item, N, random);
        const plain = arranged(kernel, item, 250, given, paged.copy(looseMemory, random), arrangements[0]!);
        for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
          const bad = { q: given.q, k: given.k.slice(), v: given.v.slice() };
          const width = item.kvHeads * item.headDim;
          bad.v.fill(value, 17 * width, 18 * width);
          bad.k.fill(value, 30 * width);
          const y = arranged(kernel, item, 250, bad, paged.copy(looseMemory, random), arrangements[0]!);
          const until = 17 * item.heads * item.headDim;
          expectSame(y.subarray(0, until), plain.subarray(0, until), `${nameOf(item)}, ${value}`);
        }
      }
    });
  });

const wides = hasWideMemory() ? [false, true] : [false];
describe.each(wides)("in an engine, 64-bit addresses: %s", (isWide) => {
  it.each([1, 2, 3])("%i threads give what one call alone gives, bit for bit", async (threads) => {
    const kernel = rows.updateAndAttendWasm;
    const engine = new WasmEngine({ bytes: 1 << 24, threads, isWide });
    const memory: PageMemory = {
      allocate: (byteLength) => engine.allocate(byteLength),
      addressOf: (bytes) => BigInt(bytes.byteOffset),
    };
    const random = new Random(13);
    for (const item of cases) {
      const paged = mixedTable(item, random);
      const given = rowsOf(item, MIXED_ROWS, random);
      const own = paged.copy(memory, random);
      const expected = argsOf(item, paged, MIXED_ROWS, given);
      run(kernel, expected, benchOf(1));
      const placed = (from: Float32Array) => {
        const bytes = memory.allocate(from.byteLength);
        const copy = new Float32Array(bytes.buffer, bytes.byteOffset, from.length);
        copy.set(from);
        return copy;
      };
      const [q, k, v] = [placed(given.q), placed(given.k), placed(given.v)];
      const args = { ...argsOf(item, own, MIXED_ROWS, { q, k, v }), y: placed(expected.y) };
      args.y.fill(0);
      const scratch = engine.allocate(kernel.scratchBytes!(args, engine.threads));
      const plan = engine.planCalls([kernel.encode!(args, scratch)]);
      for (let again = 0; again < 2; again++) await plan.run(engine.abort);
      expectSame(args.y.slice(), expected.y, nameOf(item));
      expectSame(own.bytes(), paged.bytes(), nameOf(item));
      plan.dispose();
    }
    await engine.dispose();
  });
});
