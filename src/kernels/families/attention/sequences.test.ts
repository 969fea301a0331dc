/**
 * Attention over the pages of several sequences: every native row against plain loops in double precision, and against
 * itself, bit for bit: a row's result must not depend on the rows beside it, on threads, or on where pages lie.
 */
import { expect, it } from "vitest";
import { type Bench, describeRows, heap, isEmulated, machine, run } from "../../../../test/support/conformance.ts";
import { madeOnce } from "../../../../test/support/made-once.ts";
import { Random } from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import { pageBytesOf, residualStart, Sequences, type SequencesShape } from "../../../../test/support/sequences.ts";
import { f32ToF16 } from "../../../half.ts";
import type { Kernel } from "../../contract.ts";
import { processMemory } from "../../memory.ts";
import { INT4_POSITIONS, type KvCacheType, kvCacheTypes, partOffsets, type Run } from "../../sequence-table.ts";
import { attention, ropeUpdateAndAttend, updateAndAttend } from "../index.ts";
import type { SequenceAttentionArgs } from "./fields.ts";

const memory = processMemory();
const cpu = machine();
const reference = updateAndAttend.at(-1)!;
const bench = (threads: number): Bench => ({ memory: heap, threads });

/** Sizes of a call but for its rows. */
interface Sizes extends Omit<SequencesShape, "slots" | "layer"> {
  readonly heads: number;
  readonly softcap: number;
  readonly hasSinks?: boolean;
}

/** Bytes of `pages` pages as a cache may hold them. */
function randomPages(random: Random, shape: Sizes, pages: number): Uint8Array {
  const pageBytes = pageBytesOf(shape);
  const bytes = new Uint8Array(pages * pageBytes);
  const layer = partOffsets(shape).layerBytes;
  for (let page = 0; page < bytes.length; page += pageBytes) {
    const start = page + residualStart(shape);
    for (let at = page; at < start; at += layer) fillLayer(random, shape, bytes, at);
    const halves = { ...shape, type: "f16" as const };
    const { layerBytes } = partOffsets(halves);
    for (let at = start; at < page + pageBytes; at += layerBytes) fillLayer(random, halves, bytes, at);
  }
  return bytes;
}

function fillLayer(random: Random, shape: Sizes, { buffer }: Uint8Array, at: number): void {
  const { type, kvHeads, headDim, pagePositions } = shape;
  const { keys, values, keyScales, valueScales, layerBytes } = partOffsets(shape);
  if (type === "int4") {
    for (let i = at; i < at + keyScales; i++) new Uint8Array(buffer)[i] = random.integer(0, 255);
    const scales = random.floats((layerBytes - keyScales) / 2, 0.1);
    new Uint16Array(buffer, at + keyScales, scales.length).set(scales.map((scale) => f32ToF16(Math.abs(scale))));
    return;
  }
  const rows = pagePositions * kvHeads;
  for (const part of [at + keys, at + values]) {
    const floats = random.floats(rows * headDim, 2);
    if (type === "f32") new Float32Array(buffer, part, floats.length).set(floats);
    else if (type === "f16") new Uint16Array(buffer, part, floats.length).set(floats.map(f32ToF16));
    else new Int8Array(buffer, part, floats.length).set(floats.map((value) => 63 * value));
  }
  if (type === "int8")
    for (const part of [at + keyScales, at + valueScales])
      new Float32Array(buffer, part, rows).set(random.floats(rows, 0.02));
}

/** Scores without values, some below all others, some above. */
const sinksOf = (heads: number) => Float32Array.from({ length: heads }, (_, head) => 2 * head - 3);

/** Arguments of a call, without its sequences. */
function rowArgs(random: Random, { heads, kvHeads, headDim, window, softcap, hasSinks }: Sizes, rows: number) {
  return {
    ...{ rows, heads, kvHeads, headDim, window, softcap, scale: headDim ** -0.5 },
    sinks: hasSinks ? sinksOf(heads) : null,
    q: random.floats(rows * heads * headDim, 2),
    k: random.floats(rows * kvHeads * headDim, 2),
    v: random.floats(rows * kvHeads * headDim, 3),
    y: new Float32Array(rows * heads * headDim),
  };
}

/** Runs of a step with pages in random order; pages that the first two slots only read are the same ones. */
function randomStep(random: Random, sizes: Sizes) {
  const { pagePositions, window } = sizes;
  const runs: Run[] = [];
  let row = 0;
  for (let slot = random.integer(1, 5) - 1; slot >= 0; slot--) {
    const rows = random.pick([1, 1, 2, 4, 5, 17]);
    row += random.integer(0, 3) === 0 ? 2 : 0;
    runs.push({ row, rows, position: random.pick([0, 1, 30, 63, 64, 100, 250]), slot });
    row += rows;
  }
  const slots: number[][] = Array.from({ length: runs.length }, () => []);
  const readOnly = Math.min(...runs.slice(-2).map(({ position }) => Math.floor(position / pagePositions)));
  let pages = 0;
  for (const { slot, rows, position } of runs.toReversed()) {
    const firstRead = window > 0 ? Math.max(0, Math.floor((position - window + 1) / pagePositions)) : 0;
    const count = Math.ceil((position + rows) / pagePositions);
    slots[slot] = Array.from({ length: count }, (_, index) => {
      if (index < firstRead) return -1;
      const shared = slots[0]![index];
      return slot === 1 && index < readOnly && shared !== undefined && shared >= 0 ? shared : pages++;
    });
  }
  const order = Array.from({ length: pages }, (_, i) => i);
  for (let i = pages - 1; i > 0; i--) {
    const j = random.integer(0, i);
    [order[i], order[j]] = [order[j]!, order[i]!];
  }
  const shape = { ...sizes, layer: 1, slots: slots.map((numbers) => numbers.map((page) => order[page] ?? -1)) };
  return { runs, rows: row + random.integer(0, 2), shape, bytes: randomPages(random, sizes, pages) };
}

function* allSizes(): Generator<Sizes> {
  const heads = [
    { heads: 1, kvHeads: 1, headDim: 5 },
    { heads: 4, kvHeads: 4, headDim: 16 },
    { heads: 6, kvHeads: 2, headDim: 33 },
    { heads: 8, kvHeads: 2, headDim: 64 },
    { heads: 14, kvHeads: 2, headDim: 24 },
  ];
  const limits = [
    { window: 0, softcap: 0 },
    { window: 40, softcap: 0, hasSinks: true },
    { window: 120, softcap: 20 },
  ];
  for (const [i, size] of heads.entries())
    for (const limit of limits)
      for (const type of kvCacheTypes) yield { ...size, ...limit, ...pagesOf(type, [32, 8, 64, 16, 1][i]!) };
}

/** Pages of int4 have one size. */
function pagesOf(type: KvCacheType, pagePositions: number) {
  return { type, pagePositions: type === "int4" ? INT4_POSITIONS : pagePositions };
}

/** Queries and weights are two bytes where pages are of int4. */
const INT4_BOUND = 2e-4;

/** Distance over length of what are numbers; infinite where not the same are. */
function distance(found: Float32Array, expected: Float32Array): number {
  let error = 0;
  let length = 0;
  for (let i = 0; i < expected.length; i++) {
    if (Number.isNaN(found[i]!) !== Number.isNaN(expected[i]!)) return Number.POSITIVE_INFINITY;
    if (Number.isNaN(expected[i]!)) continue;
    error += (found[i]! - expected[i]!) ** 2;
    length += expected[i]! ** 2;
  }
  return Math.sqrt(error / Math.max(length, 1e-30));
}

/** Steps, and what the reference makes of them. */
const stepCases = () =>
  madeOnce("steps over pages by the reference", () => {
    const random = new Random(38);
    return [...allSizes()].map((sizes) => {
      const { runs, rows, shape, bytes } = randomStep(random, sizes);
      const args = rowArgs(random, sizes, rows);
      const sequences = new Sequences(memory, shape, bytes);
      sequences.setRuns(runs);
      run(reference, { ...args, table: sequences.table, pages: sequences.pages }, bench(1));
      const expected = sequences.bytes.slice(0, bytes.length);
      return { name: JSON.stringify({ sizes, runs }), sizes, runs, shape, bytes, args, expected };
    });
  });

const native = <A>(rows: readonly Kernel<A>[]) => rows.filter(({ target }) => target === "native");

describeRows(native(updateAndAttend), cpu, (kernel) => {
  it("is softmax(q k) v of each row over its own sequence, and stores what the reference stores", () => {
    for (const { name, sizes, runs, shape, bytes, args, expected } of stepCases())
      for (const threads of [1, 3]) {
        const found = new Sequences(memory, shape, bytes);
        found.setRuns(runs);
        const y = new Float32Array(args.y.length).fill(-7);
        run(kernel, { ...args, y, table: found.table, pages: found.pages }, bench(threads));
        const bounds = { f32: 1e-5, f16: 1e-5, int8: 5e-5, int4: INT4_BOUND };
        expect(distance(y, args.y), name).toBeLessThan(bounds[sizes.type]);
        expectSame(found.bytes.subarray(0, expected.length), expected, name);
      }
  });

  it("leaves out runs that are beyond the rows of the call, or beyond their pages", () => {
    const sizes: Sizes = { type: "f32", heads: 2, kvHeads: 1, headDim: 8, window: 0, softcap: 0, pagePositions: 8 };
    const random = new Random(2);
    const shape = {
      ...sizes,
      layer: 1,
      slots: [
        [0, 1],
        [2, 3],
        [4, 5],
      ],
    };
    const bytes = randomPages(random, sizes, 6);
    const args = rowArgs(random, sizes, 7);
    const runs = [
      { row: 0, rows: 2, position: 3, slot: 0 },
      { row: 2, rows: 3, position: 14, slot: 1 },
      { row: 5, rows: 3, position: 0, slot: 2 },
    ];
    const found = new Sequences(memory, shape, bytes);
    found.setRuns(runs);
    const y = new Float32Array(8 * 16).fill(-7);
    run(kernel, { ...args, y: y.subarray(0, 7 * 16), table: found.table, pages: found.pages }, bench(2));
    expect(y.subarray(0, 32).every(Number.isFinite)).toBe(true);
    expect(y.subarray(32, 112).every(Number.isNaN)).toBe(true);
    expect(y.subarray(112).every((value) => value === -7)).toBe(true);
    expectSame(found.bytes.subarray(2 * pageBytesOf(sizes)), bytes.subarray(2 * pageBytesOf(sizes)));
  });
});

/** Rows that take prompts over all but floats as words of 16 bits. */
const takesWords = ({ name }: Pick<Kernel<never>, "name">) => /x(16_avx2|16_avx_vnni|32_avx512_vnni)$/.test(name);

/** Rows that take those as tiles of bf16. */
const takesTiles = ({ needs }: Pick<Kernel<never>, "needs">) => needs.includes("amx_bf16");

/** Prompts beside a single row: rows of them, and positions before them. */
const prompts = [
  { rows: 32, position: 0 },
  { rows: 45, position: 70 },
  { rows: 131, position: 250 },
];

/** Prompts over every shape, and what the reference makes of them. */
const promptCases = () =>
  madeOnce("prompts over pages by the reference", () => {
    const random = new Random(55);
    return [...allSizes()].map((sizes, i) => {
      const { rows, position } = prompts[i % prompts.length]!;
      const runs: Run[] = [
        { row: 0, rows: 1, position: 40, slot: 0 },
        { row: 2, rows, position, slot: 1, isPrefill: true },
      ];
      const counts = runs.map((run) => Math.ceil((run.position + run.rows) / sizes.pagePositions));
      const slots = counts.map((count, slot) => Array.from({ length: count }, (_, page) => slot * counts[0]! + page));
      const bytes = randomPages(random, sizes, counts[0]! + counts[1]!);
      const args = rowArgs(random, sizes, rows + 2);
      const shape = { ...sizes, layer: 1, slots };
      const sequences = new Sequences(memory, shape, bytes);
      sequences.setRuns(runs);
      run(reference, { ...args, table: sequences.table, pages: sequences.pages }, bench(1));
      return { name: JSON.stringify({ sizes, runs }), sizes, runs, shape, bytes, args };
    });
  });

describeRows(native(updateAndAttend), cpu, (kernel) => {
  it("is within what factors of its prompts are rounded to", () => {
    // bf16 has 2^-9 of a value, and its weights 0.8 % at most, over halves and integers: a few of them in a sum.
    // Words of 16 bits: values have 12 of them at least, and weights 13.
    const inexact = takesTiles(kernel) ? 6e-3 : takesWords(kernel) ? 6e-4 : null;
    for (const { name, sizes, runs, shape, bytes, args } of promptCases())
      for (const threads of [1, 3]) {
        const found = new Sequences(memory, shape, bytes);
        found.setRuns(runs);
        const y = new Float32Array(args.y.length);
        run(kernel, { ...args, y, table: found.table, pages: found.pages }, bench(threads));
        const rounded = inexact ?? 0;
        const bounds = { f32: 1e-5, f16: rounded || 1e-5, int8: rounded || 1e-4, int4: rounded || INT4_BOUND };
        expect(distance(y, args.y), `${name}, ${threads} threads`).toBeLessThan(bounds[sizes.type]);
      }
  });
});

/** q, k and v of some positions of two sequences, as rows of a step. */
class Tokens {
  readonly #all: readonly ReturnType<typeof rowArgs>[];
  readonly #sizes: Sizes;

  constructor(random: Random, sizes: Sizes, positions: number) {
    this.#sizes = sizes;
    this.#all = [0, 1].map(() => rowArgs(random, sizes, positions));
  }

  /** The arguments of a step of these runs, whose positions begin at `first`. */
  args(runs: readonly Run[], first: number) {
    const { heads, kvHeads, headDim } = this.#sizes;
    const rows = runs.reduce((sum, run) => sum + run.rows, 0);
    const joined = (name: "q" | "k" | "v", width: number) => {
      const all = new Float32Array(rows * width);
      for (const { row, rows: count, position, slot } of runs) {
        const from = (position - first) * width;
        all.set(this.#all[slot]![name].subarray(from, from + count * width), row * width);
      }
      return all;
    };
    return {
      ...this.#all[0]!,
      rows,
      q: joined("q", heads * headDim),
      k: joined("k", kvHeads * headDim),
      v: joined("v", kvHeads * headDim),
      y: new Float32Array(rows * heads * headDim),
    };
  }
}

/** Steps that take positions first .. first + count of slot 0, `chunk` at once, and beside them `other` of slot 1. */
function* stepsOf({ first, count, isPrefill = false }: Independence, chunk: number, other: number): Generator<Run[]> {
  const at = [first, first];
  const end = first + count;
  while (at[0]! < end) {
    const runs: Run[] = [];
    let row = 0;
    for (const slot of [0, 1]) {
      const rows = Math.min(slot === 0 ? chunk : other, end - at[slot]!);
      if (rows > 0) runs.push({ row, rows, position: at[slot]!, slot, isPrefill: slot === 0 && isPrefill });
      row += rows;
      at[slot]! += rows;
    }
    yield runs;
  }
}

interface Independence {
  readonly sizes: Sizes;
  readonly first: number;
  readonly count: number;
  /** Whether those of slot 0 are of a prompt. */
  readonly isPrefill?: boolean;
}

/** Contexts around the ends of blocks and chunks. */
function independenceCases(): Independence[] {
  const cases: Independence[] = [];
  const shapes = [
    { heads: 8, kvHeads: 2, headDim: 64, pagePositions: 32 },
    { heads: 3, kvHeads: 3, headDim: 20, pagePositions: 16 },
    { heads: 10, kvHeads: 1, headDim: 33, pagePositions: 64 },
  ];
  for (const type of kvCacheTypes) {
    for (const shape of shapes) {
      const sizes = { ...shape, ...pagesOf(type, shape.pagePositions), window: 0, softcap: 0 };
      cases.push({ sizes, first: 0, count: 20 }, { sizes, first: 240, count: 20 });
      cases.push({ sizes: { ...sizes, window: 90, softcap: 10, hasSinks: true }, first: 330, count: 20 });
    }
    const long = { heads: 4, kvHeads: 2, headDim: 16, ...pagesOf(type, 32), softcap: 0 };
    // Where chunks change their size; of int4 the first time, as rows that this CPU passes over take long.
    const at = type === "int4" ? 1010 : 4085;
    cases.push({ sizes: { ...long, window: 0 }, first: at, count: 20 });
    cases.push({ sizes: { ...long, window: 1200 }, first: at + 1015, count: 30 });
  }
  return isEmulated ? cases.filter((_, i) => i % 3 === 0) : cases;
}

/** Results [position][heads, headDim] of slot 0, in steps of `chunk` rows of it and `other` of slot 1. */
function resultsOf(
  kernel: Kernel<SequenceAttentionArgs>,
  tokens: Tokens,
  sequences: Sequences,
  item: Independence,
  [chunk, other]: readonly [number, number],
  threads: number,
): Float32Array {
  const { sizes, first, count } = item;
  const width = sizes.heads * sizes.headDim;
  const results = new Float32Array(count * width);
  for (const runs of stepsOf(item, chunk, other)) {
    sequences.setRuns(runs);
    const args = tokens.args(runs, first);
    run(kernel, { ...args, table: sequences.table, pages: sequences.pages }, bench(threads));
    const own = runs.find(({ slot }) => slot === 0);
    if (own) results.set(args.y.subarray(0, own.rows * width), (own.position - first) * width);
  }
  return results;
}

describeRows(native(updateAndAttend), cpu, (kernel) => {
  it("gives a row the same bits alone, in a batch, in any chunks and on any number of threads", () => {
    for (const item of independenceCases()) {
      const { sizes, first, count } = item;
      const random = new Random(first + count);
      const pages = Math.ceil((first + count) / sizes.pagePositions);
      const slots = [0, pages].map((from) => Array.from({ length: pages }, (_, i) => from + i));
      const reversed = slots.toReversed().map((numbers) => numbers.toReversed());
      const bytes = randomPages(random, sizes, 2 * pages);
      const tokens = new Tokens(random, sizes, count);
      const make = (at: readonly (readonly number[])[]) => {
        const sequences = new Sequences(memory, { ...sizes, layer: 0, slots: at }, bytes);
        for (const [slot, numbers] of at.entries())
          for (const [index, page] of numbers.entries()) {
            const own = slots[slot]![index]!;
            const size = pageBytesOf(sizes);
            sequences.bytes.set(bytes.subarray(own * size, (own + 1) * size), page * size);
          }
        return sequences;
      };
      const alone = resultsOf(kernel, tokens, make(slots), item, [1, 0], 1);
      for (const [steps, threads] of [
        [[count, 0], 1],
        [[count, 3], 2],
        [[7, 1], 5],
        [[3, 20], 2],
        [[1, 1], 3],
      ] as const) {
        const found = resultsOf(kernel, tokens, make(reversed), item, steps, threads);
        const message = `${JSON.stringify(item)}, ${steps} rows, ${threads} threads`;
        expectSame(found, alone, message);
      }
    }
  });

  it.skipIf(!takesWords(kernel) && !takesTiles(kernel))(
    "gives rows of a prompt the same bits however it is cut, on any number of threads",
    () => {
      const shape = { heads: 6, kvHeads: 2, headDim: 33, pagePositions: 64 };
      for (const type of ["f16", "int8", "int4"] as const)
        for (const limits of [
          { window: 0, softcap: 0 },
          { window: 90, softcap: 10, hasSinks: true },
        ]) {
          const item = { sizes: { ...shape, type, ...limits }, first: 70, count: 160, isPrefill: true };
          const random = new Random(type.length);
          const pages = Math.ceil((item.first + item.count) / shape.pagePositions);
          const slots = [0, pages].map((from) => Array.from({ length: pages }, (_, i) => from + i));
          const bytes = randomPages(random, item.sizes, 2 * pages);
          const tokens = new Tokens(random, item.sizes, item.count);
          const results = (steps: readonly [number, number], threads: number) =>
            resultsOf(
              kernel,
              tokens,
              new Sequences(memory, { ...item.sizes, layer: 0, slots }, bytes),
              item,
              steps,
              threads,
            );
          const whole = results([160, 0], 1);
          for (const [steps, threads] of [
            [[80, 0], 1],
            [[40, 60], 2],
            [[32, 1], 5],
            [[7, 3], 2],
            [[1, 0], 3],
          ] as const)
            expectSame(results(steps, threads), whole, `${JSON.stringify(item)}, ${steps} rows, ${threads} threads`);
        }
    },
  );

  it("gives the bits of attention over one cache", () => {
    // Rows of words and tiles leave floats to vectors, of which VNNI has no others.
    const vectors = kernel.needs.includes("avx512") ? "1x1x16_avx512" : "1x1x8_avx2";
    const alike = kernel.name.replace("update_and_attend", "attention");
    const own = takesWords(kernel) || takesTiles(kernel) ? `attention_f32_${vectors}` : alike;
    const contiguous = attention.find(({ name }) => name === own)!;
    // Attention over one cache is of f32 and has no sinks.
    const cases = independenceCases().filter(({ sizes }) => !sizes.hasSinks && sizes.type === "f32");
    expect(cases.length).toBeGreaterThan(0);
    for (const { sizes, first, count } of cases) {
      const random = new Random(first);
      const pages = Math.ceil((first + count) / sizes.pagePositions);
      const numbers = Array.from({ length: pages }, (_, i) => i);
      const sequences = new Sequences(
        memory,
        { ...sizes, layer: 1, slots: [numbers] },
        randomPages(random, sizes, pages),
      );
      sequences.setRuns([{ row: 0, rows: count, position: first, slot: 0 }]);
      const args = rowArgs(random, sizes, count);
      const cache = cacheOf(sequences, sizes, pages);
      run(kernel, { ...args, table: sequences.table, pages: sequences.pages }, bench(3));
      const y = new Float32Array(args.y.length);
      const position = BigInt64Array.of(BigInt(first));
      const capacity = pages * sizes.pagePositions;
      run(contiguous, { ...args, ...cache, tokens: count, capacity, position, y }, bench(2));
      expectSame(y, args.y, JSON.stringify({ sizes, first, count }));
    }
  });

  it("is not disturbed by values that are not finite in positions that a row does not see", () => {
    for (const type of kvCacheTypes)
      for (const heads of [1, 4]) {
        const sizes: Sizes = { ...pagesOf(type, 32), heads, kvHeads: 1, headDim: 16, window: 5, softcap: 0 };
        const random = new Random(heads);
        const sequences = new Sequences(memory, { ...sizes, layer: 0, slots: [[0]] }, randomPages(random, sizes, 1));
        const args = rowArgs(random, sizes, 20);
        for (const values of [args.k, args.v]) values.fill(Number.POSITIVE_INFINITY, 10 * 16, 11 * 16);
        sequences.setRuns([{ row: 0, rows: 20, position: 0, slot: 0 }]);
        run(kernel, { ...args, table: sequences.table, pages: sequences.pages }, bench(1));
        const row = (t: number) => args.y.subarray(t * heads * 16, (t + 1) * heads * 16);
        for (let t = 0; t < 20; t++) expect(row(t).every(Number.isFinite), `row ${t}`).toBe(t < 10 || t > 14);
      }
  });
});

/** The pages of f32 of the first slot as one cache. */
function cacheOf(sequences: Sequences, sizes: Sizes, pages: number) {
  const { kvHeads, headDim, pagePositions } = sizes;
  const offsets = partOffsets(sizes);
  const length = pagePositions * kvHeads * headDim;
  const joined = (at: number) => {
    const all = new Float32Array(pages * length);
    for (let page = 0; page < pages; page++) {
      const { buffer, byteOffset } = sequences.pages.cache.page(0, page);
      all.set(new Float32Array(buffer, byteOffset + sequences.pages.offset + at, length), page * length);
    }
    return all;
  };
  return { keyCache: joined(offsets.keys), valueCache: joined(offsets.values) };
}

describeRows(native(ropeUpdateAndAttend), cpu, (kernel) => {
  it("is what the reference makes of columns that it turns first", () => {
    const random = new Random(4);
    for (const sizes of [...allSizes()].filter((_, i) => i % 4 === 0)) {
      const { heads, kvHeads, headDim } = sizes;
      const { runs, rows, shape, bytes } = randomStep(random, sizes);
      const half = Math.floor(headDim / 2);
      const { q: _q, k: _k, v: _v, ...rest } = rowArgs(random, sizes, rows);
      const args = {
        ...rest,
        qkv: random.floats(rows * (heads + 2 * kvHeads) * headDim, 2),
        angles: random.floats(rows * 2 * half),
        half,
      };
      const [expected, found] = [new Sequences(memory, shape, bytes), new Sequences(memory, shape, bytes)];
      for (const sequences of [expected, found]) sequences.setRuns(runs);
      const y = new Float32Array(args.y.length);
      run(ropeUpdateAndAttend.at(-1)!, { ...args, table: expected.table, pages: expected.pages }, bench(1));
      run(kernel, { ...args, y, table: found.table, pages: found.pages }, bench(3));
      const name = JSON.stringify({ sizes, runs });
      // A number that is turned a little differently may become another level.
      const bounds = { f32: 1e-5, f16: 1e-3, int8: 3e-3, int4: 5e-3 };
      expect(distance(y, args.y), name).toBeLessThan(bounds[sizes.type]);
    }
  });
});
