/** Causal grouped-query attention over a contiguous KV cache in states of the program, as ExecuTorch has it. */
import type { AttentionArgs } from "../kernels/families/attention/fields.ts";
import { attention } from "../kernels/families/index.ts";
import { elementCount, isSameShape, type Tensor } from "../tensor.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { rowCount } from "./linear.ts";
import { defineOperator, touchedBytes } from "./operator.ts";

function attentionShape(args: Arguments<TensorSpec>): TensorSpec {
  const { shape: cache } = args.tensor("key_cache", "f32");
  const { shape: position } = args.tensor("input_pos", "i64");
  if (!isSameShape(position, [1])) args.fail("input_pos", `expected shape [1] but found [${position}]`);
  const [batch, capacity, kvHeads, headDim] = cache as [number, number, number, number];
  const width = kvHeads * headDim;
  if (cache.length !== 4 || batch !== 1 || width === 0)
    args.fail("key_cache", `expected shape [1, capacity, heads, D] but found [${cache}]`);
  if (!isSameShape(args.tensor("value_cache", "f32").shape, cache))
    args.fail("value_cache", `expected the shape of key_cache [${cache}]`);
  args.integer("window", 0);
  const q = args.tensor("q", "f32");
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

function attentionArgs(args: Arguments<Tensor>): AttentionArgs {
  const out = args.tensor("out");
  const [, capacity, kvHeads, headDim] = args.tensor("key_cache").shape;
  const floats = (name: string) => args.tensor(name).data as Float32Array;
  return {
    tokens: rowCount(out.shape),
    heads: out.shape.at(-1)! / headDim!,
    kvHeads: kvHeads!,
    headDim: headDim!,
    capacity: capacity!,
    q: floats("q"),
    k: floats("k"),
    v: floats("v"),
    keyCache: floats("key_cache"),
    valueCache: floats("value_cache"),
    position: args.tensor("input_pos").data as BigInt64Array,
    scale: args.number("scale"),
    window: args.number("window"),
    softcap: args.number("softcap"),
    y: floats("out"),
  };
}

/** Bytes that a call moves: its tensors, and the cache from the window's first position to the last query's. */
function attentionBytes(args: Arguments<Tensor>): number {
  const tokens = rowCount(args.tensor("out").shape);
  const end = Number(args.tensor("input_pos").data[0]) + tokens;
  const window = args.number("window");
  const seen = window === 0 ? end : Math.min(end, window + tokens);
  return touchedBytes(args, ["key_cache", "value_cache"], Math.min(1, seen / args.tensor("key_cache").shape[1]!));
}

/** Multiplications of scores and of weighted sums of values, over `positions` positions. */
export function attentionMultiplications(queries: TensorSpec, positions: number): number {
  return 2 * elementCount(queries.shape) * positions;
}

/**
 * Causal grouped-query attention. q [1, T, heads * D]; k, v [1, T, kvHeads * D] are first written to the caches
 * f32 [1, capacity, kvHeads, D] at input_pos. window: last positions seen, 0 for all. softcap: 0 for none (Gemma 2).
 */
export const attentionOperator = defineOperator<AttentionArgs>({
  schema:
    "lowbit::attention.out(Tensor q, Tensor k, Tensor v, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor input_pos, float scale, int window=0, float softcap=0, *, Tensor(c!) out) -> Tensor(c!)",
  kernels: attention,
  indices: {
    argument: "input_pos",
    limit: (args: Arguments<Tensor>) => args.tensor("key_cache").shape[1]! - rowCount(args.tensor("q").shape) + 1,
  },
  // A lower bound: positions before these tokens are known only when the call runs.
  multiplications: (args: Arguments<TensorSpec>) =>
    attentionMultiplications(args.tensor("q"), rowCount(args.tensor("q").shape)),
  query: (args: Arguments<Tensor>) => ({ layout: null, bits: null, m: rowCount(args.tensor("q").shape) }),
  bytes: attentionBytes,
  shape: attentionShape,
  prepare: attentionArgs,
});
