/**
 * Elementwise and row operators around a decoder's blocks: add, multiply, scale, softcap, select, slice, softmax, argmax.
 */

import { byteSize } from "../dtype.ts";
import { add, argmax, gate, scale, select, softcap, softmax } from "../kernels/families/index.ts";
import { bytesOf, elementCount, isSameShape, type Tensor } from "../tensor.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { dimensionOf } from "./dimension.ts";
import { rowsOf } from "./linear.ts";
import { defineOperator } from "./operator.ts";

/** The out tensor of an elementwise call, and its number of elements. */
export function result(args: Arguments<Tensor>): { readonly count: number; readonly y: Float32Array } {
  const y = args.tensor("out").data as Float32Array;
  return { count: y.length, y };
}

/** out = self + alpha * other, for equal shapes. */
export const addOperator = defineOperator({
  schema: "aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
  kernels: add,
  inPlace: ["self", "other"],
  rowwise: ["self", "other"],
  shape(args) {
    const self = args.tensor("self", "f32");
    const other = args.tensor("other", "f32");
    if (!isSameShape(self.shape, other.shape))
      args.fail("other", `expected the shape of self [${self.shape}] but found [${other.shape}]`);
    return { dtype: "f32", shape: self.shape };
  },
  prepare: (args) => ({
    a: args.tensor("self").data as Float32Array,
    b: args.tensor("other").data as Float32Array,
    alpha: args.number("alpha"),
    ...result(args),
  }),
});

/** out = self * other, for a number `other`. */
export const scaleOperator = defineOperator({
  schema: "aten::mul.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: scale,
  inPlace: ["self"],
  rowwise: ["self"],
  shape: (args) => ({ dtype: "f32", shape: args.tensor("self", "f32").shape }),
  prepare: (args) => ({
    x: args.tensor("self").data as Float32Array,
    factor: args.number("other"),
    ...result(args),
  }),
});

/** out = self * other, for equal shapes. */
export const multiplyOperator = defineOperator({
  schema: "aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: gate,
  inPlace: ["self", "other"],
  rowwise: ["self", "other"],
  shape(args) {
    const [self, other] = [args.tensor("self", "f32"), args.tensor("other", "f32")];
    if (!isSameShape(self.shape, other.shape))
      args.fail("other", `expected the shape of self [${self.shape}] but found [${other.shape}]`);
    return { dtype: "f32", shape: self.shape };
  },
  prepare: (args) => ({
    gate: args.tensor("self").data as Float32Array,
    up: args.tensor("other").data as Float32Array,
    activation: "identity" as const,
    ...result(args),
  }),
});

/** out = cap * tanh(x / cap), a smooth bound (Gemma 2). */
export const softcapOperator = defineOperator({
  schema: "lowbit::softcap.out(Tensor x, float cap, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: softcap,
  inPlace: ["x"],
  rowwise: ["x"],
  shape(args) {
    if (!(args.number("cap") > 0)) args.fail("cap", `expected a positive number but found ${args.number("cap")}`);
    return { dtype: "f32", shape: args.tensor("x", "f32").shape };
  },
  prepare: (args) => ({
    x: args.tensor("x").data as Float32Array,
    cap: args.number("cap"),
    ...result(args),
  }),
});

/** out = self at one index of a dimension, which the result lacks; a copy. */
export const selectOperator = defineOperator({
  schema: "aten::select_copy.int_out(Tensor self, int dim, int index, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: select,
  shape(args) {
    const { dtype, shape } = args.tensor("self");
    const dim = dimensionOf(args, "dim", shape.length);
    const index = args.integer("index");
    if (index < -shape[dim]! || index >= shape[dim]!)
      args.fail("index", `expected -${shape[dim]}..${shape[dim]! - 1} but found ${index}`);
    return { dtype, shape: shape.toSpliced(dim, 1) };
  },
  prepare(args) {
    const { shape, dtype, data } = args.tensor("self");
    const dim = dimensionOf(args, "dim", shape.length);
    const index = args.integer("index");
    const blockBytes = elementCount(shape.slice(dim + 1)) * byteSize(dtype);
    return {
      outer: elementCount(shape.slice(0, dim)),
      stride: shape[dim]! * blockBytes,
      offset: (index < 0 ? index + shape[dim]! : index) * blockBytes,
      blockBytes,
      x: bytesOf(data),
      y: bytesOf(args.tensor("out").data),
    };
  },
});

/** Indices of a dimension from `start` up to, not including, `end`; both may be counted from the end, and are clamped. */
function sliceBounds(args: Arguments<TensorSpec>): { dim: number; start: number; length: number } {
  const { shape } = args.tensor("self");
  const dim = dimensionOf(args, "dim", shape.length);
  const size = shape[dim]!;
  if (args.integer("step") !== 1) args.fail("step", `only 1 is supported, found ${args.integer("step")}`);
  const bound = (name: string, fallback: number) => {
    const index = args.optionalNumber(name) === null ? fallback : args.integer(name);
    return Math.min(size, Math.max(0, index < 0 ? index + size : index));
  };
  const start = bound("start", 0);
  return { dim, start, length: Math.max(0, bound("end", size) - start) };
}

/** out = a range of one dimension of self; a copy. */
export const sliceOperator = defineOperator({
  schema:
    "aten::slice_copy.Tensor_out(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: select,
  rowwise: ["self"],
  shape(args) {
    const { dtype, shape } = args.tensor("self");
    const { dim, length } = sliceBounds(args);
    return { dtype, shape: shape.with(dim, length) };
  },
  prepare(args) {
    const { shape, dtype, data } = args.tensor("self");
    const { dim, start, length } = sliceBounds(args);
    const itemBytes = elementCount(shape.slice(dim + 1)) * byteSize(dtype);
    return {
      outer: elementCount(shape.slice(0, dim)),
      stride: shape[dim]! * itemBytes,
      offset: start * itemBytes,
      blockBytes: length * itemBytes,
      x: bytesOf(data),
      y: bytesOf(args.tensor("out").data),
    };
  },
});

/** The input of a row operator. ShapeError unless `dim` is the last dimension. */
function lastDimension(args: Arguments<TensorSpec>): TensorSpec {
  const self = args.tensor("self", "f32");
  const dim = dimensionOf(args, "dim", self.shape.length);
  if (dim !== self.shape.length - 1) args.fail("dim", `only the last dimension is supported, found ${dim}`);
  return self;
}

/** out = softmax of self along the last dimension. */
export const softmaxOperator = defineOperator({
  schema: "aten::_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: softmax,
  shape: (args) => ({ dtype: "f32", shape: lastDimension(args).shape }),
  prepare: (args) => ({
    ...rowsOf(args.tensor("self")),
    x: args.tensor("self").data as Float32Array,
    y: args.tensor("out").data as Float32Array,
  }),
});

/** out = index of the first largest value along the last dimension (greedy sampling). */
export const argmaxOperator = defineOperator({
  schema: "aten::argmax.out(Tensor self, int? dim=None, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: argmax,
  shape(args) {
    const { shape } = lastDimension(args);
    return { dtype: "i64", shape: args.boolean("keepdim") ? shape.with(-1, 1) : shape.slice(0, -1) };
  },
  prepare: (args) => ({
    ...rowsOf(args.tensor("self")),
    x: args.tensor("self").data as Float32Array,
    y: args.tensor("out").data as BigInt64Array,
  }),
});
