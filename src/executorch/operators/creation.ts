/** aten operators that make tensors of numbers. */
import type { DType } from "../../dtype.ts";
import type { Arguments, TensorSpec } from "../../ops/call-arguments.ts";
import { defineOperator, type Operator } from "../../ops/operator.ts";
import type { Tensor } from "../../tensor.ts";
import { type FillArgs, fillReference } from "../kernels/creation.ts";

interface Creation {
  readonly schema: string;
  shape(args: Arguments<TensorSpec>): readonly number[];
  /** Dtype where the program plans none. */
  dtype?(args: Arguments<TensorSpec>): DType;
  /** Element i is first + i * step. */
  values(args: Arguments<Tensor>): { first: number; step: number };
}

function creation({ schema, shape, dtype = () => "f32", values }: Creation): Operator {
  return defineOperator<FillArgs>({
    schema: `aten::${schema}, *, Tensor(a!) out) -> Tensor(a!)`.replace("(, ", "("),
    kernels: [fillReference],
    shape: (args, planned) => ({ dtype: planned ?? dtype(args), shape: shape(args) }),
    prepare: (args) => ({ ...values(args), out: args.tensor("out") }),
  });
}

const likeSelf = (args: Arguments<TensorSpec>) => args.tensor("self").shape;

function rangeLength(args: Arguments<TensorSpec>, start: number, step: number): number[] {
  const end = args.number("end");
  const count = Math.ceil((end - start) / step);
  if (!Number.isSafeInteger(count) || count < 0) args.fail("end", `expected a range from ${start} but found ${end}`);
  return [count];
}

export const creationOperators: readonly Operator[] = [
  creation({
    schema: "full.out(int[] size, Scalar fill_value",
    shape: (args) => args.numbers("size"),
    values: (args) => ({ first: args.number("fill_value"), step: 0 }),
  }),
  creation({
    schema: "full_like.out(Tensor self, Scalar fill_value, int? memory_format=None",
    shape: likeSelf,
    dtype: (args) => args.tensor("self").dtype,
    values: (args) => ({ first: args.number("fill_value"), step: 0 }),
  }),
  ...[0, 1].map((value) =>
    creation({
      schema: `${value === 0 ? "zeros" : "ones"}.out(int[] size`,
      shape: (args) => args.numbers("size"),
      values: () => ({ first: value, step: 0 }),
    }),
  ),
  creation({
    schema: "scalar_tensor.out(Scalar s",
    shape: () => [],
    values: (args) => ({ first: args.number("s"), step: 0 }),
  }),
  creation({
    schema: "arange.start_out(Scalar start, Scalar end, Scalar step=1",
    shape: (args) => rangeLength(args, args.number("start"), args.number("step")),
    dtype: () => "i64",
    values: (args) => ({ first: args.number("start"), step: args.number("step") }),
  }),
  creation({
    schema: "arange.out(Scalar end",
    shape: (args) => rangeLength(args, 0, 1),
    dtype: () => "i64",
    values: () => ({ first: 0, step: 1 }),
  }),
];
