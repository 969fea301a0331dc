/** One number from the numbers at the same place of up to three tensors, which broadcast to the shape of the result. */
import { elementCount, isSameShape, type Tensor } from "../../tensor.ts";
import { broadcastStrides, denseKernel, eachPlace, numbersOf, storeInto } from "./dense.ts";

/** A rule on whole numbers of any size. Of what it gives, as much is kept as the result's element type has bits. */
export type WholeRule = (a: bigint, b: bigint, c: bigint) => bigint | boolean;

export interface PointwiseArgs {
  rule(a: number, b: number, c: number): number;
  /** The rule where tensors are of whole numbers that `rule` would round; absent where it is exact. */
  readonly whole?: WholeRule;
  /** One to three. */
  readonly inputs: readonly Tensor[];
  readonly out: Tensor;
}

/** The values of a tensor at each place of the result. */
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
    // An array of 64 bits wraps by itself; Number() of the low half is exact for the others.
    if (out.data instanceof BigInt64Array) out.data[i] = value;
    else (out.data as Int32Array)[i] = Number(BigInt.asIntN(32, value));
  }
}
