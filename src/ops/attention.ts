/** Causal grouped-query attention over a KV cache of floats, halves, or integers with scales. */
import type { AttentionArgs } from "../kernels/arguments.ts";
import { attention } from "../kernels/table.ts";
import { elementCount, isSameShape, type Tensor } from "../tensor.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { rowCount } from "./linear.ts";
import { defineOperator, touchedBytes } from "./operator.ts";

/** ShapeError unless input_pos is an int64 tensor [1]. */
export function checkPosition(args: Arguments<TensorSpec>): void {
  const { shape } = args.tensor("input_pos", "i64");
  if (!isSameShape(shape, [1])) args.fail("input_pos", `expected shape [1] but found [${shape}]`);
}

type CacheType = "f32" | "f16" | "i8";

/** Capacity, heads and their size, of caches that go together. */
export function checkCaches(
  args: Arguments<TensorSpec>,
  ...cacheTypes: CacheType[]
): { capacity: number; kvHeads: number; headDim: number } {
  const { dtype, shape: cache } = args.tensor("key_cache", ...cacheTypes);
  checkPosition(args);
  const [batch, capacity, kvHeads, headDim] = cache as [number, number, number, number];
  if (cache.length !== 4 || batch !== 1 || kvHeads * headDim === 0)
    args.fail("key_cache", `expected shape [1, capacity, heads, D] but found [${cache}]`);
  if (!isSameShape(args.tensor("value_cache", dtype).shape, cache))
    args.fail("value_cache", `expected the shape of key_cache [${cache}]`);
  args.integer("window", 0);
  return { capacity, kvHeads, headDim };
}

/** ShapeError unless key_scales and value_scales fit caches of integers. */
export function checkScales(args: Arguments<TensorSpec>): void {
  const scales = args.tensor("key_cache").shape.slice(0, 3);
  for (const name of ["key_scales", "value_scales"])
    if (!isSameShape(args.tensor(name, "f32").shape, scales))
      args.fail(name, `expected shape [${scales}] but found [${args.tensor(name).shape}]`);
}

/** Checks that both operators make; gives what comes out. */
function attentionShape(args: Arguments<TensorSpec>, ...cacheTypes: CacheType[]): TensorSpec {
  const q = args.tensor("q", "f32");
  const { capacity, kvHeads, headDim } = checkCaches(args, ...cacheTypes);
  const width = kvHeads * headDim;
  const tokens = rowCount(q.shape);
  if (q.shape.length === 0 || q.shape.at(-1)! % width !== 0 || tokens > capacity)
    args.fail("q", `expected shape [1, at most ${capacity}, a multiple of ${width}] but found [${q.shape}]`);
  for (const name of ["k", "v"]) {
    const { shape } = args.tensor(name, "f32");
    if (shape.at(-1) !== width || rowCount(shape) !== tokens)
      args.fail(name, `expected shape [1, ${tokens}, ${width}] but found [${shape}]`);
  }
  return { dtype: "f32", shape: q.shape };
}

type AttentionInputs = Pick<AttentionArgs, "q" | "k" | "v" | "keyScales" | "valueScales">;

/** All but queries, keys, values and scales; heads from the out tensor. */
export function cacheArgs(args: Arguments<Tensor>): Omit<AttentionArgs, keyof AttentionInputs> {
  const out = args.tensor("out");
  const [, capacity, kvHeads, headDim] = args.tensor("key_cache").shape;
  return {
    tokens: rowCount(out.shape),
    heads: out.shape.at(-1)! / headDim!,
    kvHeads: kvHeads!,
    headDim: headDim!,
    capacity: capacity!,
    keyCache: args.tensor("key_cache").data as AttentionArgs["keyCache"],
    valueCache: args.tensor("value_cache").data as AttentionArgs["valueCache"],
    position: args.tensor("input_pos").data as BigInt64Array,
    scale: args.number("scale"),
    window: args.number("window"),
    softcap: args.number("softcap"),
    y: out.data as Float32Array,
  };
}

/** Scales of caches of integers. */
export function scaleArgs(args: Arguments<Tensor>): Pick<AttentionArgs, "keyScales" | "valueScales"> {
  return {
    keyScales: args.tensor("key_scales").data as Float32Array,
    valueScales: args.tensor("value_scales").data as Float32Array,
  };
}

export const noScales = { keyScales: null, valueScales: null } as const;

function attentionArgs(args: Arguments<Tensor>): Omit<AttentionArgs, "keyScales" | "valueScales"> {
  const [q, k, v] = ["q", "k", "v"].map((name) => args.tensor(name).data as Float32Array);
  return { ...cacheArgs(args), q: q!, k: k!, v: v! };
}

/** Bytes that a call moves. It reads a cache up to the last query's position, from the first that a window shows. */
export function attentionBytes(args: Arguments<Tensor>): number {
  const tokens = rowCount(args.tensor("out").shape);
  const end = Number(args.tensor("input_pos").data[0]) + tokens;
  const window = args.number("window");
  const seen = window === 0 ? end : Math.min(end, window + tokens);
  const caches = ["key_cache", "value_cache", "key_scales", "value_scales"];
  return touchedBytes(args, caches, Math.min(1, seen / args.tensor("key_cache").shape[1]!));
}

/** Multiplications of scores and of sums of values over so many positions. */
export function attentionMultiplications(queries: TensorSpec, positions: number): number {
  return 2 * elementCount(queries.shape) * positions;
}

/** What both operators have alike. */
const attentionCalls = {
  kernels: attention,
  indices: {
    argument: "input_pos",
    limit: (args: Arguments<Tensor>) => args.tensor("key_cache").shape[1]! - rowCount(args.tensor("q").shape) + 1,
  },
  // At least: what stands before these rows, the position tells as they run.
  multiplications: (args: Arguments<TensorSpec>) =>
    attentionMultiplications(args.tensor("q"), rowCount(args.tensor("q").shape)),
  query: (args: Arguments<Tensor>) => ({ layout: null, bits: null, m: rowCount(args.tensor("q").shape) }),
  bytes: attentionBytes,
};

/**
 * Causal grouped-query attention. q [1, T, heads * D]; k, v [1, T, kvHeads * D] are first written to the caches
 * [1, capacity, kvHeads, D], f32 or f16, at input_pos. window: last positions seen, 0 for all. softcap: 0 for none (Gemma 2).
 */
export const attentionOperator = defineOperator<AttentionArgs>({
  schema:
    "lowbit::attention.out(Tensor q, Tensor k, Tensor v, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor input_pos, float scale, int window=0, float softcap=0, *, Tensor(c!) out) -> Tensor(c!)",
  ...attentionCalls,
  shape: (args) => attentionShape(args, "f32", "f16"),
  prepare: (args) => ({ ...attentionArgs(args), ...noScales }),
});

/**
 * The same over caches of int8, where a row x of a head is kept as round(x / scale) with scale = max |x| / 127 in
 * key_scales and value_scales, f32 [1, capacity, kvHeads].
 */
export const attentionInt8Operator = defineOperator<AttentionArgs>({
  schema:
    "lowbit::attention_int8_cache.out(Tensor q, Tensor k, Tensor v, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor(c!) key_scales, Tensor(d!) value_scales, Tensor input_pos, float scale, int window=0, float softcap=0, *, Tensor(e!) out) -> Tensor(e!)",
  ...attentionCalls,
  shape(args) {
    const spec = attentionShape(args, "i8");
    checkScales(args);
    return spec;
  },
  prepare: (args) => ({ ...attentionArgs(args), ...scaleArgs(args) }),
});
