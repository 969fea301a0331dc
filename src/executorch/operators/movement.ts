/** aten operators that copy tensors to another shape, order or selection, and that make new tensors. */

import type { Arguments, TensorSpec } from "../../ops/call-arguments.ts";
import { checkedDimension, dimensionOf } from "../../ops/dimension.ts";
import { sliceOperator } from "../../ops/elementwise.ts";
import { defineOperator, type Operator, overload } from "../../ops/operator.ts";
import { type Routine, routine } from "../../ops/operator-registry.ts";
import { bytesOf, elementCount, isSameShape } from "../../tensor.ts";
import { broadcastStrides, stridesOf } from "../kernels/dense.ts";
import {
  type CatArgs,
  catReference,
  type PadArgs,
  padReference,
  type SliceScatterArgs,
  type StridedArgs,
  sliceScatterReference,
  stridedReference,
} from "../kernels/movement.ts";
import { promoted } from "./pointwise.ts";
import { broadcastShape, rowRank, sliceOf, viewShape } from "./shapes.ts";

/** The result's shape, and the strides of its elements in the input. */
interface Places {
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  readonly start?: number;
}

/** An operator that copies strided elements of `self`. */
function strided(schema: string, places: (args: Arguments<TensorSpec>, x: TensorSpec) => Places): Operator {
  const input = /Tensor (\w+)/.exec(schema)![1]!;
  return defineOperator<StridedArgs>({
    schema: `${schema}, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: [stridedReference],
    shape(args, planned) {
      const x = args.tensor(input);
      return { dtype: converts(schema) ? (planned ?? x.dtype) : x.dtype, shape: places(args, x).shape };
    },
    prepare(args) {
      const x = args.tensor(input);
      const { strides, start = 0 } = places(args, x);
      return { x, start, strides, out: args.tensor("out") };
    },
  });
}

/** Operators whose result has the dtype that the program planned. */
const converts = (schema: string) => schema.includes("_to_");

const sameOrder = (shape: readonly number[]): Places => ({ shape, strides: stridesOf(shape) });
const unchanged = (schema: string) => strided(schema, (_, x) => sameOrder(x.shape));

function permuted(x: TensorSpec, order: readonly number[]): Places {
  const strides = stridesOf(x.shape);
  return { shape: order.map((dim) => x.shape[dim]!), strides: order.map((dim) => strides[dim]!) };
}

const permute = strided("aten::permute_copy.out(Tensor self, int[] dims", (args, x) => {
  const order = args.numbers("dims").map((dim) => checkedDimension(args, "dims", dim, x.shape.length));
  if (new Set(order).size !== x.shape.length) args.fail("dims", `expected each dimension once but found [${order}]`);
  return permuted(x, order);
});

const transpose = strided("aten::transpose_copy.int_out(Tensor self, int dim0, int dim1", (args, x) => {
  const [a, b] = ["dim0", "dim1"].map((name) => dimensionOf(args, name, x.shape.length));
  return permuted(
    x,
    x.shape.map((_, dim) => (dim === a ? b! : dim === b ? a! : dim)),
  );
});

const anySlice = strided(
  "aten::slice_copy.Tensor_out(Tensor self, int dim=0, int? start=None, int? end=None, int step=1",
  (args, x) => {
    const dim = dimensionOf(args, "dim", x.shape.length);
    const { start, step, count } = sliceOf(args, x.shape[dim]!);
    const strides = stridesOf(x.shape);
    return {
      shape: x.shape.with(dim, count),
      strides: strides.with(dim, strides[dim]! * step),
      start: start * strides[dim]!,
    };
  },
);

/** Slices of adjacent elements, as in fused projections, have optimised kernels. */
const slice = overload(anySlice, {
  operator: sliceOperator,
  fits: (args) =>
    args.number("step") === 1 && ["start", "end"].every((name) => Number.isSafeInteger(args.optionalNumber(name) ?? 0)),
});

const unsqueeze = strided("aten::unsqueeze_copy.out(Tensor self, int dim", (args, x) =>
  sameOrder(x.shape.toSpliced(dimensionOf(args, "dim", x.shape.length + 1), 0, 1)),
);

const squeeze = (schema: string, dimsOf: (args: Arguments<TensorSpec>) => readonly number[]) =>
  strided(schema, (args, x) => {
    const dims = dimsOf(args).map((dim) => checkedDimension(args, "dim", dim, rowRank(x.shape)));
    return sameOrder(x.shape.filter((size, dim) => size !== 1 || !dims.includes(dim)));
  });

const flip = strided("aten::flip.out(Tensor self, int[] dims", (args, x) => {
  const dims = args.numbers("dims").map((dim) => checkedDimension(args, "dims", dim, rowRank(x.shape)));
  const strides = stridesOf(x.shape);
  const start = dims.reduce((sum, dim) => sum + (strides[dim] ?? 0) * ((x.shape[dim] ?? 1) - 1), 0);
  return { shape: x.shape, strides: strides.map((stride, dim) => (dims.includes(dim) ? -stride : stride)), start };
});

/** out = `src`, broadcast and converted to the shape and dtype of `self`. */
const copy = defineOperator<StridedArgs>({
  schema: "aten::copy.out(Tensor self, Tensor src, bool non_blocking=False, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: [stridedReference],
  inPlace: ["self"],
  shape(args) {
    const { dtype, shape } = args.tensor("self");
    const src = args.tensor("src").shape;
    if (!isSameShape(broadcastShape(args, "src", shape, src), shape))
      args.fail("src", `expected a shape that broadcasts to [${shape}] but found [${src}]`);
    return { dtype, shape };
  },
  prepare(args) {
    const x = args.tensor("src");
    const out = args.tensor("out");
    return { x, start: 0, strides: broadcastStrides(x.shape, out.shape), out };
  },
});

const sliceScatter = defineOperator<SliceScatterArgs>({
  schema:
    "aten::slice_scatter.out(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: [sliceScatterReference],
  inPlace: ["self"],
  shape(args) {
    const { dtype, shape } = args.tensor("self");
    const dim = dimensionOf(args, "dim", shape.length);
    const expected = shape.with(dim, sliceOf(args, shape[dim]!).count);
    const src = args.tensor("src", dtype).shape;
    if (!isSameShape(src, expected)) args.fail("src", `expected shape [${expected}] but found [${src}]`);
    return { dtype, shape };
  },
  prepare(args) {
    const base = args.tensor("self");
    const dim = dimensionOf(args, "dim", base.shape.length);
    const { start, step } = sliceOf(args, base.shape[dim]!);
    const strides = stridesOf(base.shape);
    return {
      base,
      x: args.tensor("src"),
      start: start * strides[dim]!,
      strides: strides.with(dim, strides[dim]! * step),
      out: args.tensor("out"),
    };
  },
});

const expand = strided("aten::expand_copy.out(Tensor self, int[] size, bool implicit=False", (args, x) => {
  const size = args.numbers("size");
  const shape = size.map((value, dim) => (value === -1 ? (x.shape[dim - size.length + x.shape.length] ?? -1) : value));
  const fits = x.shape.every((value, dim) => value === 1 || value === shape[dim + shape.length - x.shape.length]);
  if (!fits || shape.length < x.shape.length || shape.some((value) => value < 0))
    args.fail("size", `expected sizes that [${x.shape}] expands to but found [${size}]`);
  return { shape, strides: broadcastStrides(x.shape, shape) };
});

/** Sizes of the tensor with as many dimensions as there are repeat counts, and these counts. */
function repeatedSizes(args: Arguments<TensorSpec>): { sizes: readonly number[]; counts: readonly number[] } {
  const { shape } = args.tensor("self");
  const counts = args.numbers("repeats");
  if (counts.length < shape.length || !counts.every((count) => Number.isSafeInteger(count) && count >= 0))
    args.fail("repeats", `expected at least ${shape.length} whole numbers from 0 on but found [${counts}]`);
  return { sizes: [...new Array<number>(counts.length - shape.length).fill(1), ...shape], counts };
}

const repeat = defineOperator<StridedArgs>({
  schema: "aten::repeat.out(Tensor self, SymInt[] repeats, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: [stridedReference],
  shape(args) {
    const { sizes, counts } = repeatedSizes(args);
    return { dtype: args.tensor("self").dtype, shape: sizes.map((size, dim) => size * counts[dim]!) };
  },
  prepare(args) {
    const { sizes, counts } = repeatedSizes(args);
    const strides = stridesOf(sizes);
    // Adds a dimension of repetitions, with stride 0, before each dimension.
    const shape = sizes.flatMap((size, dim) => [counts[dim]!, size]);
    const out = { ...args.tensor("out"), shape };
    return { x: args.tensor("self"), start: 0, strides: strides.flatMap((stride) => [0, stride]), out };
  },
});

/** Shape of tensors concatenated along a dimension; all other sizes must agree. */
function joinedShape(args: Arguments<TensorSpec>, dim: number): number[] {
  const [first, ...rest] = args.tensors("tensors").map((tensor) => tensor!.shape);
  let size = first![dim]!;
  for (const shape of rest) {
    if (shape.length !== first!.length || shape.some((value, i) => i !== dim && value !== first![i]))
      args.fail("tensors", `expected shapes that agree but for dimension ${dim} but found [${first}] and [${shape}]`);
    size += shape[dim]!;
  }
  return first!.with(dim, size);
}

/** An operator that concatenates; `extra` is 1 for stacking along a new dimension. */
function joining(schema: string, extra: 0 | 1): Operator {
  const dimOf = (args: Arguments<TensorSpec>) => {
    const tensors = args.tensors("tensors");
    if (tensors.length === 0 || tensors.includes(null)) args.fail("tensors", "expected at least one tensor");
    return dimensionOf(args, "dim", tensors[0]!.shape.length + extra);
  };
  return defineOperator<CatArgs>({
    schema: `aten::${schema}(Tensor[] tensors, int dim=0, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: [catReference],
    shape(args) {
      const dim = dimOf(args);
      const tensors = args.tensors("tensors") as readonly TensorSpec[];
      const { shape } = tensors[0]!;
      const dtype = promoted(tensors.map((tensor) => tensor.dtype));
      if (extra === 0) return { dtype, shape: joinedShape(args, dim) };
      if (tensors.some((tensor) => !isSameShape(tensor.shape, shape)))
        args.fail("tensors", `expected all of shape [${shape}]`);
      return { dtype, shape: shape.toSpliced(dim, 0, tensors.length) };
    },
    prepare(args) {
      const dim = dimOf(args);
      const parts = args.tensors("tensors").map((tensor) => tensor!);
      return { parts, blocks: parts.map(({ shape }) => elementCount(shape.slice(dim))), out: args.tensor("out") };
    },
  });
}

/** Elements to add before and after each dimension; `pad` lists the last dimension first. */
function paddingOf(args: Arguments<TensorSpec>): readonly (readonly [number, number])[] {
  const rank = args.tensor("self").shape.length;
  const pad = args.numbers("pad");
  if (pad.length % 2 !== 0 || pad.length > 2 * rank || pad.some((size) => size < 0))
    args.fail("pad", `expected two sizes of at least 0 for at most ${rank} dimensions but found [${pad}]`);
  return Array.from({ length: rank }, (_, dim) => {
    const place = 2 * (rank - 1 - dim);
    return [pad[place] ?? 0, pad[place + 1] ?? 0];
  });
}

const pad = defineOperator<PadArgs>({
  schema: "aten::constant_pad_nd.out(Tensor self, SymInt[] pad, Scalar value=0, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: [padReference],
  shape(args) {
    const { dtype, shape } = args.tensor("self");
    const padding = paddingOf(args);
    return { dtype, shape: shape.map((size, dim) => size + padding[dim]![0] + padding[dim]![1]) };
  },
  prepare(args) {
    const out = args.tensor("out");
    const strides = stridesOf(out.shape);
    const start = paddingOf(args).reduce((sum, [before], dim) => sum + before * strides[dim]!, 0);
    return { x: args.tensor("self"), start, strides, value: args.number("value"), out };
  },
});

export const movementOperators: readonly Operator[] = [
  strided("aten::view_copy.out(Tensor self, int[] size", (args, x) =>
    sameOrder(viewShape(args, "size", elementCount(x.shape))),
  ),
  permute,
  transpose,
  strided("aten::t_copy.out(Tensor self", (_, x) => permuted(x, [...x.shape.keys()].reverse())),
  slice,
  unsqueeze,
  squeeze("aten::squeeze_copy.dims_out(Tensor self, int[] dim", (args) => args.numbers("dim")),
  squeeze("aten::squeeze_copy.dim_out(Tensor self, int dim", (args) => [args.integer("dim")]),
  expand,
  repeat,
  flip,
  copy,
  sliceScatter,
  unchanged("aten::clone.out(Tensor self, int? memory_format=None"),
  unchanged("aten::alias_copy.out(Tensor self"),
  unchanged("aten::detach_copy.out(Tensor self"),
  unchanged("aten::lift_fresh_copy.out(Tensor self"),
  unchanged("aten::_to_copy.out(Tensor self, bool non_blocking=False, int? memory_format=None"),
  unchanged("dim_order_ops::_to_dim_order_copy.out(Tensor self, bool non_blocking=False, int[]? dim_order=None"),
  unchanged("dim_order_ops::_clone_dim_order.out(Tensor self, bool non_blocking=False, int[]? dim_order=None"),
  pad,
  joining("cat.out", 0),
  joining("stack.out", 1),
];

/** An operator that splits a tensor along a dimension; `keeps`: whether parts of size 1 keep the dimension. */
function splitting(
  schema: string,
  partsOf: (args: Arguments<TensorSpec>, size: number) => { readonly count: number; sizeAt(i: number): number },
  keeps = true,
): Routine {
  const placed = (args: Arguments<TensorSpec>, outs: number) => {
    const { dtype, shape } = args.tensor("self");
    const dim = dimensionOf(args, "dim", shape.length);
    const { count, sizeAt } = partsOf(args, shape[dim]!);
    if (count !== outs) args.fail("self", `gives ${count} tensors but the program planned ${outs}`);
    return { dtype, shape, dim, sizes: Array.from({ length: count }, (_, i) => sizeAt(i)) };
  };
  return routine(
    `aten::${schema}, int dim=0, *, Tensor(a!)[] out) -> ()`,
    (args, planned) => {
      const { dtype, shape, dim, sizes } = placed(args, planned.length);
      return sizes.map((size) => ({ dtype, shape: keeps ? shape.with(dim, size) : shape.toSpliced(dim, 1) }));
    },
    (args) => {
      const { shape, dim, sizes } = placed(args, args.tensors("out").length);
      const x = args.tensor("self");
      const strides = stridesOf(shape);
      let first = 0;
      for (const [i, out] of args.tensors("out").entries()) {
        const part = { ...out!, shape: shape.with(dim, sizes[i]!) };
        stridedReference.bind({ x, start: first * strides[dim]!, strides, out: part }, new Uint8Array(0), 1)();
        first += sizes[i]!;
      }
    },
  );
}

const splitWithSizes = splitting("split_with_sizes_copy.out(Tensor self, SymInt[] split_sizes", (args, size) => {
  const sizes = args.numbers("split_sizes");
  if (sizes.some((part) => part < 0) || sizes.reduce((sum, part) => sum + part, 0) !== size)
    args.fail("split_sizes", `expected sizes that add up to ${size} but found [${sizes}]`);
  return { count: sizes.length, sizeAt: (i) => sizes[i]! };
});

const split = splitting("split_copy.Tensor_out(Tensor self, SymInt split_size", (args, size) => {
  const part = args.integer("split_size", 1);
  return { count: Math.max(1, Math.ceil(size / part)), sizeAt: (i) => Math.min(part, size - i * part) };
});

const unbind = splitting("unbind_copy.int_out(Tensor self", (_, size) => ({ count: size, sizeAt: () => 1 }), false);

export const movementRoutines: readonly Routine[] = [
  splitWithSizes,
  split,
  unbind,
  // A view: the result is the input's memory.
  routine(
    "executorch_prim::et_view.default(Tensor self, int[] size, *, Tensor(a!) out) -> Tensor(a!)",
    (args) => {
      const self = args.tensor("self");
      return [{ dtype: self.dtype, shape: viewShape(args, "size", elementCount(self.shape)) }];
    },
    null,
  ),
  routine(
    "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
    () => [],
    (args) => {
      const self = args.tensor("self");
      const src = args.tensor("src", self.dtype);
      if (elementCount(src.shape) !== elementCount(self.shape))
        args.fail("src", `expected shape [${self.shape}] but found [${src.shape}]`);
      bytesOf(self.data).set(bytesOf(src.data));
    },
    ["src"],
  ),
];
