/** Every kernel of packed sequences: attention, and pooling. */
import { expect, it } from "vitest";
import {
  type Bench,
  benchesFor,
  describeRows,
  floats,
  heap,
  machine,
  place,
  run,
} from "../../../../test/support/conformance.ts";
import { Random } from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import { poolings } from "../../../pooling.ts";
import type { Kernel } from "../../contract.ts";
import { attendPacked, poolPacked } from "../index.ts";
import type { AttendPackedArgs } from "./fields.ts";

const benches: readonly Bench[] = [1, 3].map((threads) => ({ memory: heap, threads }));
const cpu = machine();
const ALL = 2 ** 31 - 1;

interface Case {
  readonly lengths: readonly number[];
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly before: number;
  readonly after: number;
}

const cases: readonly Case[] = [
  { lengths: [5, 1, 40, 3], heads: 4, kvHeads: 4, headDim: 16, before: ALL, after: ALL },
  { lengths: [70, 33], heads: 4, kvHeads: 2, headDim: 64, before: ALL, after: 0 },
  { lengths: [90, 7], heads: 2, kvHeads: 1, headDim: 20, before: 4, after: 4 },
  { lengths: [3, 130], heads: 2, kvHeads: 2, headDim: 10, before: 64, after: 0 },
  { lengths: [2, 9], heads: 1, kvHeads: 1, headDim: 80, before: ALL, after: ALL },
  { lengths: [1], heads: 3, kvHeads: 1, headDim: 3, before: 0, after: 0 },
];

function offsetsOf(lengths: readonly number[]): BigInt64Array {
  const ends = lengths.map((_, i) => lengths.slice(0, i + 1).reduce((sum, length) => sum + length, 0));
  return BigInt64Array.from([0, ...ends], BigInt);
}

function argsOf({ lengths, heads, kvHeads, headDim, before, after }: Case): Omit<AttendPackedArgs, "y"> {
  const rows = lengths.reduce((sum, length) => sum + length, 0);
  const random = new Random(rows);
  const [q, k, v] = [heads, kvHeads, kvHeads].map((count) => random.floats(rows * count * headDim));
  const offsets = offsetsOf(lengths);
  return { rows, heads, kvHeads, headDim, q: q!, k: k!, v: v!, offsets, scale: 1.3, before, after };
}

function attended(kernel: Kernel<AttendPackedArgs>, args: Omit<AttendPackedArgs, "y">, bench: Bench): Float32Array {
  const y = floats(bench, args.q.length);
  const [q, k, v] = [args.q, args.k, args.v].map((values) => place(bench, values));
  run(kernel, { ...args, q: q!, k: k!, v: v!, offsets: place(bench, args.offsets), y }, bench);
  return y;
}

/** In double precision, sequence by sequence. */
function expectedAttention(args: Omit<AttendPackedArgs, "y">): number[] {
  const { q, k, v, heads, kvHeads, headDim, offsets, scale, before, after } = args;
  const y: number[] = new Array(q.length).fill(Number.NaN);
  for (let text = 0; text + 1 < offsets.length; text++) {
    const [first, end] = [Number(offsets[text]), Number(offsets[text + 1])];
    for (let row = first; row < end; row++)
      for (let head = 0; head < heads; head++) {
        const own = (row * heads + head) * headDim;
        const kv = Math.floor((head * kvHeads) / heads);
        const keys = Array.from({ length: end - first }, (_, i) => first + i).filter(
          (key) => key >= row - before && key <= row + after,
        );
        const weights = keys.map((key) => {
          let dot = 0;
          for (let d = 0; d < headDim; d++) dot += q[own + d]! * k[(key * kvHeads + kv) * headDim + d]!;
          return Math.exp(dot * scale);
        });
        const total = weights.reduce((sum, weight) => sum + weight, 0);
        for (let d = 0; d < headDim; d++)
          y[own + d] =
            keys.reduce((sum, key, i) => sum + weights[i]! * v[(key * kvHeads + kv) * headDim + d]!, 0) / total;
      }
  }
  return y;
}

function expectNear(found: ArrayLike<number>, expected: ArrayLike<number>, tolerance: number): void {
  expect(found.length).toBe(expected.length);
  for (let i = 0; i < expected.length; i++) {
    const bound = tolerance * Math.max(1, Math.abs(expected[i]!));
    expect(Math.abs(found[i]! - expected[i]!), `value ${i}`).toBeLessThanOrEqual(bound);
  }
}

describeRows(attendPacked, cpu, (kernel) => {
  it.each(cases)("attention of packed sequences: %o", (given) => {
    const args = argsOf(given);
    const expected = expectedAttention(args);
    for (const bench of benchesFor(kernel, benches)) expectNear(attended(kernel, args, bench), expected, 5e-6);
  });

  it.each(cases)("a sequence's tokens are the same alone, bit for bit: %o", (given) => {
    const args = argsOf(given);
    const together = attended(kernel, args, benches[0]!);
    for (const [i, length] of given.lengths.entries()) {
      const first = Number(args.offsets[i]);
      const part = (values: Float32Array) => {
        const width = values.length / args.rows;
        return values.slice(first * width, (first + length) * width);
      };
      const [q, k, v] = [args.q, args.k, args.v].map(part);
      const alone = { ...args, rows: length, q: q!, k: k!, v: v!, offsets: offsetsOf([length]) };
      expectSame(attended(kernel, alone, benches[0]!), part(together), `sequence ${i}`);
    }
  });

  it("has no scratch for heads and rows that its tensors do not hold", () => {
    const args = { ...argsOf({ ...cases[0]!, lengths: [2] }), y: new Float32Array(0) };
    for (const changes of [{ headDim: 2 ** 26 }, { rows: 2 ** 28 }]) {
      const scratch = () => kernel.scratchBytes?.({ ...args, ...changes }, 2) ?? 0;
      if (kernel.target === "native")
        expect(scratch).toThrow(/^attend_packed: expected \d+ values of .+ but found \d+$/);
      else expect(scratch()).toBeGreaterThanOrEqual(0);
    }
  });

  it("rows of no sequence give NaN, and offsets out of range are those of the ends", () => {
    const args = argsOf({ ...cases[0]!, lengths: [6, 6] });
    const width = args.heads * args.headDim;
    const within = (offsets: bigint[]) =>
      attended(kernel, { ...args, offsets: BigInt64Array.from(offsets) }, benches[0]!);
    const plain = within([2n, 7n]);
    expect(plain.slice(0, 2 * width).every(Number.isNaN)).toBe(true);
    expect(plain.slice(2 * width, 7 * width).every(Number.isFinite)).toBe(true);
    expect(plain.slice(7 * width).every(Number.isNaN)).toBe(true);
    expectSame(within([-5n, 99n]), within([0n, 12n]), "offsets out of range");
    expectSame(within([-(2n ** 40n), 2n ** 40n]), within([0n, 12n]), "offsets far out of range");
  });
});

describeRows(poolPacked, cpu, (kernel) => {
  it.each(poolings)("%s of each text", (pooling) => {
    const [dim, lengths] = [9, [3, 1, 5]];
    const x = new Random(4).floats(9 * dim);
    const y = new Float32Array(3 * dim);
    const offsets = offsetsOf(lengths);
    run(kernel, { pooling, rows: 9, dim, x, offsets, y }, benches[0]!);
    const expected = lengths.flatMap((length, text) =>
      Array.from({ length: dim }, (_, c) => {
        const column = Array.from({ length }, (_, i) => x[(Number(offsets[text]) + i) * dim + c]!);
        const sum = column.reduce((total, value) => total + value, 0);
        const byPlace = column.reduce((total, value, i) => total + (i + 1) * value, 0);
        const places = column.reduce((total, _, i) => total + i + 1, 0);
        return {
          cls: column[0]!,
          lasttoken: column.at(-1)!,
          mean: sum / length,
          max: Math.max(...column),
          mean_sqrt_len_tokens: sum / Math.sqrt(length),
          weightedmean: byPlace / places,
        }[pooling];
      }),
    );
    expectNear(y, expected, 1e-6);
  });

  it("gives NaN for texts without rows", () => {
    for (const pooling of poolings) {
      const y = new Float32Array(4);
      run(
        kernel,
        { pooling, rows: 2, dim: 2, x: new Float32Array(4), offsets: BigInt64Array.of(0n, 2n, 2n), y },
        benches[0]!,
      );
      expect([...y]).toEqual([0, 0, Number.NaN, Number.NaN]);
    }
  });
});
