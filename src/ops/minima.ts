/**
 * Low-bit weights with a minimum for each group, w = scale * (q - zero) + minimum, as GGUF and MLX have them. x W^T is the
 * product of integers and scales, plus that of the minima with the sums of x over each group.
 */
import { groupSums } from "../kernels/families/index.ts";
import { groupCount, type QuantizedWeights } from "../quantized.ts";
import type { Tensor } from "../tensor.ts";
import { rowsOf } from "./linear.ts";
import type { AffineWeight } from "./lowering.ts";
import { defineOperator } from "./operator.ts";
import {
  type FloatFormat,
  type FloatWeight,
  loweringOf,
  registerWeightFormat,
  rowBlocks,
  type Weight,
  type WeightFormat,
} from "./weight.ts";

export interface MinimaFormat extends WeightFormat {
  readonly kind: "minima";
  readonly weights: AffineWeight;
  /** Minimum of each group, [n, groups]. */
  readonly minima: FloatWeight;
}

/** Weights with a minimum for each group, [n, groups]; `rows` reads the minima of some rows. */
export function withMinima(
  weights: AffineWeight,
  minima: {
    readonly dtype: FloatFormat["dtype"];
    rows(first: number, count: number): Promise<Tensor>;
  },
): Weight<MinimaFormat, QuantizedWeights> {
  const { name, shape, load, format } = weights;
  const { n } = format.spec;
  const added: FloatWeight = {
    name: `${name}.minima`,
    shape: [n, groupCount(format.spec)],
    format: { kind: "float", dtype: minima.dtype },
    load: () => minima.rows(0, n),
  };
  return { name, shape, format: { kind: "minima", weights, minima: added }, load };
}

/**
 * out [..., groups] = sums of each group of `group_size` neighbouring values of x [..., k]; the last group may be smaller.
 */
export const groupSumsOperator = defineOperator({
  schema: "lowbit::group_sums.out(Tensor x, int group_size, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: groupSums,
  rowwise: ["x"],
  shape(args) {
    const { shape } = args.tensor("x", "f32");
    const k = shape.at(-1) ?? 0;
    if (k === 0) args.fail("x", `expected a last dimension of values but found shape [${shape}]`);
    return { dtype: "f32", shape: shape.with(-1, groupCount({ k, groupSize: args.integer("group_size", 1) })) };
  },
  prepare(args) {
    const x = args.tensor("x");
    const sizes = rowsOf(x);
    return {
      ...sizes,
      groups: args.tensor("out").shape.at(-1)!,
      groupSize: Math.min(args.number("group_size"), sizes.dim),
      x: x.data as Float32Array,
      y: args.tensor("out").data as Float32Array,
    };
  },
});

/** [k, groups], 1 where a column belongs to a group: its product with a row of minima is the minimum of each column. */
function groupColumns({ k, groupSize }: { k: number; groupSize: number }): Float32Array {
  const groups = groupCount({ k, groupSize });
  const columns = new Float32Array(k * groups);
  for (let c = 0; c < k; c++) columns[c * groups + Math.floor(c / groupSize)] = 1;
  return columns;
}

registerWeightFormat({
  kind: "minima",
  linear(builder, x, weight, bias) {
    const { weights, minima } = (weight as Weight<MinimaFormat>).format;
    const product = loweringOf(weights).linear(builder, x, weights, bias);
    const sums = builder.call("lowbit::group_sums.out", x, weights.format.spec.groupSize);
    return builder.call("aten::add.out", product, loweringOf(minima).linear(builder, sums, minima, null), 1);
  },
  rowBlocks(weight, rows) {
    const { weights, minima } = (weight as Weight<MinimaFormat>).format;
    const added = rowBlocks(minima, rows);
    return rowBlocks(weights, rows).map((part, i) => ({
      ...part,
      format: { kind: "minima", weights: part as AffineWeight, minima: added[i] as FloatWeight },
    }));
  },
  embedding(builder, weight, indices) {
    const { weights, minima } = (weight as Weight<MinimaFormat>).format;
    const { k, groupSize } = weights.format.spec;
    const rows = loweringOf(weights).embedding!(builder, weights, indices);
    const columns = builder.constant({
      key: `columns of groups of ${groupSize}:${k}`,
      dtype: "f32",
      shape: [k, groupCount({ k, groupSize })],
      read: async () => groupColumns({ k, groupSize }),
    });
    const added = builder.call(
      "aten::linear.out",
      loweringOf(minima).embedding!(builder, minima, indices),
      columns,
      null,
    );
    return builder.call("aten::add.out", rows, added, 1);
  },
});
