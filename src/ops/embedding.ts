/** Embedding operators: float tables, TorchAO-packed tables, and rows of a packed lm_head (tied embeddings). */

import { embeddingFloat, embeddingPacked, embeddingShared } from "../kernels/families/index.ts";
import { checkEmbedding } from "../kernels/layout/torchao-embedding.ts";
import type { Indices } from "../kernels/records.ts";
import { packedQuery } from "../kernels/select.ts";
import { isSameShape, type Tensor } from "../tensor.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { openArgument, packedShape, weightBits } from "./linear.ts";
import { defineOperator, type Operator, touchedBytes } from "./operator.ts";

/** Shape of the rows that indices look up, [...indices, dim]. */
export function rowsShape(args: Arguments<TensorSpec>, dim: number): TensorSpec {
  return { dtype: "f32", shape: [...args.tensor("indices", "i64", "i32").shape, dim] };
}

/** Bytes of a call that reads only some rows of `tables`, which have `rows` rows. */
export function rowBytes(args: Arguments<Tensor>, tables: readonly string[], rows: number): number {
  return touchedBytes(args, tables, Math.min(1, args.tensor("indices").data.length / rows));
}

export const embeddingFloatOperator = defineOperator({
  schema:
    "aten::embedding.out(Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: embeddingFloat,
  indices: { argument: "indices", limit: (args) => args.tensor("weight").shape[0]! },
  tables: ["weight"],
  bytes: (args) => rowBytes(args, ["weight"], args.tensor("weight").shape[0]!),
  shape(args) {
    const { shape } = args.tensor("weight", "f32", "f16", "bf16");
    if (shape.length !== 2) args.fail("weight", `expected shape [rows, dim] but found [${shape}]`);
    return rowsShape(args, shape[1]!);
  },
  prepare(args) {
    const weight = args.tensor("weight");
    return {
      rows: weight.shape[0]!,
      dim: weight.shape[1]!,
      weights: { dtype: weight.dtype, data: weight.data as Float32Array | Uint16Array },
      indices: args.tensor("indices").data as Indices,
      y: args.tensor("out").data as Float32Array,
    };
  },
});

const packedTables = ["packed_weight_qvals", "weight_scales", "weight_zeros"];

/** TorchAO's shared_kernels/embedding_xbit: scales f32 and zero points int8 [rows, groups] are separate tensors. */
const packedEmbedding = (bits: number): Operator =>
  defineOperator({
    schema: `torchao::_embedding_${bits}bit.out(Tensor packed_weight_qvals, int num_embeddings, int embedding_dim, Tensor weight_scales, Tensor weight_zeros, Tensor indices, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: embeddingPacked,
    bits: [bits],
    indices: { argument: "indices", limit: (args) => args.number("num_embeddings") },
    tables: packedTables,
    bytes: (args) => rowBytes(args, packedTables, args.number("num_embeddings")),
    shape(args) {
      const scales = args.tensor("weight_scales", "f32");
      const zeros = args.tensor("weight_zeros", "i8");
      args.tensor("packed_weight_qvals", "u8", "i8");
      const rows = args.integer("num_embeddings", 1);
      const dim = args.integer("embedding_dim", 1);
      const [scaleRows, groups] = scales.shape;
      if (scales.shape.length !== 2 || scaleRows !== rows || dim % groups! !== 0)
        args.fail(
          "weight_scales",
          `expected shape [${rows}, a number of groups that divides ${dim}] but found [${scales.shape}]`,
        );
      if (!isSameShape(zeros.shape, scales.shape))
        args.fail("weight_zeros", `expected the shape of weight_scales [${scales.shape}] but found [${zeros.shape}]`);
      return rowsShape(args, dim);
    },
    query: () => ({ layout: "torchao_embedding", bits, m: 1 }),
    prepare(args) {
      const shape = { bits, rows: args.number("num_embeddings"), dim: args.number("embedding_dim") };
      const packed = args.tensor("packed_weight_qvals").data as Uint8Array;
      checkEmbedding(packed, shape);
      return {
        ...shape,
        groups: args.tensor("weight_scales").shape[1]!,
        packed,
        scales: args.tensor("weight_scales").data as Float32Array,
        zeros: args.tensor("weight_zeros").data as Int8Array,
        indices: args.tensor("indices").data as Indices,
        y: args.tensor("out").data as Float32Array,
      };
    },
  });

/** Looks up rows in the packed weights of the lm_head (TorchAO, _shared_embedding_{b}bit). */
const sharedEmbedding = (bits: number): Operator =>
  defineOperator({
    schema: `torchao::_shared_embedding_${bits}bit.out(Tensor packed_weights, int group_size, int n, int k, Tensor indices, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: embeddingShared,
    bits: [bits],
    indices: { argument: "indices", limit: (args) => args.number("n") },
    tables: ["packed_weights"],
    bytes: (args) => rowBytes(args, ["packed_weights"], args.number("n")),
    shape(args) {
      args.tensor("packed_weights", "u8", "i8");
      return rowsShape(args, packedShape(args).k);
    },
    query: (args) => packedQuery(openArgument(args, "packed_weights", bits), 1),
    prepare: (args) => ({
      weights: openArgument(args, "packed_weights", bits),
      indices: args.tensor("indices").data as Indices,
      y: args.tensor("out").data as Float32Array,
      ...{ first: 0, rows: args.number("n") },
    }),
  });

export const embeddingPackedOperators: readonly Operator[] = weightBits.map(packedEmbedding);
export const embeddingSharedOperators: readonly Operator[] = weightBits.map(sharedEmbedding);
