/** aten operators along dimensions (means, sums, extremes, softmax, running sums), and matrix products. */
import type { DType } from "../../dtype.ts";
import type { Arguments, TensorSpec } from "../../ops/call-arguments.ts";
import { checkedDimension, dimensionOf } from "../../ops/dimension.ts";
import { argmaxOperator, softmaxOperator } from "../../ops/elementwise.ts";
import { defineOperator, type Operator, overload } from "../../ops/operator.ts";
import { type Routine, routine } from "../../ops/operator-registry.ts";
import { elementCount, isSameShape } from "../../tensor.ts";
import { type MatmulArgs, matmulReference } from "../kernels/matmul.ts";
import {
  type CumsumArgs,
  cumsumReference,
  type ExtremeIndexArgs,
  extremeIndexReference,
  extremesAlong,
  layerNorm,
  logSoftmaxReference,
  orderAlong,
  type ReductionArgs,
  reductionReference,
  softmaxAlongReference,
  type VarianceArgs,
  varianceReference,
} from "../kernels/reduction.ts";
import { rowRank } from "./shapes.ts";

/** Dimensions that a reduction reduces: those listed, or all. */
function reducedDims(args: Arguments<TensorSpec>, shape: readonly number[], list: boolean): number[] {
  if (!list) return [dimensionOf(args, "dim", rowRank(shape))];
  const dims = args.optionalNumbers("dim") ?? [];
  if (dims.length === 0) return [...shape.keys()];
  return dims.map((dim) => checkedDimension(args, "dim", dim, rowRank(shape)));
}

function reducedShape(shape: readonly number[], dims: readonly number[], keeps: boolean): number[] {
  const kept = shape.map((size, dim) => (dims.includes(dim) ? 1 : size));
  return keeps ? kept : kept.filter((_, dim) => !dims.includes(dim));
}

interface Reduction extends Pick<ReductionArgs, "first" | "rule"> {
  /** Schema without namespace and out: "mean.out(Tensor self, int[]? dim, bool keepdim=False". */
  readonly schema: string;
  readonly finish?: ReductionArgs["finish"];
  dtype?(self: DType, planned: DType | undefined): DType;
}

function reduction({ schema, first, rule, finish = (total) => total, dtype = (self) => self }: Reduction): Operator {
  const dimsOf = (args: Arguments<TensorSpec>) => {
    const { shape } = args.tensor("self");
    return / dim\b/.test(schema) ? reducedDims(args, shape, schema.includes("int[]")) : [...shape.keys()];
  };
  return defineOperator<ReductionArgs>({
    schema: `aten::${schema}, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: [reductionReference],
    shape(args, planned) {
      const self = args.tensor("self");
      const dims = dimsOf(args);
      return { dtype: dtype(self.dtype, planned), shape: reducedShape(self.shape, dims, args.boolean("keepdim")) };
    },
    prepare(args) {
      const x = args.tensor("self");
      return { first, rule, finish, x, dims: dimsOf(args), out: args.tensor("out") };
    },
  });
}

const cumsum = defineOperator<CumsumArgs>({
  schema: "aten::cumsum.out(Tensor self, int dim, int? dtype=None, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: [cumsumReference],
  shape(args, planned) {
    const { dtype, shape } = args.tensor("self");
    dimensionOf(args, "dim", rowRank(shape));
    return { dtype: planned ?? dtype, shape };
  },
  prepare(args) {
    const x = args.tensor("self");
    return { x, dim: dimensionOf(args, "dim", rowRank(x.shape)), out: args.tensor("out") };
  },
});

const softmaxAlong = (name: string, kernel: typeof softmaxAlongReference) =>
  defineOperator<CumsumArgs>({
    schema: `aten::${name}.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: [kernel],
    shape(args) {
      const { dtype, shape } = args.tensor("self", "f32", "f64", "f16", "bf16");
      dimensionOf(args, "dim", rowRank(shape));
      return { dtype: args.boolean("half_to_float") ? "f32" : dtype, shape };
    },
    prepare(args) {
      const x = args.tensor("self");
      return { x, dim: dimensionOf(args, "dim", rowRank(x.shape)), out: args.tensor("out") };
    },
  });

/** An operator that gives the index of an extreme along `dim`, or of all elements without it. */
function extremeIndex(name: string, sign: 1 | -1): Operator {
  const dimOf = (args: Arguments<TensorSpec>) =>
    args.optionalNumber("dim") === null ? null : dimensionOf(args, "dim", rowRank(args.tensor("self").shape));
  return defineOperator<ExtremeIndexArgs>({
    schema: `aten::${name}.out(Tensor self, int? dim=None, bool keepdim=False, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: [extremeIndexReference],
    shape(args) {
      const { shape } = args.tensor("self");
      const dim = dimOf(args);
      if ((dim === null ? elementCount(shape) : (shape[dim] ?? 1)) === 0)
        args.fail("self", `expected elements to choose from but found shape [${shape}]`);
      const kept = shape.map((size, i) => (dim === null || i === dim ? 1 : size));
      return { dtype: "i64", shape: args.boolean("keepdim") ? kept : kept.filter((_, i) => dim !== null && i !== dim) };
    },
    prepare: (args) => ({ x: args.tensor("self"), dim: dimOf(args), sign, out: args.tensor("out") }),
  });
}

/** Argmax of rows of floats, as in greedy sampling, has optimised kernels. */
const argmax = overload(extremeIndex("argmax", 1), {
  operator: argmaxOperator,
  fits(args) {
    const { dtype, shape } = args.tensor("self");
    const dim = args.optionalNumber("dim");
    return dtype === "f32" && shape.length > 0 && shape.at(-1)! > 0 && (dim === -1 || dim === shape.length - 1);
  },
});

const softmax = overload(softmaxAlong("_softmax", softmaxAlongReference), {
  operator: softmaxOperator,
  fits(args) {
    const { dtype, shape } = args.tensor("self");
    return dtype === "f32" && dimensionOf(args, "dim", rowRank(shape)) === shape.length - 1;
  },
});

interface Factors {
  readonly a: string;
  readonly b: string;
  readonly rank: 2 | 3;
}

function matmul(schema: string, { a, b, rank }: Factors): Operator {
  const hasBias = schema.includes("addmm");
  return defineOperator<MatmulArgs>({
    schema: `aten::${schema}, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: [matmulReference],
    shape(args) {
      const left = args.tensor(a);
      const right = args.tensor(b, left.dtype);
      const [batches, m] = [left.shape.slice(0, rank - 2), left.shape.at(-2)!];
      const agree = right.shape.at(-2) === left.shape.at(-1) && right.shape[0] === (batches[0] ?? right.shape[0]);
      if (left.shape.length !== rank || right.shape.length !== rank || !agree)
        args.fail(b, `expected a matrix that [${left.shape}] multiplies with but found [${right.shape}]`);
      const shape = [...batches, m, right.shape.at(-1)!];
      const bias = hasBias ? args.tensor("self").shape : [];
      const fits = bias.length < 2 ? (bias[0] ?? 1) === 1 || bias[0] === shape[1] : isSameShape(bias, shape);
      if (!fits) args.fail("self", `expected shape [${shape[1]}] or [${shape}] but found [${bias}]`);
      return { dtype: left.dtype, shape };
    },
    multiplications: (args) => elementCount(args.tensor(a).shape) * args.tensor(b).shape.at(-1)!,
    prepare(args) {
      const left = args.tensor(a);
      const right = args.tensor(b);
      return {
        batch: rank === 3 ? left.shape[0]! : 1,
        m: left.shape.at(-2)!,
        n: right.shape.at(-1)!,
        k: left.shape.at(-1)!,
        a: left,
        b: right,
        alpha: hasBias ? args.number("alpha") : 1,
        bias: hasBias ? args.tensor("self") : null,
        beta: hasBias ? args.number("beta") : 0,
        out: args.tensor("out"),
      };
    },
  });
}

const add = (total: number, value: number) => total + value;
const multiply = (total: number, value: number) => total * value;
const either = (total: number, value: number) => Number(total !== 0 || value !== 0);

const variance = defineOperator<VarianceArgs>({
  schema:
    "aten::var.correction_out(Tensor self, int[]? dim=None, *, Scalar? correction=None, bool keepdim=False, Tensor(a!) out) -> Tensor(a!)",
  kernels: [varianceReference],
  shape(args) {
    const { dtype, shape } = args.tensor("self", "f32", "f64", "f16", "bf16");
    return { dtype, shape: reducedShape(shape, reducedDims(args, shape, true), args.boolean("keepdim")) };
  },
  prepare(args) {
    const x = args.tensor("self");
    const dims = reducedDims(args, x.shape, true);
    return { x, dims, correction: args.optionalNumber("correction") ?? 1, out: args.tensor("out") };
  },
});

export const reductionOperators: readonly Operator[] = [
  ...[
    "mean.out(Tensor self, int[]? dim, bool keepdim=False, int? dtype=None",
    "mean.dtype_out(Tensor self, int? dtype=None",
  ].map((schema) =>
    reduction({
      schema,
      first: 0,
      rule: add,
      finish: (total, count) => total / count,
      dtype: (self, planned) => planned ?? self,
    }),
  ),
  reduction({
    schema: "sum.IntList_out(Tensor self, int[]? dim, bool keepdim=False, int? dtype=None",
    first: 0,
    rule: add,
    dtype: (self, planned) => planned ?? (self === "bool" ? "i64" : self),
  }),
  reduction({
    schema: "amax.out(Tensor self, int[] dim, bool keepdim=False",
    first: Number.NEGATIVE_INFINITY,
    rule: Math.max,
  }),
  reduction({
    schema: "amin.out(Tensor self, int[] dim, bool keepdim=False",
    first: Number.POSITIVE_INFINITY,
    rule: Math.min,
  }),
  reduction({ schema: "max.unary_out(Tensor self", first: Number.NEGATIVE_INFINITY, rule: Math.max }),
  reduction({ schema: "min.unary_out(Tensor self", first: Number.POSITIVE_INFINITY, rule: Math.min }),
  ...["any.out(Tensor self, int dim, bool keepdim=False", "any.dims_out(Tensor self, int[]? dim, bool keepdim=False"]
    .concat("any.all_out(Tensor self")
    .map((schema) => reduction({ schema, first: 0, rule: either, dtype: () => "bool" })),
  ...[
    "prod.out(Tensor self, int? dtype=None",
    "prod.int_out(Tensor self, int dim, bool keepdim=False, int? dtype=None",
  ].map((schema) => reduction({ schema, first: 1, rule: multiply, dtype: (self, planned) => planned ?? self })),
  variance,
  cumsum,
  softmax,
  softmaxAlong("_log_softmax", logSoftmaxReference),
  argmax,
  extremeIndex("argmin", -1),
  matmul("mm.out(Tensor self, Tensor mat2", { a: "self", b: "mat2", rank: 2 }),
  matmul("bmm.out(Tensor self, Tensor mat2", { a: "self", b: "mat2", rank: 3 }),
  matmul("addmm.out(Tensor self, Tensor mat1, Tensor mat2, Scalar beta=1, Scalar alpha=1", {
    a: "mat1",
    b: "mat2",
    rank: 2,
  }),
];

/** A routine that gives extremes along a dimension and their indices. */
function extremes(name: "max" | "min"): Routine {
  const sign = name === "max" ? 1 : -1;
  return routine(
    `aten::${name}.dim_${name}(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) ${name}, Tensor(b!) ${name}_values) -> (Tensor(a!), Tensor(b!))`,
    (args) => {
      const { dtype, shape } = args.tensor("self");
      const dim = dimensionOf(args, "dim", rowRank(shape));
      if (shape[dim] === 0) args.fail("self", `expected elements to choose from but found shape [${shape}]`);
      const kept = reducedShape(shape, [dim], args.boolean("keepdim"));
      return [
        { dtype, shape: kept },
        { dtype: "i64", shape: kept },
      ];
    },
    (args) => {
      const x = args.tensor("self");
      const dim = dimensionOf(args, "dim", rowRank(x.shape));
      extremesAlong({ x, dim, sign, out: args.tensor(`${name}_values`) }, args.tensor(name));
    },
  );
}

/** A routine that sorts along a dimension, or gives the first elements in order, with their indices. */
function ordering(
  schema: string,
  rule: (args: Arguments<TensorSpec>, size: number) => { count: number; descending: boolean },
): Routine {
  const placed = (args: Arguments<TensorSpec>) => {
    const { dtype, shape } = args.tensor("self");
    const dim = dimensionOf(args, "dim", rowRank(shape));
    return { dtype, shape, dim, ...rule(args, shape[dim] ?? 1) };
  };
  return routine(
    `aten::${schema}, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!), Tensor(b!))`,
    (args) => {
      const { dtype, shape, dim, count } = placed(args);
      const kept = shape.length === 0 ? shape : shape.with(dim, count);
      return [
        { dtype, shape: kept },
        { dtype: "i64", shape: kept },
      ];
    },
    (args) => {
      const { dim, count, descending } = placed(args);
      const [values, indices] = [args.tensor("values"), args.tensor("indices")];
      orderAlong({ x: args.tensor("self"), dim, count, descending, values, indices });
    },
  );
}

const topk = ordering(
  "topk.values(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True",
  (args, size) => {
    const count = args.integer("k", 0);
    if (count > size) args.fail("k", `expected at most the ${size} elements of the dimension but found ${count}`);
    return { count, descending: args.boolean("largest") };
  },
);

const sort = ordering("sort.values(Tensor self, int dim=-1, bool descending=False", (args, size) => ({
  count: size,
  descending: args.boolean("descending"),
}));

export const reductionRoutines: readonly Routine[] = [
  topk,
  sort,
  extremes("max"),
  extremes("min"),
  routine(
    "aten::native_layer_norm.out(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
    (args) => {
      const { dtype, shape } = args.tensor("input", "f32", "f64", "f16", "bf16");
      const normalized = args.numbers("normalized_shape");
      const kept = shape.slice(0, shape.length - normalized.length);
      if (normalized.length < 1 || !isSameShape([...kept, ...normalized], shape))
        args.fail("normalized_shape", `expected the last sizes of [${shape}] but found [${normalized}]`);
      for (const name of ["weight", "bias"]) {
        const factors = args.optionalTensor(name);
        if (factors && !isSameShape(factors.shape, normalized))
          args.fail(name, `expected shape [${normalized}] but found [${factors.shape}]`);
      }
      const moments = { dtype, shape: [...kept, ...normalized.map(() => 1)] };
      return [{ dtype, shape }, moments, moments];
    },
    (args) =>
      layerNorm({
        x: args.tensor("input"),
        size: elementCount(args.numbers("normalized_shape")),
        weight: args.optionalTensor("weight"),
        bias: args.optionalTensor("bias"),
        eps: args.number("eps"),
        out: args.tensor("out0"),
        means: args.tensor("out1"),
        inverses: args.tensor("out2"),
      }),
  ),
];
