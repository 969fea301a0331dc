/**
 * Attention of every row of the kernel table against plain loops in double precision. Bounds are a few roundings of the
 * largest magnitude: kernels may sum in float32, approximate exp, and multiply with 16 bits of each factor.
 */
import { expect, it } from "vitest";
import { type Bench, describeRows, expectNear, heap, machine, run } from "../../test/support/conformance.ts";
import { madeOnce } from "../../test/support/made-once.ts";
import { Random } from "../../test/support/random.ts";
import { expectSame } from "../../test/support/same.ts";
import { f16Table, f32ToF16 } from "../half.ts";
import type { AttentionArgs } from "./arguments.ts";
import { attention } from "./table.ts";

const bench: Bench = { memory: heap, threads: 2 };
const cpu = machine();
const position = (value: number) => BigInt64Array.of(BigInt(value));

interface AttentionCase {
  readonly cache: "f32" | "f16" | "int8";
  readonly tokens: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly first: number;
  readonly window: number;
  readonly softcap: number;
}

const CAPACITY = 48;

/** Values as a cache keeps them; scales of rows of `width` for integers. */
interface Cache {
  readonly cache: AttentionArgs["keyCache"];
  readonly scales: Float32Array | null;
}

function cacheOf(values: Float32Array, type: AttentionCase["cache"], width: number): Cache {
  if (type === "f32") return { cache: values, scales: null };
  if (type === "f16") return { cache: Uint16Array.from(values, f32ToF16), scales: null };
  const tops = Float32Array.from({ length: values.length / width }, (_, row) =>
    Math.max(...values.subarray(row * width, (row + 1) * width).map(Math.abs)),
  );
  const inverses = tops.map((top) => 127 / top);
  const rounded = (value: number) => Math.round(Math.abs(value)) * Math.sign(value);
  const cache = Int8Array.from(values, (value, i) => rounded(Math.fround(value * inverses[Math.floor(i / width)]!)));
  return { cache, scales: tops.map((top) => top / 127) };
}

function valuesOf({ cache, scales }: Cache, width: number): Float32Array {
  if (cache instanceof Float32Array) return cache;
  if (cache instanceof Uint16Array) return Float32Array.from(cache, (bits) => f16Table()[bits]!);
  return Float32Array.from(cache, (integer, i) => integer * scales![Math.floor(i / width)]!);
}

/** `cache` with the rows of `other` from row `row` on. */
function withRows({ cache, scales }: Cache, other: Cache, row: number, width: number): Cache {
  const result = { cache: cache.slice(), scales: scales?.slice() ?? null };
  result.cache.set(other.cache, row * width);
  result.scales?.set(other.scales!, row);
  return result;
}

/** Of calls that store keys and values first. */
type StoringArgs = AttentionArgs & { readonly k: Float32Array; readonly v: Float32Array };

function attentionArgs(item: AttentionCase, random: Random): StoringArgs {
  const { tokens, heads, kvHeads, headDim, first, window, softcap } = item;
  const keys = cacheOf(random.floats(CAPACITY * kvHeads * headDim, 2), item.cache, headDim);
  const values = cacheOf(random.floats(CAPACITY * kvHeads * headDim, 3), item.cache, headDim);
  return {
    tokens,
    heads,
    kvHeads,
    headDim,
    capacity: CAPACITY,
    q: random.floats(tokens * heads * headDim, 2),
    k: random.floats(tokens * kvHeads * headDim, 2),
    v: random.floats(tokens * kvHeads * headDim, 3),
    keyCache: keys.cache,
    valueCache: values.cache,
    keyScales: keys.scales,
    valueScales: values.scales,
    position: position(first),
    scale: headDim ** -0.5,
    window,
    softcap,
    y: new Float32Array(tokens * heads * headDim),
  };
}

interface Attended {
  readonly y: Float32Array;
  /** How far each result moves when every weight does by the largest weight of its query. */
  readonly reaches: Float32Array;
  /** How far each result moves at most when every column of its query does by the largest: to first order. */
  readonly sways: Float32Array;
}

/** softmax(q . k * scale) . v of every query, over keys and values that hold the new ones already. */
function attend(args: AttentionArgs, first: number, keys: Float32Array, values: Float32Array): Attended {
  const { tokens, heads, kvHeads, headDim, q, scale, window, softcap } = args;
  const y = new Float32Array(tokens * heads * headDim);
  const reaches = new Float32Array(y.length);
  const sways = new Float32Array(y.length);
  for (let t = 0; t < tokens; t++)
    for (let h = 0; h < heads; h++) {
      const head = Math.floor(h / (heads / kvHeads)) * headDim;
      const query = (t * heads + h) * headDim;
      const mixed = new Float64Array(headDim);
      const sizes = new Float64Array(headDim);
      const weighed = new Float64Array(headDim);
      const most = q.subarray(query, query + headDim).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      let sway = 0;
      let total = 0;
      let largest = 0;
      for (let p = 0; p <= first + t; p++) {
        if (window > 0 && p <= first + t - window) continue;
        const at = p * kvHeads * headDim + head;
        let score = 0;
        let reach = 0;
        for (let d = 0; d < headDim; d++) {
          score += q[query + d]! * keys[at + d]! * scale;
          reach += most * Math.abs(keys[at + d]!) * scale;
        }
        sway = Math.max(sway, reach);
        const weight = Math.exp(softcap > 0 ? softcap * Math.tanh(score / softcap) : score);
        total += weight;
        largest = Math.max(largest, weight);
        for (let d = 0; d < headDim; d++) {
          mixed[d]! += weight * values[at + d]!;
          sizes[d]! += Math.abs(values[at + d]!);
          weighed[d]! += weight * Math.abs(values[at + d]!);
        }
      }
      for (let d = 0; d < headDim; d++) {
        y[query + d] = mixed[d]! / total;
        reaches[query + d] = (sizes[d]! * largest) / total;
        sways[query + d] = (2 * sway * weighed[d]!) / total;
      }
    }
  return { y, reaches, sways };
}

interface SolvedAttention {
  readonly name: string;
  readonly args: AttentionArgs;
  /** The caches afterwards. */
  readonly keys: Cache;
  readonly values: Cache;
  readonly expected: Attended;
}

function solve(item: AttentionCase, random: Random): SolvedAttention {
  return solveArgs(item, attentionArgs(item, random));
}

function solveArgs(item: AttentionCase, args: StoringArgs): SolvedAttention {
  const { cache: type, first, kvHeads, headDim } = item;
  const before = {
    keys: { cache: args.keyCache, scales: args.keyScales },
    values: { cache: args.valueCache, scales: args.valueScales },
  };
  const keys = withRows(before.keys, cacheOf(args.k, type, headDim), first * kvHeads, headDim);
  const values = withRows(before.values, cacheOf(args.v, type, headDim), first * kvHeads, headDim);
  const expected = attend(args, first, valuesOf(keys, headDim), valuesOf(values, headDim));
  return { name: JSON.stringify(item), args, keys, values, expected };
}

const attentionCases = () => madeOnce("attention by definition", makeAttentionCases);

function makeAttentionCases(): SolvedAttention[] {
  const solved: SolvedAttention[] = [];
  const random = new Random(1);
  const heads = [
    { heads: 4, kvHeads: 4, headDim: 8 },
    { heads: 8, kvHeads: 2, headDim: 16 },
    { heads: 3, kvHeads: 1, headDim: 6 },
    { heads: 2, kvHeads: 1, headDim: 64 },
  ];
  const limits = [
    { window: 0, softcap: 0 },
    { window: 4, softcap: 0 },
    { window: 0, softcap: 5 },
    { window: 100, softcap: 30 },
  ];
  for (const sizes of heads)
    for (const tokens of [1, 3, 16])
      for (const first of [0, 5, CAPACITY - tokens])
        for (const limit of limits)
          for (const cache of ["f32", "f16", "int8"] as const)
            solved.push(solve({ cache, tokens, first, ...sizes, ...limit }, random));
  return solved;
}

/** Halves that are not finite: in a key, in values, and as what new values round to. */
const specialCases = () =>
  madeOnce("attention over special halves", () => {
    const solved: { name: string; args: AttentionArgs; expected: Attended }[] = [];
    const random = new Random(4);
    for (const sizes of [
      { heads: 4, kvHeads: 4, headDim: 70 },
      { heads: 8, kvHeads: 2, headDim: 16 },
      { heads: 2, kvHeads: 1, headDim: 64 },
    ])
      for (const tokens of [1, 3, 9])
        for (const at of ["key", "value", "new value"])
          for (const bits of [0x7c00, 0xfc00, 0x7e00]) {
            const item = { cache: "f16", tokens, first: 20, window: 0, softcap: 0, ...sizes } as const;
            const args = attentionArgs(item, random);
            const place = 11 * sizes.kvHeads * sizes.headDim + 5;
            if (at === "key") args.keyCache[place] = bits;
            else if (at === "value") args.valueCache[place] = bits;
            else args.v[5] = f16Table()[bits]! < 0 ? -1e6 : 65520;
            const { expected } = solveArgs(item, args);
            solved.push({ name: `${JSON.stringify(item)}, ${bits} in a ${at}`, args, expected });
          }
    return solved;
  });

describeRows(attention, cpu, (kernel) => {
  // Rows on tiles of integers round weights to 1/32639 of the largest, half a step each.
  const rounding = kernel.needs.includes("amx_int8") ? 1 / 32639 / 2 : 0;
  // AVX2 rounds queries to words of 16 bits for caches of integers, half a step each.
  const wordRounding = kernel.needs.includes("avx2") ? 1 / 32767 / 2 : 0;
  // Rows on tiles of floats split them into parts, whose sums are NaN where one is infinite.
  const isSplit = kernel.needs.includes("amx_bf16");

  it("is softmax(q k) v over what each query sees: groups of heads, windows, caps, later positions", () => {
    for (const { name, args, keys, values, expected } of attentionCases()) {
      const scales = {
        keyScales: args.keyScales?.slice() ?? null,
        valueScales: args.valueScales?.slice() ?? null,
      };
      const own = { ...args, ...scales, keyCache: args.keyCache.slice(), valueCache: args.valueCache.slice() };
      run(kernel, { ...own, y: args.y.fill(0) }, bench);
      expectSame(own.keyCache, keys.cache, name);
      expectSame(own.valueCache, values.cache, name);
      if (keys.scales) expectSame(own.keyScales!, keys.scales, name);
      if (values.scales) expectSame(own.valueScales!, values.scales, name);
      expectNear(
        args.y,
        (i) => expected.y[i]!,
        (i) => 6e-5 + rounding * expected.reaches[i]! + (args.keyScales ? wordRounding : 0) * expected.sways[i]!,
        name,
      );
    }
  });

  it("reads infinite halves and NaN, and stores as infinite what no half can hold", () => {
    for (const { name, args, expected } of specialCases()) {
      const own = { ...args, keyCache: args.keyCache.slice(), valueCache: args.valueCache.slice() };
      run(kernel, { ...own, y: args.y.fill(0) }, bench);
      expectNear(
        args.y,
        (i) => (isSplit && Number.isNaN(args.y[i]!) ? Number.NaN : expected.y[i]!),
        () => 6e-5,
        name,
      );
    }
  });

  it("takes the largest sums that long heads of integers have", () => {
    const item = {
      cache: "int8",
      tokens: 1,
      heads: 4,
      kvHeads: 1,
      headDim: 1024,
      first: 3,
      window: 0,
      softcap: 0,
    } as const;
    const args = attentionArgs(item, new Random(3));
    args.q.fill(1);
    args.keyCache.fill(127, 0, 1024);
    args.keyCache.fill(-127, 1024, 2048);
    args.keyScales!.fill(1e-3);
    const { expected } = solveArgs(item, args);
    run(kernel, args, bench);
    expectNear(
      args.y,
      (i) => expected.y[i]!,
      () => 3e-4,
    );
  });

  it("counts scratch of long heads beyond 32 bits", () => {
    const sizes = { cache: "f32", tokens: 1, heads: 8, kvHeads: 1, first: 0, window: 0, softcap: 0 } as const;
    const args = { ...attentionArgs({ ...sizes, headDim: 8 }, new Random(2)), headDim: 2 ** 28 };
    const isNative = kernel.target === "native" && !kernel.name.includes("amx");
    expect(kernel.scratchBytes?.(args, 2) ?? 0).toBeGreaterThanOrEqual(isNative ? 2 ** 33 : 0);
  });

  it("takes scores whose exp overflows", () => {
    const args = attentionArgs(
      { cache: "f32", tokens: 1, heads: 1, kvHeads: 1, headDim: 8, first: 3, window: 0, softcap: 0 },
      new Random(2),
    );
    args.q.fill(1000);
    args.keyCache.fill(0);
    args.keyCache.fill(1, 8, 16);
    args.k.fill(-1);
    run(kernel, args, bench);
    expectNear(
      args.y,
      (d) => args.valueCache[8 + d]!,
      () => 3e-5,
    );
  });

  it.each([1, 5])("writes no cache where it holds the keys and values of %i tokens already", (tokens) => {
    const sizes = { heads: 4, kvHeads: 2, headDim: 8, window: 0, softcap: 0 } as const;
    for (const cache of ["f32", "f16", "int8"] as const) {
      const args = attentionArgs({ cache, tokens, first: 2, ...sizes }, new Random(4));
      run(kernel, args, bench);
      const stored = { keyCache: args.keyCache.slice(), valueCache: args.valueCache.slice() };
      const y = new Float32Array(args.y.length);
      run(kernel, { ...args, k: null, v: null, y }, bench);
      expect(y, cache).toEqual(args.y);
      expect([args.keyCache, args.valueCache], cache).toEqual([stored.keyCache, stored.valueCache]);
    }
  });

  it("gives the same whether tokens come at once or one by one", () => {
    const whole = attentionArgs(
      { cache: "f32", tokens: 5, heads: 4, kvHeads: 2, headDim: 8, first: 2, window: 3, softcap: 0 },
      new Random(3),
    );
    const caches = { keyCache: whole.keyCache.slice(), valueCache: whole.valueCache.slice() };
    run(kernel, whole, bench);
    for (let t = 0; t < 5; t++) {
      const part = (values: Float32Array, width: number) => values.slice(t * width, (t + 1) * width);
      const y = new Float32Array(32);
      const args = {
        ...whole,
        ...caches,
        tokens: 1,
        q: part(whole.q, 32),
        k: part(whole.k, 16),
        v: part(whole.v, 16),
        y,
      };
      run(kernel, { ...args, position: position(2 + t) }, bench);
      expectNear(
        y,
        (i) => whole.y[32 * t + i]!,
        () => 1e-5,
      );
    }
  });
});
