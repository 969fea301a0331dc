/** Pages of int4: every row against plain loops that know neither pages nor bytes, and against the reference bit for bit. */
import { expect, it } from "vitest";
import { type Bench, benchesFor, describeRows, heap, machine, run } from "../../../../test/support/conformance.ts";
import { madeOnce } from "../../../../test/support/made-once.ts";
import { Random } from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import { pageBytesOf, Sequences } from "../../../../test/support/sequences.ts";
import { f16Table, f32ToF16 } from "../../../half.ts";
import type { Kernel } from "../../contract.ts";
import { processMemory } from "../../memory.ts";
import { INT4_POSITIONS } from "../../sequence-table.ts";
import { updateAndAttend } from "../index.ts";
import type { SequenceAttentionArgs } from "./fields.ts";

const benches: readonly Bench[] = [1, 3].map((threads) => ({ memory: heap, threads }));

interface Case {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly window: number;
  readonly softcap: number;
  readonly hasSinks?: boolean;
}

const cases: readonly Case[] = [
  { heads: 1, kvHeads: 1, headDim: 64, window: 0, softcap: 0 },
  { heads: 7, kvHeads: 1, headDim: 9, window: 0, softcap: 0, hasSinks: true },
  { heads: 6, kvHeads: 2, headDim: 40, window: 70, softcap: 0 },
  { heads: 2, kvHeads: 2, headDim: 96, window: 150, softcap: 7, hasSinks: true },
  { heads: 5, kvHeads: 1, headDim: 130, window: 0, softcap: 3 },
];
const POSITIONS = 160;
const PAGES = Math.ceil(POSITIONS / INT4_POSITIONS);

function tokensOf({ heads, kvHeads, headDim, hasSinks, ...rest }: Case) {
  const random = new Random(headDim);
  // Columns of keys differ, as those of models do.
  const k = random.floats(POSITIONS * kvHeads * headDim, 1).map((x, i) => x * (i % 7) + (i % headDim) / 8);
  return {
    ...{ ...rest, heads, kvHeads, headDim, scale: headDim ** -0.5, k },
    sinks: hasSinks ? random.floats(heads, 2) : null,
    q: random.floats(POSITIONS * heads * headDim, 1),
    v: random.floats(POSITIONS * kvHeads * headDim, 3),
  };
}

const half = (x: number) => f16Table()[f32ToF16(x)]!;

/** What 16 levels between the least and the largest of numbers make of them, in halves. */
function levels(numbers: readonly number[]): number[] {
  const least = Math.min(...numbers);
  const step = half(Math.fround(Math.max(...numbers) - least) / 15);
  return numbers.map((x) => least + step * Math.min(15, Math.round((x - least) / step)));
}

/** Keys and values [position][head][headDim] as rows of later pages see them. */
function leveled(values: Float32Array, { kvHeads, headDim }: Case, isOfKeys: boolean): Float64Array {
  const halves = Float64Array.from(values, half);
  const result = halves.slice();
  const lines: number[][] = [];
  for (let page = 0; page < Math.floor(POSITIONS / INT4_POSITIONS); page++)
    for (let head = 0; head < kvHeads; head++) {
      const at = (p: number, d: number) => ((page * INT4_POSITIONS + p) * kvHeads + head) * headDim + d;
      const [ps, ds] = [INT4_POSITIONS, headDim].map((n) => Array.from({ length: n }, (_, i) => i)) as [
        number[],
        number[],
      ];
      const halves = [ps.slice(0, 32), ps.slice(32)];
      if (isOfKeys) for (const d of ds) for (const half of halves) lines.push(half.map((p) => at(p, d)));
      else for (const p of ps) lines.push(ds.map((d) => at(p, d)));
    }
  for (const line of lines)
    for (const [i, x] of levels(line.map((place) => halves[place]!)).entries()) result[line[i]!] = x;
  return result;
}

/** softmax(q k) v in double precision. */
function expectedOf(item: Case): Float32Array {
  const { heads, kvHeads, headDim, window, softcap, sinks, scale, q, k, v } = tokensOf(item);
  const far = { k: leveled(k, item, true), v: leveled(v, item, false) };
  const near = { k: Float64Array.from(k, half), v: Float64Array.from(v, half) };
  const y = new Float32Array(q.length);
  for (let t = 0; t < POSITIONS; t++)
    for (let h = 0; h < heads; h++) {
      const query = (t * heads + h) * headDim;
      const kv = Math.floor(h / (heads / kvHeads));
      const sums = new Float64Array(headDim);
      let total = sinks ? Math.exp(sinks[h]!) : 0;
      for (let p = window > 0 ? Math.max(0, t - window + 1) : 0; p <= t; p++) {
        const isNear = p < INT4_POSITIONS || Math.floor(p / INT4_POSITIONS) === Math.floor(t / INT4_POSITIONS);
        const rows = isNear ? near : far;
        const at = (p * kvHeads + kv) * headDim;
        let score = 0;
        for (let d = 0; d < headDim; d++) score += q[query + d]! * rows.k[at + d]! * scale;
        const weight = Math.exp(softcap > 0 ? softcap * Math.tanh(score / softcap) : score);
        total += weight;
        for (let d = 0; d < headDim; d++) sums[d]! += weight * rows.v[at + d]!;
      }
      for (let d = 0; d < headDim; d++) y[query + d] = sums[d]! / total;
    }
  return y;
}

function sequencesOf({ kvHeads, headDim, window }: Case): Sequences {
  const shape = { type: "int4" as const, kvHeads, headDim, window, pagePositions: INT4_POSITIONS };
  const slots = [Array.from({ length: PAGES }, (_, i) => (i + 1) % PAGES)];
  // What blocks held before is anything.
  const bytes = new Uint8Array(PAGES * pageBytesOf(shape)).fill(0xa5);
  return new Sequences(processMemory(), { ...shape, slots, layer: 1 }, bytes);
}

/** Steps of so many rows, from a position on, to before another. */
function steps(
  kernel: Kernel<SequenceAttentionArgs>,
  item: Case,
  sequences: Sequences,
  { from, to, rows }: { readonly from: number; readonly to: number; readonly rows: number },
  bench: Bench,
): Float32Array {
  const { q, k, v, ...args } = tokensOf(item);
  const all = new Float32Array(q.length);
  for (let position = from; position < to; position += rows) {
    const count = Math.min(rows, to - position);
    const part = (x: Float32Array) =>
      x.slice((position * x.length) / POSITIONS, ((position + count) * x.length) / POSITIONS);
    const y = part(all);
    sequences.setRuns([{ row: 0, rows: count, position, slot: 0 }]);
    const { table, pages } = sequences;
    run(kernel, { ...args, rows: count, q: part(q), k: part(k), v: part(v), y, table, pages }, bench);
    all.set(y, (position * all.length) / POSITIONS);
  }
  return all;
}

function distance(found: Float32Array, expected: Float32Array): number {
  let [error, length] = [0, 0];
  for (const [i, value] of expected.entries()) {
    error += (found[i]! - value) ** 2;
    length += value ** 2;
  }
  return Math.sqrt(error / length);
}

/** What plain loops give, and the pages of the reference. */
const expectedCases = () =>
  madeOnce("rows over pages of int4", () =>
    cases.map((item) => {
      const sequences = sequencesOf(item);
      steps(updateAndAttend.at(-1)!, item, sequences, { from: 0, to: POSITIONS, rows: POSITIONS }, benches[0]!);
      return { item, name: JSON.stringify(item), expected: expectedOf(item), bytes: sequences.bytes };
    }),
  );

describeRows(updateAndAttend, machine(), (kernel) => {
  // Tiles of bf16 and words of 16 bits serve runs of 32 rows and more.
  const isOfTiles = kernel.needs.includes("amx_bf16");
  const sharesBlocks = isOfTiles || kernel.mStep === 32;

  it("is softmax(q k) v over 16 levels of columns of keys and rows of values, the same however a prompt is cut", () => {
    for (const { item, name, expected, bytes } of expectedCases())
      for (const bench of benchesFor(kernel, benches)) {
        const results = (rows: number) => {
          const sequences = sequencesOf(item);
          const y = steps(kernel, item, sequences, { from: 0, to: POSITIONS, rows }, bench);
          // Numbers halfway between two levels may become either.
          expect(distance(y, expected), name).toBeLessThan(isOfTiles && rows > 31 ? 8e-3 : 3e-3);
          expectSame(sequences.bytes, bytes, name);
          return y;
        };
        const whole = results(POSITIONS);
        expectSame(results(sharesBlocks ? 17 : 37), sharesBlocks ? results(31) : whole, name);
      }
  });

  it("undoes rows beyond the end of a page that are computed again", () => {
    const item = cases[2]!;
    const [bench] = benches;
    const [found, expected] = [sequencesOf(item), sequencesOf(item)];
    steps(kernel, item, found, { from: 0, to: 60, rows: 60 }, bench!);
    // As a draft that was refused: other rows in the same places, and then those that are right.
    const other = tokensOf({ ...item, softcap: 1 });
    found.setRuns([{ row: 0, rows: 10, position: 60, slot: 0 }]);
    const { heads, kvHeads, headDim } = item;
    const wrong = (x: Float32Array, width: number) => x.slice(0, 10 * width);
    const y = new Float32Array(10 * heads * headDim);
    const [q, k, v] = [
      wrong(other.q, heads * headDim),
      wrong(other.k, kvHeads * headDim),
      wrong(other.v, kvHeads * headDim),
    ];
    run(kernel, { ...other, rows: 10, q, k, v, y, table: found.table, pages: found.pages }, bench!);
    const again = steps(kernel, item, found, { from: 60, to: POSITIONS, rows: 1 }, bench!);
    const alone = steps(kernel, item, expected, { from: 0, to: POSITIONS, rows: 1 }, bench!);
    const from = 60 * heads * headDim;
    expectSame(again.subarray(from), alone.subarray(from));
    expectSame(found.bytes, expected.bytes);
  });
});
