/**
 * Native rows of a transformer block against the reference rows: odd sizes, several threads, memory that begins
 * anywhere, contexts longer than a block of keys, and caches of halves.
 */
import { expect, it } from "vitest";
import { type Bench, describeRows, heap, isEmulated, run } from "../../../test/support/conformance.ts";
import { madeOnce } from "../../../test/support/made-once.ts";
import { Random } from "../../../test/support/random.ts";
import { expectSame } from "../../../test/support/same.ts";
import type { Kernel } from "../contract.ts";
import { hostCpu } from "../cpu.ts";
import type { AttentionArgs } from "../families/attention/fields.ts";
import * as table from "../families/index.ts";

/** Scratch and threads of a run; tensors are made by `floats`, which begin at odd places. */
const benches: readonly Bench[] = [
  { memory: heap, threads: 1 },
  { memory: heap, threads: 3 },
];

/** A copy that begins four bytes after a cache line. */
function displaced(source: Float32Array): Float32Array {
  const values = new Float32Array(new ArrayBuffer(source.byteLength + 4), 4, source.length);
  values.set(source);
  return values;
}

/** Floats that begin there. */
const floats = (random: Random, length: number, size = 1) => displaced(random.floats(length, size));

/** Room for results that begins there. */
const room = (length: number) => displaced(new Float32Array(length));

function describeNative<A>(rows: readonly Kernel<A>[], tests: (kernel: Kernel<A>, reference: Kernel<A>) => void): void {
  const native = rows.filter(({ target }) => target === "native");
  describeRows(native, hostCpu(), (kernel) => tests(kernel, rows.at(-1)!));
}

/** Distance over length. */
function expectClose(found: Float32Array, expected: Float32Array, message: string, bound = 1e-5): void {
  let distance = 0;
  let length = 0;
  for (let i = 0; i < expected.length; i++) {
    distance += (found[i]! - expected[i]!) ** 2;
    length += expected[i]! ** 2;
  }
  const error = Math.sqrt(distance / Math.max(length, 1e-30));
  if (!(error <= bound)) expect(error, message).toBeLessThanOrEqual(bound);
}

/** Runs a row and the reference row on the same arguments, each with its own `y`. */
function compare<A extends { y: Float32Array }>(kernel: Kernel<A>, reference: Kernel<A>, args: A, name: string): void {
  const expected = { ...args, y: new Float32Array(args.y.length) };
  run(reference, expected, benches[0]!);
  for (const bench of benches) {
    args.y.fill(-77);
    run(kernel, args, bench);
    expectClose(args.y, expected.y, `${name}, ${bench.threads} threads`);
  }
}

const rowCounts = [1, 2, 3, 4, 5, 6, 7, 8, 9, 33];

describeNative(table.rope, (kernel, reference) => {
  it("turns heads of any size", () => {
    const random = new Random(1);
    for (const tokens of rowCounts)
      for (const [heads, headDim, half] of [
        [1, 2, 1],
        [3, 10, 5],
        [2, 33, 7],
        [4, 64, 32],
        [5, 100, 50],
      ] as const) {
        const x = floats(random, tokens * heads * headDim, 3);
        const angles = floats(random, tokens * 2 * half);
        const y = room(x.length);
        compare(kernel, reference, { tokens, heads, headDim, half, x, angles, y }, `${tokens}, ${headDim}, ${half}`);
      }
  });
});

describeNative(table.ropeAngles, (kernel, reference) => {
  it("is exact to rounding up to position 131072", () => {
    const inverseFrequencies = Float32Array.from({ length: 33 }, (_, i) => 500000 ** (-i / 33));
    for (const [first, tokens] of [
      [0, 9],
      [4095, 33],
      [131039, 33],
    ] as const) {
      const position = BigInt64Array.of(BigInt(first));
      const make = () => ({ tokens, position, inverseFrequencies, scale: 1, angles: new Float32Array(tokens * 66) });
      const [expected, found] = [make(), make()];
      run(reference, expected, benches[0]!);
      run(kernel, found, benches[1]!);
      for (let i = 0; i < found.angles.length; i++)
        expect(Math.abs(found.angles[i]! - expected.angles[i]!)).toBeLessThanOrEqual(1.2e-7);
    }
  });
});

interface Shape {
  readonly tokens: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly first: number;
  readonly window?: number;
  readonly softcap?: number;
}

function attentionArgs(random: Random, shape: Shape): AttentionArgs {
  const { tokens, heads, kvHeads, headDim, first, window = 0, softcap = 0 } = shape;
  const capacity = first + tokens + 2;
  const cache = () => random.floats(capacity * kvHeads * headDim, 2);
  return {
    ...{ tokens, heads, kvHeads, headDim, capacity, window, softcap, scale: headDim ** -0.5 },
    q: random.floats(tokens * heads * headDim, 2),
    k: random.floats(tokens * kvHeads * headDim, 2),
    v: random.floats(tokens * kvHeads * headDim, 3),
    keyCache: cache(),
    valueCache: cache(),
    position: BigInt64Array.of(BigInt(first)),
    y: new Float32Array(tokens * heads * headDim),
  };
}

/** Sizes, each with contexts within and beyond blocks of 64 keys. */
function* attentionShapes(): Generator<Shape> {
  const heads = [
    { heads: 1, kvHeads: 1 },
    { heads: 4, kvHeads: 2 },
    { heads: 3, kvHeads: 3 },
    { heads: 7, kvHeads: 1 },
  ];
  for (const [i, tokens] of [...rowCounts, 70].entries())
    for (const [j, headDim] of [1, 3, 16, 17, 31, 64, 100].entries())
      for (const first of [0, 63, 150]) yield { ...heads[(i + j) % 4]!, tokens, headDim, first };
  for (const tokens of [1, 2, 4])
    for (const first of [37, 333]) yield { heads: 12, kvHeads: 3, headDim: 64, tokens, first };
  for (const tokens of [1, 5, 33, 70])
    for (const first of [0, 70, 200]) {
      const shape = { heads: 4, kvHeads: 2, headDim: 24, tokens, first };
      for (const window of [1, 2, 30, 64, 100]) yield { ...shape, window };
      for (const softcap of [1, 30]) yield { ...shape, softcap };
      yield { ...shape, headDim: 33, window: 65, softcap: 10 };
    }
}

interface AttentionCase {
  readonly name: string;
  readonly args: AttentionArgs;
  readonly expected: AttentionResults;
}

/** Arguments of each shape before a run, and what the reference leaves. Emulated CPUs, which are slow, take one in four. */
function makeAttentionCases(): AttentionCase[] {
  const random = new Random(1);
  const reference = table.attention.at(-1)!;
  const shapes = [...attentionShapes()].filter((_, i) => !isEmulated || i % 4 === 0);
  return shapes.map((shape) => {
    const args = attentionArgs(random, shape);
    const expected = ownResults(args);
    run(reference, { ...args, ...expected }, benches[0]!);
    return { name: JSON.stringify(shape), args, expected };
  });
}

type AttentionResults = Pick<AttentionArgs, "keyCache" | "valueCache" | "y">;

function ownResults({ keyCache, valueCache, y }: AttentionArgs): AttentionResults {
  return { keyCache: keyCache.slice(), valueCache: valueCache.slice(), y: y.slice() };
}

const attentionCases = () => madeOnce("attention by the reference", makeAttentionCases);

describeNative(table.attention, (kernel) => {
  // Products of floats split into two bf16 or two bytes have 16 bits; where values cancel out, that shows.
  const bound = kernel.needs.some((need) => need.startsWith("amx_")) ? 1e-4 : 1e-5;

  it("is the reference's, and stores the same keys and values", () => {
    for (const { name, args, expected } of attentionCases()) {
      const inputs = { q: displaced(args.q), k: displaced(args.k!), v: displaced(args.v!) };
      for (const bench of benches) {
        const found = { ...args, ...inputs, ...ownResults(args) };
        run(kernel, found, bench);
        expectClose(found.y, expected.y, `${name}, ${bench.threads} threads`, bound);
        expectSame(found.keyCache, expected.keyCache, name);
        expectSame(found.valueCache, expected.valueCache, name);
      }
    }
  });

  it("writes nothing and gives NaN for a position outside of the cache", () => {
    for (const first of [-1n, 10n, 2n ** 40n, 2n ** 63n - 2n, 2n ** 63n - 1n]) {
      const args = attentionArgs(new Random(1), { tokens: 2, heads: 4, kvHeads: 2, headDim: 8, first: 7 });
      const position = BigInt64Array.of(first);
      const keys = args.keyCache.slice();
      run(kernel, { ...args, position }, benches[1]!);
      expect(args.y.every(Number.isNaN)).toBe(true);
      expectSame(args.keyCache, keys);
    }
  });
});

describeNative(table.select, (kernel, reference) => {
  it("copies blocks of any size", () => {
    const x = Uint8Array.from({ length: 60_000 }, (_, i) => i % 251);
    for (const [outer, stride, offset, blockBytes] of [
      [1, 60_000, 59_999, 1],
      [1, 60_000, 100, 50_000],
      [7, 8000, 13, 4001],
      [1000, 60, 0, 60],
    ] as const) {
      const args = { outer, stride, offset, blockBytes, x, y: new Uint8Array(outer * blockBytes) };
      const expected = new Uint8Array(args.y.length);
      run(reference, { ...args, y: expected }, benches[0]!);
      run(kernel, args, benches[1]!);
      expectSame(args.y, expected);
    }
  });
});
