/** Sums, means, extremes and running sums along dimensions. */
import type { Tensor } from "../../../tensor.ts";
import { denseKernel, eachPlace, numbersOf, storeInto, stridesOf } from "./dense.ts";

export interface ReductionArgs {
  /** Value of no elements, and of one more. */
  readonly first: number;
  rule(total: number, value: number): number;
  /** From the total of `count` elements. */
  finish(total: number, count: number): number;
  readonly x: Tensor;
  /** Dimensions that go. */
  readonly dims: readonly number[];
  readonly out: Tensor;
}

/** Totals of f32 are f32, in the order of the elements, as ExecuTorch's portable kernels have them. */
export const reductionReference = denseKernel<ReductionArgs>("reduction", ({ first, rule, finish, x, dims, out }) => {
  const values = numbersOf(x);
  const totals = (x.dtype === "f32" ? new Float32Array(out.data.length) : new Float64Array(out.data.length)).fill(
    first,
  );
  const kept = x.shape.map((size, dim) => (dims.includes(dim) ? 1 : size));
  const strides = stridesOf(kept).map((stride, dim) => (dims.includes(dim) ? 0 : stride));
  eachPlace(x.shape, strides, (index, place) => {
    totals[place] = rule(totals[place]!, values[index]!);
  });
  const count = totals.length === 0 ? 0 : values.length / totals.length;
  const store = storeInto(out);
  for (let i = 0; i < totals.length; i++) store(i, finish(totals[i]!, count));
});

export interface CumsumArgs {
  readonly x: Tensor;
  readonly dim: number;
  readonly out: Tensor;
}

export const cumsumReference = denseKernel<CumsumArgs>("cumsum", ({ x, dim, out }) => {
  const values = numbersOf(x);
  const sums = new Float64Array(values.length);
  const stride = stridesOf(x.shape)[dim] ?? 1;
  const size = x.shape[dim] ?? 1;
  const store = storeInto(out);
  for (let i = 0; i < values.length; i++) {
    const isFirst = Math.floor(i / stride) % size === 0;
    sums[i] = values[i]! + (isFirst ? 0 : sums[i - stride]!);
    store(i, sums[i]!);
  }
});

/** Probabilities along any dimension. */
export const softmaxAlongReference = denseKernel<CumsumArgs>("softmax_along", ({ x, dim, out }) => {
  const values = numbersOf(x);
  const size = x.shape[dim] ?? 1;
  const stride = stridesOf(x.shape)[dim] ?? 1;
  const store = storeInto(out);
  for (let first = 0; first < values.length; first++) {
    if (Math.floor(first / stride) % size !== 0) continue;
    let max = Number.NEGATIVE_INFINITY;
    for (let i = 0; i < size; i++) max = Math.max(max, values[first + i * stride]!);
    let total = 0;
    for (let i = 0; i < size; i++) total += Math.exp(values[first + i * stride]! - max);
    for (let i = 0; i < size; i++) store(first + i * stride, Math.exp(values[first + i * stride]! - max) / total);
  }
});
