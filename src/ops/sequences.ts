/** Operators over the sequences of a step: attention over the paged KV cache, and selection of rows. */
import type { RopeSequenceAttentionArgs, SequenceAttentionArgs } from "../kernels/families/attention/fields.ts";
import { embeddingFloat, ropeUpdateAndAttend, updateAndAttend } from "../kernels/families/index.ts";
import type { Indices } from "../kernels/records.ts";
import {
  type LayerCacheShape,
  partOffsets,
  runsOf,
  type SequenceTable,
  type SequenceUse,
  tableOf,
} from "../kernels/sequence-table.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { rowBytes } from "./embedding.ts";
import { rowCount } from "./linear.ts";
import { defineOperator, type Operator, touchedBytes } from "./operator.ts";

/** Most layers, heads and elements of a head: kernels count with 32-bit integers. */
const SIZE_MAX = 2 ** 20;

/** The cache shape that a call asks for. ShapeError for impossible sizes. */
function layerShape(args: Arguments<TensorSpec>): LayerCacheShape & { readonly layer: number } {
  const size = (name: string, least: number) => {
    const value = args.integer(name, least);
    if (value > SIZE_MAX) args.fail(name, `expected at most ${SIZE_MAX} but found ${value}`);
    return value;
  };
  return {
    layer: size("layer", 0),
    kvHeads: size("kv_heads", 1),
    headDim: size("head_dim", 1),
    // No cache has as many positions, so longer windows show all.
    window: Math.min(args.integer("window", 0), 2 ** 31 - 1),
  };
}

function cacheUse(args: Arguments<TensorSpec>): SequenceUse {
  return { kind: "cache", ...layerShape(args) };
}

/** The sequence table behind a call's handle. ShapeError for any other memory. */
export function sequenceTable(args: Arguments<Tensor>): SequenceTable {
  return (
    tableOf(args.tensor("sequences").data) ??
    args.fail("sequences", "expected the sequences of the program's own store")
  );
}

/** Arguments of both attention operators, except queries, keys and values. */
function pagesArgs(args: Arguments<Tensor>): Omit<SequenceAttentionArgs, "q" | "k" | "v"> {
  const table = sequenceTable(args);
  const { layer, kvHeads, headDim, window } = layerShape(args);
  const pages = table.layerPages(layer);
  const cache = pages?.cache;
  if (
    !pages ||
    cache?.kvHeads !== kvHeads ||
    cache.headDim !== headDim ||
    (cache.window > 0 && (window === 0 || window > cache.window))
  )
    args.fail("layer", `expected a layer of [${kvHeads}, ${headDim}] that the store has but found ${layer}`);
  const out = args.tensor("out");
  return {
    rows: rowCount(out.shape),
    heads: out.shape.at(-1)! / headDim,
    kvHeads,
    headDim,
    table,
    pages,
    scale: args.number("scale"),
    window,
    softcap: args.number("softcap"),
    sinks: (args.optionalTensor("sinks")?.data as Float32Array | undefined) ?? null,
    y: out.data as Float32Array,
  };
}

/** ShapeError unless there is one sink for each head of the `columns` columns of queries. */
function checkSinks(args: Arguments<TensorSpec>, columns: number): void {
  const heads = columns / args.integer("head_dim", 1);
  const sinks = args.optionalTensor("sinks", "f32");
  if (sinks && sinks.shape.join() !== `${heads}`)
    args.fail("sinks", `expected shape [${heads}] but found [${sinks.shape}]`);
}

/** Bytes of the pages that a call reads: from the window's first position to the last token of each run. */
function pageBytes(args: Arguments<Tensor>, rows: number): number {
  const table = sequenceTable(args);
  const { layer, window } = layerShape(args);
  const { cache } = table.layerPages(layer)!;
  const positionBytes = partOffsets(cache).layerBytes / cache.pagePositions;
  let positions = 0;
  for (const run of runsOf(table, rows)) {
    const end = run.position + run.rows;
    positions += window === 0 ? end : Math.min(end, window + run.rows);
  }
  return positions * positionBytes;
}

/** Query and bytes of both attention operators. `input` has one row for each token of the step. */
const attendCalls = (input: string) => ({
  query: (args: Arguments<Tensor>) => ({ layout: null, bits: null, m: rowCount(args.tensor(input).shape) }),
  bytes: (args: Arguments<Tensor>) => touchedBytes(args) + pageBytes(args, rowCount(args.tensor(input).shape)),
  sequenceUse: cacheUse,
});

/**
 * Causal grouped-query attention over the paged KV cache, for tokens of several sequences. q [1, T, heads * D]; k, v [1, T,
 * kv_heads * D] are first written to the pages; both None where another call stored them. window: last positions seen, 0
 * for all. softcap: 0 for none. sinks [heads]: a score of each head that has no value (Xiao et al. 2024).
 */
const updateAndAttendOperator = defineOperator<SequenceAttentionArgs>({
  schema:
    "lowbit::update_and_attend.out(Tensor q, Tensor? k, Tensor? v, Tensor(a!) sequences, int layer, int kv_heads, int head_dim, float scale, int window=0, float softcap=0, Tensor? sinks=None, *, Tensor(b!) out) -> Tensor(b!)",
  kernels: updateAndAttend,
  ...attendCalls("q"),
  shape(args) {
    const { shape } = args.tensor("q", "f32");
    const { kvHeads, headDim } = layerShape(args);
    const width = kvHeads * headDim;
    if (shape.length === 0 || shape.at(-1) === 0 || shape.at(-1)! % width !== 0)
      args.fail("q", `expected shape [1, T, a multiple of ${width}] but found [${shape}]`);
    args.tensor("sequences", "i32");
    const rows = rowCount(shape);
    const stored = ["k", "v"].map((name) => args.optionalTensor(name, "f32"));
    if ((stored[0] === null) !== (stored[1] === null)) args.fail("v", "expected keys and values, or neither");
    for (const [i, name] of ["k", "v"].entries()) {
      const own = stored[i]?.shape;
      if (own && (own.at(-1) !== width || rowCount(own) !== rows))
        args.fail(name, `expected shape [1, ${rows}, ${width}] but found [${own}]`);
    }
    checkSinks(args, shape.at(-1)!);
    return { dtype: "f32", shape };
  },
  prepare(args) {
    const [q, k, v] = ["q", "k", "v"].map((name) => args.optionalTensor(name)?.data as Float32Array | undefined);
    return { ...pagesArgs(args), q: q!, k: k ?? null, v: v ?? null };
  },
});

/**
 * lowbit::update_and_attend on columns of qkv [1, T, (heads + 2 * kv_heads) * D], after lowbit::rope on queries and keys.
 */
const ropeUpdateAndAttendOperator = defineOperator<RopeSequenceAttentionArgs>({
  schema:
    "lowbit::rope_update_and_attend.out(Tensor qkv, Tensor angles, Tensor(a!) sequences, int layer, int kv_heads, int head_dim, float scale, int window=0, float softcap=0, Tensor? sinks=None, *, Tensor(b!) out) -> Tensor(b!)",
  kernels: ropeUpdateAndAttend,
  ...attendCalls("qkv"),
  shape(args) {
    const { shape } = args.tensor("qkv", "f32");
    const { kvHeads, headDim } = layerShape(args);
    const width = kvHeads * headDim;
    const queries = (shape.at(-1) ?? 0) - 2 * width;
    if (queries <= 0 || queries % width !== 0)
      args.fail("qkv", `expected shape [1, T, a multiple of ${width}, three times that or more] but found [${shape}]`);
    args.tensor("sequences", "i32");
    const angles = args.tensor("angles", "f32").shape;
    const rows = rowCount(shape);
    if (angles.length !== 3 || angles[0] !== rows || angles[1] !== 2 || 2 * angles[2]! > headDim)
      args.fail("angles", `expected shape [${rows}, 2, at most ${headDim / 2}] but found [${angles}]`);
    checkSinks(args, queries);
    return { dtype: "f32", shape: shape.with(-1, queries) };
  },
  prepare(args) {
    const angles = args.tensor("angles");
    return {
      ...pagesArgs(args),
      qkv: args.tensor("qkv").data as Float32Array,
      angles: angles.data as Float32Array,
      half: angles.shape[2]!,
    };
  },
});

/** out [1, R, n] = rows of x [1, T, n] at indices [R]. */
const selectRowsOperator = defineOperator({
  schema: "lowbit::select_rows.out(Tensor x, Tensor indices, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: embeddingFloat,
  indices: { argument: "indices", limit: (args) => args.tensor("x").shape[1]! },
  bytes: (args) => rowBytes(args, ["x"], args.tensor("x").shape[1]!),
  shape(args) {
    const { shape } = args.tensor("x", "f32");
    if (shape.length !== 3 || shape[0] !== 1) args.fail("x", `expected shape [1, T, n] but found [${shape}]`);
    return { dtype: "f32", shape: [1, elementCount(args.tensor("indices", "i64", "i32").shape), shape[2]!] };
  },
  prepare(args) {
    const x = args.tensor("x");
    return {
      rows: x.shape[1]!,
      dim: x.shape[2]!,
      weights: { dtype: x.dtype, data: x.data as Float32Array },
      indices: args.tensor("indices").data as Indices,
      y: args.tensor("out").data as Float32Array,
    };
  },
});

export const sequenceOperators: readonly Operator[] = [
  updateAndAttendOperator,
  ropeUpdateAndAttendOperator,
  selectRowsOperator,
];
