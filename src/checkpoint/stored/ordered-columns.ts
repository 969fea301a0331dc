/**
 * Weights whose groups are not neighbouring columns (GPTQ's act-order): x is permuted to the order of their columns.
 * Weights with the same order share its constant, so that calls on the same x, such as q, k and v, can be joined.
 */
import { checksum } from "../../kernels/layout/header.ts";
import { loweringOf, registerWeightFormat, type Weight, type WeightFormat } from "../../ops/weight.ts";
import type { QuantizedWeights } from "../../quantized.ts";
import { bytesOf } from "../../tensor.ts";

interface OrderedFormat extends WeightFormat {
  readonly kind: "orderedColumns";
  readonly weights: Weight<WeightFormat, QuantizedWeights>;
  /** Column j of `weights` is column order[j] of the matrix. */
  readonly order: Int32Array;
}

/** The weight of a matrix, given `weights` with its columns in another order. */
export function orderedColumns(
  weights: Weight<WeightFormat, QuantizedWeights>,
  order: Int32Array,
): Weight<OrderedFormat, QuantizedWeights> {
  const { name, shape, load } = weights;
  return { name, shape, format: { kind: "orderedColumns", weights, order }, load };
}

const keys = new WeakMap<Int32Array, string>();

function keyOf(order: Int32Array): string {
  const known = keys.get(order);
  if (known !== undefined) return known;
  const sums = [order, order.toReversed()].map((columns) => checksum(bytesOf(columns)).toString(16).padStart(8, "0"));
  const key = `columns in order ${sums.join("")}:order`;
  keys.set(order, key);
  return key;
}

registerWeightFormat({
  kind: "orderedColumns",
  linear(builder, x, weight, bias) {
    const { weights, order } = (weight as Weight<OrderedFormat>).format;
    const columns = builder.constant({
      key: keyOf(order),
      dtype: "i32",
      shape: [order.length],
      read: async () => order,
    });
    return loweringOf(weights).linear(builder, builder.call("aten::index_select.out", x, -1, columns), weights, bias);
  },
});
