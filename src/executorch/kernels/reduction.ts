/** Sums, means, extremes, running sums and norms along dimensions. */
import type { Tensor } from "../../tensor.ts";
import { denseKernel, eachPlace, numbersOf, storeInto, stridesOf } from "./dense.ts";

export interface ReductionArgs {
  /** Initial total, which `rule` combines with each element. */
  readonly first: number;
  rule(total: number, value: number): number;
  /** The result of the total over `count` elements. */
  finish(total: number, count: number): number;
  readonly x: Tensor;
  /** Dimensions that are reduced. */
  readonly dims: readonly number[];
  readonly out: Tensor;
}

/** Strides of x's dimensions in the totals, 0 for reduced ones. */
function reducedPlaces(shape: readonly number[], dims: readonly number[]): number[] {
  const kept = shape.map((size, dim) => (dims.includes(dim) ? 1 : size));
  return stridesOf(kept).map((stride, dim) => (dims.includes(dim) ? 0 : stride));
}

/** Totals of f32 are f32, summed in the order of elements, as in ExecuTorch's portable kernels. */
export const reductionReference = denseKernel<ReductionArgs>("reduction", ({ first, rule, finish, x, dims, out }) => {
  const values = numbersOf(x);
  const totals = (x.dtype === "f32" ? new Float32Array(out.data.length) : new Float64Array(out.data.length)).fill(
    first,
  );
  eachPlace(x.shape, reducedPlaces(x.shape, dims), (index, place) => {
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

/** A softmax along any dimension; `finish` gives a result from x - max and the sum of all exponentials. */
const softmaxAlong = (operator: string, finish: (exponent: number, total: number) => number) =>
  denseKernel<CumsumArgs>(operator, ({ x, dim, out }) => {
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
      for (let i = 0; i < size; i++) store(first + i * stride, finish(values[first + i * stride]! - max, total));
    }
  });

/** Softmax and log-softmax along any dimension. */
export const softmaxAlongReference = softmaxAlong("softmax_along", (exponent, total) => Math.exp(exponent) / total);
export const logSoftmaxReference = softmaxAlong("log_softmax", (exponent, total) => exponent - Math.log(total));

export interface ExtremeIndexArgs {
  readonly x: Tensor;
  /** Dimension of the search; null for all elements. */
  readonly dim: number | null;
  /** 1 for the largest, -1 for the smallest. */
  readonly sign: 1 | -1;
  readonly out: Tensor;
}

/** Index of the first extreme, or of the first NaN. */
export const extremeIndexReference = denseKernel<ExtremeIndexArgs>("extreme_index", (args) => eachExtreme(args));

/** Gives the indices of extremes, and their values. */
export function extremesAlong(args: ExtremeIndexArgs, elements: Tensor): void {
  const source = args.x.data as Float32Array;
  const target = elements.data as Float32Array;
  eachExtreme(args, (i, place) => {
    target[i] = source[place]!;
  });
}

function eachExtreme({ x, dim, sign, out }: ExtremeIndexArgs, visit?: (index: number, place: number) => void): void {
  const values = x.dtype === "i64" ? (x.data as BigInt64Array) : numbersOf(x);
  const size = dim === null ? values.length : (x.shape[dim] ?? 1);
  const stride = dim === null ? 1 : (stridesOf(x.shape)[dim] ?? 1);
  const store = storeInto(out);
  for (let i = 0; i < out.data.length; i++) {
    const start = Math.floor(i / stride) * stride * size + (i % stride);
    const at = (place: number) => values[start + place * stride]!;
    const isNaNAt = (place: number) => Number.isNaN(at(place));
    let best = 0;
    for (let place = 1; place < size && !isNaNAt(best); place++)
      if (isNaNAt(place) || (sign > 0 ? at(place) > at(best) : at(place) < at(best))) best = place;
    store(i, best);
    visit?.(i, start + best * stride);
  }
}

export interface OrderArgs {
  readonly x: Tensor;
  readonly dim: number;
  /** Number of elements to keep of each row, the first in order. */
  readonly count: number;
  readonly descending: boolean;
  readonly values: Tensor;
  readonly indices: Tensor;
}

/** Sorts elements along a dimension, stably and with NaN as the largest; gives values and indices. */
export function orderAlong({ x, dim, count, descending, values, indices }: OrderArgs): void {
  const numbers = x.dtype === "i64" ? (x.data as BigInt64Array) : numbersOf(x);
  const size = x.shape[dim] ?? 1;
  const stride = stridesOf(x.shape)[dim] ?? 1;
  const [source, target] = [x.data as Float32Array, values.data as Float32Array];
  const compare = (a: number | bigint, b: number | bigint) =>
    a < b ? -1 : a > b ? 1 : Number(Number.isNaN(a)) - Number(Number.isNaN(b));
  for (let lane = 0; lane * count < values.data.length; lane++) {
    const [row, within] = [Math.floor(lane / stride), lane % stride];
    const start = row * stride * size + within;
    const at = (place: number) => numbers[start + place * stride]!;
    const order = Array.from({ length: size }, (_, place) => place);
    order.sort((a, b) => (descending ? compare(at(b), at(a)) : compare(at(a), at(b))));
    for (let i = 0; i < count; i++) {
      const to = (row * count + i) * stride + within;
      target[to] = source[start + order[i]! * stride]!;
      (indices.data as BigInt64Array)[to] = BigInt(order[i]!);
    }
  }
}

export interface VarianceArgs {
  readonly x: Tensor;
  /** Dimensions that are reduced. */
  readonly dims: readonly number[];
  /** Subtracted from the number of elements in the divisor (Bessel's correction). */
  readonly correction: number;
  readonly out: Tensor;
}

/** Variance: the sum of squared differences from the mean / (count - correction), in double precision. */
export const varianceReference = denseKernel<VarianceArgs>("variance", ({ x, dims, correction, out }) => {
  const values = numbersOf(x);
  const places = reducedPlaces(x.shape, dims);
  const [means, squares] = [new Float64Array(out.data.length), new Float64Array(out.data.length)];
  const count = values.length / out.data.length;
  eachPlace(x.shape, places, (index, place) => {
    means[place]! += values[index]! / count;
  });
  eachPlace(x.shape, places, (index, place) => {
    squares[place]! += (values[index]! - means[place]!) ** 2;
  });
  const store = storeInto(out);
  for (let i = 0; i < squares.length; i++) store(i, squares[i]! / Math.max(0, count - correction));
});

export interface LayerNormArgs {
  readonly x: Tensor;
  /** Adjacent elements that are normalized together. */
  readonly size: number;
  /** Factors, and `bias`, of `size` elements in any shape. */
  readonly weight: Tensor | null;
  readonly bias: Tensor | null;
  readonly eps: number;
  readonly out: Tensor;
  readonly means: Tensor;
  /** Receives 1 / sqrt(variance + eps). */
  readonly inverses: Tensor;
}

/** out = (x - mean) / sqrt(variance + eps) * weight + bias, summed in double precision. */
export function layerNorm({ x, size, weight, bias, eps, out, means, inverses }: LayerNormArgs): void {
  const values = numbersOf(x);
  const factors = weight && numbersOf(weight);
  const addends = bias && numbersOf(bias);
  const [store, storeMean, storeInverse] = [storeInto(out), storeInto(means), storeInto(inverses)];
  for (let row = 0; row * size < values.length; row++) {
    const start = row * size;
    let total = 0;
    for (let i = 0; i < size; i++) total += values[start + i]!;
    const mean = total / size;
    let squares = 0;
    for (let i = 0; i < size; i++) squares += (values[start + i]! - mean) ** 2;
    const inverse = 1 / Math.sqrt(squares / size + eps);
    for (let i = 0; i < size; i++)
      store(start + i, (values[start + i]! - mean) * inverse * (factors?.[i] ?? 1) + (addends?.[i] ?? 0));
    storeMean(row, mean);
    storeInverse(row, inverse);
  }
}
