/** Operators over packed sequences: rows offsets[i] .. offsets[i + 1] - 1 of a tensor are the tokens of sequence i. */
import type { AttendPackedArgs, PoolPackedArgs } from "../kernels/families/attention/fields.ts";
import { attendPacked, poolPacked } from "../kernels/families/index.ts";
import { isPooling, type Pooling, poolings } from "../pooling.ts";
import { isSameShape, type Tensor } from "../tensor.ts";
import { attentionMultiplications } from "./attention.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { rowCount } from "./linear.ts";
import { defineOperator, type Operator } from "./operator.ts";

/** Number of sequences. ShapeError unless there are offsets of at least one. */
function checkOffsets(args: Arguments<TensorSpec>): number {
  const { shape } = args.tensor("offsets", "i64");
  if (shape.length !== 1 || shape[0]! < 2) args.fail("offsets", `expected shape [sequences + 1] but found [${shape}]`);
  return shape[0]! - 1;
}

/** Offsets are indices of rows, or the number of rows. */
const offsetIndices = (input: string) => ({
  argument: "offsets",
  limit: (args: Arguments<Tensor>) => rowCount(args.tensor(input).shape) + 1,
});

/** Tokens that a query sees without a bound; kernels count with 32-bit integers. */
const ROWS_MAX = 2 ** 31 - 1;

/** Most tokens that a query sees in one direction. */
function seenRows(args: Arguments<TensorSpec>, name: "before" | "after"): number {
  return args.optionalNumber(name) === null ? ROWS_MAX : Math.min(args.integer(name, 0), ROWS_MAX);
}

/**
 * Grouped-query attention over packed sequences. q [1, T, heads * head_dim]; k, v [1, T, kv_heads * head_dim]. before,
 * after: most tokens on each side that a query sees; None for all of its sequence, and after = 0 is causal.
 */
const attendPackedOperator = defineOperator<AttendPackedArgs>({
  schema:
    "lowbit::attend_packed.out(Tensor q, Tensor k, Tensor v, Tensor offsets, int head_dim, float scale, int? before=None, int? after=None, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: attendPacked,
  indices: offsetIndices("q"),
  query: (args) => ({ layout: null, bits: null, m: rowCount(args.tensor("q").shape) }),
  multiplications: (args) => attentionMultiplications(args.tensor("q"), rowCount(args.tensor("q").shape)),
  shape(args) {
    const { shape } = args.tensor("q", "f32");
    const keys = args.tensor("k", "f32").shape;
    const headDim = args.integer("head_dim", 1);
    const width = keys.at(-1) ?? 0;
    const rows = rowCount(shape);
    if (width === 0 || width % headDim !== 0 || rowCount(keys) !== rows)
      args.fail("k", `expected shape [1, ${rows}, a multiple of ${headDim}] but found [${keys}]`);
    if (shape.length === 0 || shape.at(-1) === 0 || shape.at(-1)! % width !== 0)
      args.fail("q", `expected shape [1, T, a multiple of ${width}] but found [${shape}]`);
    if (!isSameShape(args.tensor("v", "f32").shape, keys))
      args.fail("v", `expected the shape of k [${keys}] but found [${args.tensor("v").shape}]`);
    checkOffsets(args);
    for (const name of ["before", "after"] as const) seenRows(args, name);
    return { dtype: "f32", shape };
  },
  prepare(args) {
    const [q, k, v, y] = ["q", "k", "v", "out"].map((name) => args.tensor(name).data as Float32Array);
    const headDim = args.number("head_dim");
    return {
      rows: rowCount(args.tensor("q").shape),
      heads: args.tensor("q").shape.at(-1)! / headDim,
      kvHeads: args.tensor("k").shape.at(-1)! / headDim,
      headDim,
      ...{ q: q!, k: k!, v: v!, y: y! },
      offsets: args.tensor("offsets").data as BigInt64Array,
      scale: args.number("scale"),
      before: seenRows(args, "before"),
      after: seenRows(args, "after"),
    };
  },
});

/** Pools each sequence of x [1, T, n] to a vector [sequences, n]; modes are named as in sentence-transformers. */
const poolPackedOperator = defineOperator<PoolPackedArgs>({
  schema: "lowbit::pool_packed.out(Tensor x, Tensor offsets, str mode, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: poolPacked,
  indices: offsetIndices("x"),
  shape(args) {
    const { shape } = args.tensor("x", "f32");
    const sequences = checkOffsets(args);
    const mode = args.string("mode");
    if (shape.length === 0) args.fail("x", "expected shape [1, T, n] but found a scalar");
    if (!isPooling(mode)) args.fail("mode", `expected one of ${poolings.join(", ")} but found ${mode}`);
    return { dtype: "f32", shape: [sequences, shape.at(-1)!] };
  },
  prepare(args) {
    const { shape, data } = args.tensor("x");
    return {
      pooling: args.string("mode") as Pooling,
      rows: rowCount(shape),
      dim: shape.at(-1)!,
      x: data as Float32Array,
      offsets: args.tensor("offsets").data as BigInt64Array,
      y: args.tensor("out").data as Float32Array,
    };
  },
});

export const packedSequenceOperators: readonly Operator[] = [attendPackedOperator, poolPackedOperator];
