/**
 * Attention of every row of the kernel table, over one cache and over pages, against plain loops in double precision. Bounds are a few roundings of the
 * largest magnitude: kernels may sum in float32, approximate exp, and multiply with 16 bits of each factor.
 */
import { expect, it } from "vitest";
import { type Bench, describeRows, expectNear, heap, machine, run } from "../../../../test/support/conformance.ts";
import { madeOnce } from "../../../../test/support/made-once.ts";
import { type CacheRows, PagedTable } from "../../../../test/support/paged.ts";
import { Random } from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import { f16Table, f32ToF16 } from "../../../half.ts";
import type { Kernel } from "../../contract.ts";
import { processMemory } from "../../memory.ts";
import { attention, updateAndAttend } from "../index.ts";
import type { AttentionArgs, SequenceAttentionArgs } from "./fields.ts";

const bench: Bench = { memory: heap, threads: 2 };
const cpu = machine();

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

function cacheOf(values: Float32Array, type: AttentionCase["cache"], width: number): CacheRows {
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

function valuesOf({ cache, scales }: CacheRows, width: number): Float32Array {
  if (cache instanceof Float32Array) return cache;
  if (cache instanceof Uint16Array) return Float32Array.from(cache, (bits) => f16Table()[bits]!);
  return Float32Array.from(cache, (integer, i) => integer * scales![Math.floor(i / width)]!);
}

/** `cache` with the rows of `other` from row `row` on. */
function withRows({ cache, scales }: CacheRows, other: CacheRows, row: number, width: number): CacheRows {
  const result = { cache: cache.slice(), scales: scales?.slice() ?? null };
  result.cache.set(other.cache, row * width);
  result.scales?.set(other.scales!, row);
  return result;
}

/** A call, with the caches as it finds them. */
interface Call extends Omit<AttentionArgs, "capacity" | "position" | "keyCache" | "valueCache" | "k" | "v"> {
  readonly type: AttentionCase["cache"];
  readonly first: number;
  readonly k: Float32Array;
  readonly v: Float32Array;
  readonly keys: CacheRows;
  readonly values: CacheRows;
}

function callOf(item: AttentionCase, random: Random): Call {
  const { cache: type, tokens, heads, kvHeads, headDim, first, window, softcap } = item;
  return {
    ...{ type, tokens, heads, kvHeads, headDim, first, window, softcap, scale: headDim ** -0.5 },
    keys: cacheOf(random.floats(CAPACITY * kvHeads * headDim, 2), type, headDim),
    values: cacheOf(random.floats(CAPACITY * kvHeads * headDim, 3), type, headDim),
    q: random.floats(tokens * heads * headDim, 2),
    k: random.floats(tokens * kvHeads * headDim, 2),
    v: random.floats(tokens * kvHeads * headDim, 3),
    y: new Float32Array(tokens * heads * headDim),
  };
}

/** Runs a call into its y, and gives the caches afterwards. Where they hold the keys and values already, nothing is stored. */
type Attend = (call: Call, stores?: boolean) => { readonly keys: CacheRows; readonly values: CacheRows };

const overCache =
  (kernel: Kernel<AttentionArgs>): Attend =>
  ({ keys, values, k, v, first, ...call }, stores = true) => {
    const caches = { keyCache: keys.cache.slice() as Float32Array, valueCache: values.cache.slice() as Float32Array };
    const stored = stores ? { k, v } : { k: null, v: null };
    const position = BigInt64Array.of(BigInt(first));
    run(kernel, { ...call, ...caches, ...stored, capacity: CAPACITY, position }, bench);
    return { keys: { cache: caches.keyCache, scales: null }, values: { cache: caches.valueCache, scales: null } };
  };

const overPages =
  (kernel: Kernel<SequenceAttentionArgs>): Attend =>
  ({ type, tokens, first, keys, values, k, v, ...call }, stores = true) => {
    const { kvHeads, headDim, window } = call;
    const pages = { pagePositions: 16, pagesMax: CAPACITY / 16, slots: 1 };
    const table = new PagedTable({ type, kvHeads, headDim, window, ...pages }, processMemory(), new Random(7));
    table.setContiguous(1, 0, { keys, values });
    table.setRuns([{ row: 0, rows: tokens, position: first, slot: 0 }]);
    const stored = stores ? { k, v } : { k: null, v: null };
    run(kernel, { ...call, ...stored, rows: tokens, sinks: null, table, pages: table.layerPages(1)! }, bench);
    return table.contiguous(1, 0, CAPACITY);
  };

interface Attended {
  readonly y: Float32Array;
  /** How far each result moves at most when every column of its query does by the largest: to first order. */
  readonly sways: Float32Array;
}

/** softmax(q . k * scale) . v of every query, over keys and values that hold the new ones already. */
function attend(args: Call, keys: Float32Array, values: Float32Array): Attended {
  const { tokens, heads, kvHeads, headDim, first, q, scale, window, softcap } = args;
  const y = new Float32Array(tokens * heads * headDim);
  const sways = new Float32Array(y.length);
  for (let t = 0; t < tokens; t++)
    for (let h = 0; h < heads; h++) {
      const head = Math.floor(h / (heads / kvHeads)) * headDim;
      const query = (t * heads + h) * headDim;
      const mixed = new Float64Array(headDim);
      const weighed = new Float64Array(headDim);
      const most = q.subarray(query, query + headDim).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      let sway = 0;
      let total = 0;
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
        for (let d = 0; d < headDim; d++) {
          mixed[d]! += weight * values[at + d]!;
          weighed[d]! += weight * Math.abs(values[at + d]!);
        }
      }
      for (let d = 0; d < headDim; d++) {
        y[query + d] = mixed[d]! / total;
        sways[query + d] = (2 * sway * weighed[d]!) / total;
      }
    }
  return { y, sways };
}

interface SolvedAttention {
  readonly name: string;
  readonly call: Call;
  /** The caches afterwards. */
  readonly keys: CacheRows;
  readonly values: CacheRows;
  readonly expected: Attended;
}

function solve(call: Call): Omit<SolvedAttention, "name"> {
  const { type, first, kvHeads, headDim } = call;
  const keys = withRows(call.keys, cacheOf(call.k, type, headDim), first * kvHeads, headDim);
  const values = withRows(call.values, cacheOf(call.v, type, headDim), first * kvHeads, headDim);
  return { call, keys, values, expected: attend(call, valuesOf(keys, headDim), valuesOf(values, headDim)) };
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
          for (const cache of ["f32", "f16", "int8"] as const) {
            const item = { cache, tokens, first, ...sizes, ...limit };
            solved.push({ name: JSON.stringify(item), ...solve(callOf(item, random)) });
          }
  return solved;
}

/** Halves that are not finite: in a key, in values, and as what new values round to. */
const specialCases = () =>
  madeOnce("attention over special halves", () => {
    const solved: SolvedAttention[] = [];
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
            const call = callOf(item, random);
            const place = 11 * sizes.kvHeads * sizes.headDim + 5;
            if (at === "key") call.keys.cache[place] = bits;
            else if (at === "value") call.values.cache[place] = bits;
            else call.v[5] = f16Table()[bits]! < 0 ? -1e6 : 65520;
            solved.push({ name: `${JSON.stringify(item)}, ${bits} in a ${at}`, ...solve(call) });
          }
    return solved;
  });

/** What holds for rows over one cache and over pages, of each type that they hold. */
function testDefinition(
  kernel: Pick<Kernel<never>, "needs">,
  attend: Attend,
  types: readonly AttentionCase["cache"][],
) {
  // AVX2 rounds queries to words of 16 bits for caches of integers, half a step each.
  const wordRounding = kernel.needs.includes("avx2") ? 1 / 32767 / 2 : 0;

  it("is softmax(q k) v over what each query sees: groups of heads, windows, caps, later positions", () => {
    for (const { name, call, keys, values, expected } of attentionCases()) {
      if (!types.includes(call.type)) continue;
      call.y.fill(0);
      const own = attend(call);
      expectSame(own.keys.cache, keys.cache, name);
      expectSame(own.values.cache, values.cache, name);
      if (keys.scales) expectSame(own.keys.scales!, keys.scales, name);
      if (values.scales) expectSame(own.values.scales!, values.scales, name);
      const words = call.type === "int8" ? wordRounding : 0;
      expectNear(
        call.y,
        (i) => expected.y[i]!,
        (i) => 6e-5 + words * expected.sways[i]!,
        name,
      );
    }
  });

  it("takes scores whose exp overflows", () => {
    const sizes = { tokens: 1, heads: 1, kvHeads: 1, headDim: 8, first: 3, window: 0, softcap: 0 };
    const call = callOf({ cache: "f32", ...sizes }, new Random(2));
    call.q.fill(1000);
    call.keys.cache.fill(0);
    call.keys.cache.fill(1, 8, 16);
    call.k.fill(-1);
    attend(call);
    expectNear(
      call.y,
      (d) => call.values.cache[8 + d]!,
      () => 3e-5,
    );
  });

  it.each([1, 5])("writes no cache where it holds the keys and values of %i tokens already", (tokens) => {
    const sizes = { heads: 4, kvHeads: 2, headDim: 8, window: 0, softcap: 0 } as const;
    for (const cache of types) {
      const call = callOf({ cache, tokens, first: 2, ...sizes }, new Random(4));
      const stored = attend(call);
      const y = new Float32Array(call.y.length);
      expect(attend({ ...call, ...stored, y }, false), cache).toEqual(stored);
      expect(y, cache).toEqual(call.y);
    }
  });

  it("gives the same whether tokens come at once or one by one", () => {
    const sizes = { tokens: 5, heads: 4, kvHeads: 2, headDim: 8, first: 2, window: 3, softcap: 0 };
    const whole = callOf({ cache: "f32", ...sizes }, new Random(3));
    attend(whole);
    let caches: Pick<Call, "keys" | "values"> = whole;
    for (let t = 0; t < 5; t++) {
      const part = (values: Float32Array, width: number) => values.slice(t * width, (t + 1) * width);
      const own = { q: part(whole.q, 32), k: part(whole.k, 16), v: part(whole.v, 16), y: new Float32Array(32) };
      caches = attend({ ...whole, ...caches, ...own, tokens: 1, first: 2 + t });
      expectNear(
        own.y,
        (i) => whole.y[32 * t + i]!,
        () => 1e-5,
      );
    }
  });
}

describeRows(attention, cpu, (kernel) => {
  testDefinition(kernel, overCache(kernel), ["f32"]);

  it("has no scratch for heads that its tensors do not hold", () => {
    const sizes = { cache: "f32", tokens: 1, heads: 8, kvHeads: 1, first: 0, window: 0, softcap: 0 } as const;
    const { keys, values, ...call } = callOf({ ...sizes, headDim: 8 }, new Random(2));
    const caches = { keyCache: keys.cache as Float32Array, valueCache: values.cache as Float32Array };
    const args = { ...call, ...caches, capacity: CAPACITY, position: BigInt64Array.of(0n), headDim: 2 ** 28 };
    const scratch = () => kernel.scratchBytes?.(args, 2) ?? 0;
    if (kernel.target === "native") expect(scratch).toThrow(/^attention: expected \d+ values of q .+ but found 64$/);
    else expect(scratch()).toBeGreaterThanOrEqual(0);
  });
});

describeRows(updateAndAttend, cpu, (kernel) => {
  const attend = overPages(kernel);
  // What pages of int4 hold depends on their rows: int4.test.ts has them.
  testDefinition(kernel, attend, ["f32", "f16", "int8"]);
  // Rows on tiles of floats split them into parts, whose sums are NaN where one is infinite.
  const isSplit = kernel.needs.includes("amx_bf16");

  it("reads infinite halves and NaN, and stores as infinite what no half can hold", () => {
    for (const { name, call, expected } of specialCases()) {
      call.y.fill(0);
      attend(call);
      expectNear(
        call.y,
        (i) => (isSplit && Number.isNaN(call.y[i]!) ? Number.NaN : expected.y[i]!),
        () => 6e-5,
        name,
      );
    }
  });

  it("takes the largest sums that long heads of integers have", () => {
    const sizes = { tokens: 1, heads: 4, kvHeads: 1, headDim: 1024, first: 3, window: 0, softcap: 0 };
    const call = callOf({ cache: "int8", ...sizes }, new Random(3));
    call.q.fill(1);
    call.keys.cache.fill(127, 0, 1024);
    call.keys.cache.fill(-127, 1024, 2048);
    call.keys.scales!.fill(1e-3);
    const { expected } = solve(call);
    attend(call);
    expectNear(
      call.y,
      (i) => expected.y[i]!,
      () => 3e-4,
    );
  });
});
