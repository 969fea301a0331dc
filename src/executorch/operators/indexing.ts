/** aten operators that read or write elements of a tensor at indices in other tensors. */
import type { GatherColumnsArgs } from "../../kernels/families/copy/fields.ts";
import { gatherColumns } from "../../kernels/families/index.ts";
import type { Indices } from "../../kernels/records.ts";
import type { Arguments, TensorSpec } from "../../ops/call-arguments.ts";
import { dimensionOf } from "../../ops/dimension.ts";
import { rowCount } from "../../ops/linear.ts";
import { defineOperator, type Operator, overload } from "../../ops/operator.ts";
import { elementCount, type Tensor } from "../../tensor.ts";
import { broadcastStrides, eachPlace, numbersOf } from "../kernels/dense.ts";
import {
  type GatherArgs,
  gatherReference,
  type IndexArgs,
  indexPutReference,
  indexReference,
  type ScatterArgs,
  scatterReference,
} from "../kernels/movement.ts";
import { broadcastShape, rowRank } from "./shapes.ts";

/** Which dimensions are indexed, and the broadcast shape of the indices. */
interface Indexed {
  readonly first: number;
  readonly last: number;
  readonly shape: readonly number[];
}

function indexed<T extends TensorSpec>(args: Arguments<T>, rank: number): Indexed {
  const indices = args.tensors("indices");
  const dims = [...indices.keys()].filter((dim) => indices[dim] !== null);
  const [first, last] = [dims[0], dims.at(-1)];
  if (first === undefined || last! - first + 1 !== dims.length || last! >= rank)
    args.fail("indices", `expected indices of neighbouring dimensions of ${rank}`);
  const shapes = dims.map((dim) => indices[dim]!);
  for (const { dtype } of shapes)
    if (dtype !== "i64" && dtype !== "i32") args.fail("indices", `expected dtype i64 or i32 but found ${dtype}`);
  const shape = shapes.reduce<number[]>((known, other) => broadcastShape(args, "indices", known, other.shape), []);
  return { first, last: last!, shape };
}

/** The indices of a dimension, broadcast to `shape`. */
function spreadIndices(tensor: Tensor, shape: readonly number[]): Float64Array {
  const values = numbersOf(tensor);
  const result = new Float64Array(elementCount(shape));
  eachPlace(shape, broadcastStrides(tensor.shape, shape), (index, offset) => {
    result[index] = values[offset]!;
  });
  return result;
}

function pickedShape({ first, last, shape }: Indexed, x: TensorSpec): number[] {
  return x.shape.toSpliced(first, last - first + 1, ...shape);
}

function prepare(args: Arguments<Tensor>, values: Tensor | null): IndexArgs {
  const x = args.tensor("self");
  const { first, last, shape } = indexed(args, x.shape.length);
  const indices = args.tensors("indices").slice(first, last + 1);
  return {
    x,
    before: elementCount(x.shape.slice(0, first)),
    sizes: x.shape.slice(first, last + 1),
    after: elementCount(x.shape.slice(last + 1)),
    // Computed when the call runs, since earlier calls fill the index tensors.
    get indices() {
      return indices.map((tensor) => spreadIndices(tensor!, shape));
    },
    values,
    accumulate: values !== null && args.boolean("accumulate"),
    out: args.tensor("out"),
  };
}

const selectedDim = (args: Arguments<TensorSpec>) => dimensionOf(args, "dim", rowRank(args.tensor("self").shape));

const indexSelectRules = {
  schema: "aten::index_select.out(Tensor self, int dim, Tensor index, *, Tensor(a!) out) -> Tensor(a!)",
  indices: {
    argument: "index",
    limit: (args: Arguments<Tensor>) => args.tensor("self").shape[selectedDim(args)] ?? 1,
  },
  shape(args: Arguments<TensorSpec>): TensorSpec {
    const { dtype, shape } = args.tensor("self");
    const index = args.tensor("index", "i64", "i32").shape;
    if (index.length > 1) args.fail("index", `expected at most one dimension but found shape [${index}]`);
    const dim = selectedDim(args);
    return { dtype, shape: shape.length === 0 ? [] : shape.with(dim, elementCount(index)) };
  },
};

const anyIndexSelect = defineOperator<IndexArgs>({
  ...indexSelectRules,
  kernels: [indexReference],
  prepare(args) {
    const x = args.tensor("self");
    const dim = selectedDim(args);
    return {
      x,
      before: elementCount(x.shape.slice(0, dim)),
      sizes: [x.shape[dim] ?? 1],
      after: elementCount(x.shape.slice(dim + 1)),
      // Read when the call runs, since earlier calls fill the index tensor.
      get indices() {
        return [numbersOf(args.tensor("index"))];
      },
      values: null,
      accumulate: false,
      out: args.tensor("out"),
    };
  },
});

/** Columns of floats, such as inputs of act-order weights, have optimised kernels. */
const indexSelect = overload(anyIndexSelect, {
  operator: defineOperator<GatherColumnsArgs>({
    ...indexSelectRules,
    kernels: gatherColumns,
    rowwise: ["self"],
    prepare(args) {
      const { shape, data } = args.tensor("self");
      return {
        rows: rowCount(shape),
        dim: shape.at(-1)!,
        x: data as Float32Array,
        columns: args.tensor("index").data as Indices,
        y: args.tensor("out").data as Float32Array,
      };
    },
  }),
  fits(args) {
    const { dtype, shape } = args.tensor("self");
    return dtype === "f32" && shape.length > 0 && selectedDim(args) === shape.length - 1;
  },
});

/** ShapeError unless the index fits into x in each dimension except `dim`. */
function checkNamed(args: Arguments<TensorSpec>): void {
  const { shape } = args.tensor("self");
  const index = args.tensor("index", "i64").shape;
  const dim = selectedDim(args);
  if (rowRank(index) !== rowRank(shape) || index.some((size, i) => i !== dim && size > (shape[i] ?? 1)))
    args.fail("index", `expected sizes within [${shape}] but for dimension ${dim} but found [${index}]`);
}

/** A scatter operator; `source`: "src" for a tensor, or "value" for a number. */
function scatter(name: string, source: "src" | "value", accumulate: boolean): Operator {
  return defineOperator<ScatterArgs>({
    schema: `aten::${name}(Tensor self, int dim, Tensor index, ${source === "src" ? "Tensor" : "Scalar"} ${source}, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: [scatterReference],
    inPlace: ["self"],
    shape(args) {
      const { dtype, shape } = args.tensor("self");
      checkNamed(args);
      if (source === "src") {
        const given = args.tensor("src", dtype).shape;
        const index = args.tensor("index").shape;
        if (rowRank(given) !== rowRank(index) || index.some((size, i) => size > (given[i] ?? 1)))
          args.fail("src", `expected sizes of at least [${index}] but found [${given}]`);
      }
      return { dtype, shape };
    },
    prepare: (args) => ({
      x: args.tensor("self"),
      dim: selectedDim(args),
      index: args.tensor("index"),
      source: source === "src" ? args.tensor("src") : args.number("value"),
      accumulate,
      out: args.tensor("out"),
    }),
  });
}

const gather = defineOperator<GatherArgs>({
  schema:
    "aten::gather.out(Tensor self, int dim, Tensor index, *, bool sparse_grad=False, Tensor(a!) out) -> Tensor(a!)",
  kernels: [gatherReference],
  shape(args) {
    checkNamed(args);
    return { dtype: args.tensor("self").dtype, shape: args.tensor("index").shape };
  },
  prepare: (args) => ({
    x: args.tensor("self"),
    dim: selectedDim(args),
    index: args.tensor("index"),
    out: args.tensor("out"),
  }),
});

export const indexingOperators: readonly Operator[] = [
  gather,
  scatter("scatter.src_out", "src", false),
  scatter("scatter.value_out", "value", false),
  scatter("scatter_add.out", "src", true),
  indexSelect,
  defineOperator<IndexArgs>({
    schema: "aten::index.Tensor_out(Tensor self, Tensor?[] indices, *, Tensor(a!) out) -> Tensor(a!)",
    kernels: [indexReference],
    shape(args) {
      const self = args.tensor("self");
      return { dtype: self.dtype, shape: pickedShape(indexed(args, self.shape.length), self) };
    },
    prepare: (args) => prepare(args, null),
  }),
  defineOperator<IndexArgs>({
    schema:
      "aten::index_put.out(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False, *, Tensor(a!) out) -> Tensor(a!)",
    kernels: [indexPutReference],
    inPlace: ["self"],
    shape(args) {
      const self = args.tensor("self");
      const picked = pickedShape(indexed(args, self.shape.length), self);
      const values = args.tensor("values", self.dtype);
      const count = elementCount(values.shape);
      if (count !== 1 && count !== elementCount(picked))
        args.fail("values", `expected one element or shape [${picked}] but found [${values.shape}]`);
      return { dtype: self.dtype, shape: self.shape };
    },
    prepare: (args) => prepare(args, args.tensor("values")),
  }),
];
