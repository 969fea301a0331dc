/** One number from the numbers at the same place of up to three tensors, which broadcast to the shape of the result. */
import type { Tensor } from "../../../tensor.ts";
import { broadcastStrides, denseKernel, eachPlace, numbersOf, storeInto } from "./dense.ts";

export interface PointwiseArgs {
  rule(a: number, b: number, c: number): number;
  /** One to three. */
  readonly inputs: readonly Tensor[];
  readonly out: Tensor;
}

/** The values of a tensor at each place of the result. */
function spread(tensor: Tensor, shape: readonly number[]): ArrayLike<number> {
  const values = numbersOf(tensor);
  if (tensor.shape.join() === shape.join()) return values;
  const strides = broadcastStrides(tensor.shape, shape);
  const result = new Float64Array(shape.reduce((product, size) => product * size, 1));
  eachPlace(shape, strides, (index, offset) => {
    result[index] = values[offset]!;
  });
  return result;
}

export const pointwiseReference = denseKernel<PointwiseArgs>("pointwise", ({ rule, inputs, out }) => {
  const [a, b, c] = inputs.map((input) => spread(input, out.shape));
  const store = storeInto(out);
  for (let i = 0; i < out.data.length; i++) store(i, rule(a![i]!, b?.[i] ?? 0, c?.[i] ?? 0));
});
