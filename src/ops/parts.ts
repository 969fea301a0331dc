/** Operators on rows of equal parts, such as heads, and on their gates and decays. */
import type { SelectArgs } from "../kernels/families/copy/fields.ts";
import { joinColumns, scaleRows, select, sigmoid, softplus } from "../kernels/families/index.ts";
import { bytesOf, elementCount } from "../tensor.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { result } from "./elementwise.ts";
import { rowCount, rowsOf } from "./linear.ts";
import { defineOperator, type Operator } from "./operator.ts";

/** out = 1 / (1 + exp(-x)). */
const sigmoidOperator = defineOperator({
  schema: "lowbit::sigmoid.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: sigmoid,
  inPlace: ["x"],
  rowwise: ["x"],
  shape: (args) => ({ dtype: "f32", shape: args.tensor("x", "f32").shape }),
  prepare: (args) => ({
    x: args.tensor("x").data as Float32Array,
    ...result(args),
  }),
});

/**
 * out = factors * ln(1 + exp(x + bias)) over the last dimension: time steps and decays of recurrent layers (Gu & Dao 2023).
 */
const softplusOperator = defineOperator({
  schema: "lowbit::softplus.out(Tensor x, Tensor bias, Tensor factors, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: softplus,
  inPlace: ["x"],
  rowwise: ["x"],
  shape(args) {
    const { shape } = args.tensor("x", "f32");
    const dim = shape.at(-1) ?? 0;
    for (const name of ["bias", "factors"]) {
      const found = args.tensor(name, "f32").shape;
      if (dim === 0 || found.length !== 1 || found[0] !== dim)
        args.fail(name, `expected shape [${dim}] but found [${found}]`);
    }
    return { dtype: "f32", shape };
  },
  prepare: (args) => ({
    ...rowsOf(args.tensor("x")),
    x: args.tensor("x").data as Float32Array,
    bias: args.tensor("bias").data as Float32Array,
    factors: args.tensor("factors").data as Float32Array,
    y: args.tensor("out").data as Float32Array,
  }),
});

/** out = each part of x [..., parts * size] times its factor in factors [..., parts], or [parts] for all tokens. */
const scalePartsOperator = defineOperator({
  schema: "lowbit::scale_parts.out(Tensor x, Tensor factors, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: scaleRows,
  inPlace: ["x"],
  shape(args) {
    const { shape } = args.tensor("x", "f32");
    const factors = args.tensor("factors", "f32").shape;
    const [dim, parts] = [shape.at(-1) ?? 0, factors.at(-1) ?? 0];
    const isEach = factors.length === shape.length && factors.slice(0, -1).join() === shape.slice(0, -1).join();
    if (dim === 0 || parts === 0 || !(isEach || factors.length === 1) || dim % parts !== 0)
      args.fail(
        "factors",
        `expected the shape of x [${shape}] or a vector, with a last dimension that divides its, but found [${factors}]`,
      );
    return { dtype: "f32", shape };
  },
  prepare: (args) => ({
    ...rowsOf(args.tensor("x"), args.tensor("x").shape.at(-1)! / args.tensor("factors").shape.at(-1)!),
    factorCount: elementCount(args.tensor("factors").shape),
    x: args.tensor("x").data as Float32Array,
    factors: args.tensor("factors").data as Float32Array,
    y: args.tensor("out").data as Float32Array,
  }),
});

function columnsOfParts(args: Arguments<TensorSpec>): {
  readonly size: number;
  readonly first: number;
  readonly last: number;
} {
  const { shape } = args.tensor("x", "f32");
  const [size, first, last] = [args.integer("size", 1), args.integer("first", 0), args.integer("last", 1)];
  if (shape.length === 0 || shape.at(-1)! % size !== 0)
    args.fail("x", `expected a last dimension that ${size} divides but found [${shape}]`);
  if (first >= last || last > size) args.fail("last", `expected ${first + 1}..${size} but found ${last}`);
  return { size, first, last };
}

/** out = columns first .. last - 1 of each part of x [..., parts * size]; a copy. */
const partColumnsOperator = defineOperator<SelectArgs>({
  schema: "lowbit::part_columns.out(Tensor x, int size, int first, int last, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: select,
  rowwise: ["x"],
  shape(args) {
    const { shape } = args.tensor("x");
    const { size, first, last } = columnsOfParts(args);
    return { dtype: "f32", shape: shape.with(-1, (shape.at(-1)! / size) * (last - first)) };
  },
  prepare(args) {
    const { shape, data } = args.tensor("x");
    const { size, first, last } = columnsOfParts(args);
    const itemBytes = Float32Array.BYTES_PER_ELEMENT;
    return {
      outer: elementCount(shape) / size,
      stride: size * itemBytes,
      offset: first * itemBytes,
      blockBytes: (last - first) * itemBytes,
      x: bytesOf(data),
      y: bytesOf(args.tensor("out").data),
    };
  },
});

/** out [..., first + second] = left [..., first] and right [..., second] side by side. */
const joinColumnsOperator = defineOperator({
  schema: "lowbit::join_columns.out(Tensor left, Tensor right, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: joinColumns,
  rowwise: ["left", "right"],
  shape(args) {
    const [left, right] = [args.tensor("left", "f32").shape, args.tensor("right", "f32").shape];
    if (left.length === 0 || left.slice(0, -1).join() !== right.slice(0, -1).join() || left.length !== right.length)
      args.fail("right", `expected the shape of left [${left}] but for the last dimension, but found [${right}]`);
    return { dtype: "f32", shape: left.with(-1, left.at(-1)! + right.at(-1)!) };
  },
  prepare(args) {
    const [left, right] = [args.tensor("left"), args.tensor("right")];
    return {
      ...{ rows: rowCount(left.shape), first: left.shape.at(-1)!, second: right.shape.at(-1)! },
      columns: left.shape.at(-1)! + right.shape.at(-1)!,
      left: left.data as Float32Array,
      right: right.data as Float32Array,
      y: args.tensor("out").data as Float32Array,
    };
  },
});

export const partOperators: readonly Operator[] = [
  sigmoidOperator,
  softplusOperator,
  scalePartsOperator,
  partColumnsOperator,
  joinColumnsOperator,
];
