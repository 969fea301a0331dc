/** Elementwise operators on up to three tensors, which broadcast to the shape of the result. */
import { elementCount, isSameShape, type Tensor } from "../../tensor.ts";
import { broadcastStrides, denseKernel, eachPlace, numbersOf, storeInto } from "./dense.ts";

/** A rule on integers of any size; its result is cut to the bits of the result's dtype. */
export type WholeRule = (a: bigint, b: bigint, c: bigint) => bigint | boolean;

export interface PointwiseArgs {
  rule(a: number, b: number, c: number): number;
  /** The rule for integers that `rule` would round; absent where `rule` is exact. */
  readonly whole?: WholeRule;
  /** One to three tensors. */
  readonly inputs: readonly Tensor[];
  readonly out: Tensor;
}

/** The values of a tensor broadcast to the result's shape. */
function spread(tensor: Tensor, shape: readonly number[]): ArrayLike<number> {
  const values = numbersOf(tensor);
  if (isSameShape(tensor.shape, shape)) return values;
  return spreadInto(new Float64Array(elementCount(shape)), values, tensor, shape);
}

function spreadWhole(tensor: Tensor, shape: readonly number[]): ArrayLike<bigint> {
  const values = BigInt64Array.from(tensor.data as BigInt64Array, BigInt);
  return spreadInto(new BigInt64Array(elementCount(shape)), values, tensor, shape);
}

function spreadInto<V, R extends { [index: number]: V; readonly length: number }>(
  result: R,
  values: ArrayLike<V>,
  tensor: Tensor,
  shape: readonly number[],
): R {
  eachPlace(shape, broadcastStrides(tensor.shape, shape), (index, offset) => {
    result[index] = values[offset]!;
  });
  return result;
}

export const pointwiseReference = denseKernel<PointwiseArgs>("pointwise", ({ rule, whole, inputs, out }) => {
  if (whole) return pointwiseWhole(whole, inputs, out);
  const [a, b, c] = inputs.map((input) => spread(input, out.shape));
  const store = storeInto(out);
  for (let i = 0; i < out.data.length; i++) store(i, rule(a![i]!, b?.[i] ?? 0, c?.[i] ?? 0));
});

function pointwiseWhole(rule: WholeRule, inputs: readonly Tensor[], out: Tensor): void {
  const [a, b, c] = inputs.map((input) => spreadWhole(input, out.shape));
  for (let i = 0; i < out.data.length; i++) {
    const value = BigInt(rule(a![i]!, b?.[i] ?? 0n, c?.[i] ?? 0n));
    // A 64-bit array wraps by itself; for others, Number() of the low 32 bits is exact.
    if (out.data instanceof BigInt64Array) out.data[i] = value;
    else (out.data as Int32Array)[i] = Number(BigInt.asIntN(32, value));
  }
}
