/** aten operators on the elements of tensors that broadcast against each other, as in PyTorch. */

import type { DType } from "../../dtype.ts";
import { erf } from "../../kernels/families/gate/erf.ts";
import type { Arguments, TensorSpec } from "../../ops/call-arguments.ts";
import { addOperator, multiplyOperator, scaleOperator } from "../../ops/elementwise.ts";
import { geluOperator } from "../../ops/gelu.ts";
import { defineOperator, type Operator, overload } from "../../ops/operator.ts";
import { roundHalfEven } from "../../rounding.ts";
import { isSameShape, type Tensor } from "../../tensor.ts";
import { exp32 } from "../kernels/exponential.ts";
import { type PointwiseArgs, pointwiseReference, type WholeRule } from "../kernels/pointwise.ts";
import { broadcastShape } from "./shapes.ts";

/** Dtypes in the order of promotion, weakest first. */
const ranks: readonly DType[] = ["bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"];

const isFloat = (dtype: DType) => dtype.includes("f");

/** Whether results of arithmetic may exceed what doubles hold exactly. */
const isWide = (dtype: DType) => dtype === "i64" || dtype === "i32";

/** The dtype that arithmetic on several dtypes gives. */
export function promoted(dtypes: readonly DType[]): DType {
  return dtypes.reduce((a, b) => (ranks.indexOf(b) > ranks.indexOf(a) ? b : a));
}

/** Dtype of an operator's result: that of its arguments, float also for integers, or boolean. */
type Result = "same" | "float" | "bool";

function resultType(result: Result, dtypes: readonly DType[]): DType {
  const dtype = promoted(dtypes);
  if (result === "bool") return "bool";
  return result === "float" && !isFloat(dtype) ? "f32" : dtype;
}

interface Pointwise {
  /** Schema without the namespace: "mul.out(Tensor self, …". */
  readonly schema: string;
  readonly inputs: readonly string[];
  readonly result: Result;
  rule(args: Arguments<Tensor>): PointwiseArgs["rule"];
  /** The function on 32- or 64-bit integers; undefined where doubles are exact. */
  whole?(args: Arguments<Tensor>): WholeRule | undefined;
}

/** An elementwise operator on tensors that broadcast; masks do not affect the result's dtype. */
export function pointwise({ schema, inputs, result, rule, whole }: Pointwise): Operator {
  const isOptional = (name: string) => schema.includes(`Tensor? ${name}`);
  const given = <T extends TensorSpec>(args: Arguments<T>): T[] =>
    inputs.flatMap((name) => (isOptional(name) ? (args.optionalTensor(name) ?? []) : args.tensor(name)));
  const values = inputs.filter((name) => name !== "condition" && name !== "mask");
  const valueTypes = (args: Arguments<TensorSpec>) => values.flatMap((name) => args.optionalTensor(name)?.dtype ?? []);
  return defineOperator<PointwiseArgs>({
    schema: `aten::${schema}, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: [pointwiseReference],
    inPlace: inputs,
    shape(args) {
      const specs = given(args);
      const shape = specs
        .slice(1)
        .reduce((known, spec, i) => broadcastShape(args, inputs[i + 1]!, known, spec.shape), [...specs[0]!.shape]);
      return { dtype: resultType(result, valueTypes(args)), shape };
    },
    prepare(args) {
      const tensors = given(args);
      const exact = isWide(promoted(valueTypes(args))) ? whole?.(args) : undefined;
      return { rule: rule(args), ...(exact && { whole: exact }), inputs: tensors, out: args.tensor("out") };
    },
  });
}

export const unary = (name: string, result: Result, f: (a: number) => number, whole?: WholeRule): Operator =>
  pointwise({ schema: `${name}.out(Tensor self`, inputs: ["self"], result, rule: () => f, whole: () => whole });

/** A literal as a 64-bit integer; undefined where it is none. As a double, the largest is 2^63. */
function wholeLiteral(value: number): bigint | undefined {
  if (!Number.isInteger(value)) return undefined;
  return value >= 2 ** 63 ? 2n ** 63n - 1n : BigInt(value);
}

/** Rounding after each step of arithmetic, as in ExecuTorch's portable kernels: to float32, except for f64. */
const stepOf = ({ dtype }: TensorSpec): ((value: number) => number) =>
  dtype === "f64" ? (value) => value : Math.fround;

const exponential = (a: number, step: (value: number) => number) => (step === Math.fround ? exp32(a) : Math.exp(a));

/** A function of floats with the roundings of ExecuTorch's portable kernels: `f` rounds each step except the last. */
const stepwise = (name: string, f: (a: number, step: (value: number) => number) => number): Operator =>
  pointwise({
    schema: `${name}.out(Tensor self`,
    inputs: ["self"],
    result: "float",
    rule(args) {
      const step = stepOf(args.tensor("self"));
      return (a) => f(a, step);
    },
  });

function lesser(a: bigint, b: bigint): bigint {
  if (a < b) return a;
  return b;
}

function greater(a: bigint, b: bigint): bigint {
  if (a > b) return a;
  return b;
}

type BinaryRule = (a: number, b: number) => number;

/** Overloads of an operator on two tensors, and on a tensor and a number. */
export function binary(
  name: string,
  result: Result,
  f: BinaryRule,
  { whole, tensorOverload = "out" }: { whole?: WholeRule; tensorOverload?: string } = {},
): Operator[] {
  const tensors = `${name}.${tensorOverload}(Tensor self, Tensor other`;
  const scalar = `${name}.Scalar_out(Tensor self, Scalar other`;
  return [
    pointwise({ schema: tensors, inputs: ["self", "other"], result, rule: () => f, whole: () => whole }),
    pointwise({
      schema: scalar,
      inputs: ["self"],
      result,
      rule(args) {
        const other = args.number("other");
        return (a) => f(a, other);
      },
      whole(args) {
        const other = wholeLiteral(args.number("other"));
        return whole && other !== undefined ? (a) => whole(a, other, 0n) : undefined;
      },
    }),
  ];
}

const comparison = (name: string, whole: <V extends number | bigint>(a: V, b: V) => boolean) =>
  binary(name, "bool", (a, b) => Number(whole(a, b)), { whole, tensorOverload: "Tensor_out" });

const bitwise = (name: string, f: BinaryRule, whole: WholeRule) =>
  binary(name, "same", f, { whole, tensorOverload: "Tensor_out" });

/** out = self + sign * alpha * other. */
function sum(name: string, sign: number): Operator[] {
  const alphaOf = (args: Arguments<Tensor>) => sign * args.number("alpha");
  return [
    pointwise({
      schema: `${name}.out(Tensor self, Tensor other, Scalar alpha=1`,
      inputs: ["self", "other"],
      result: "same",
      rule(args) {
        const alpha = alphaOf(args);
        return (a, b) => a + alpha * b;
      },
      whole(args) {
        const alpha = wholeLiteral(alphaOf(args));
        return alpha === undefined ? undefined : (a, b) => a + alpha * b;
      },
    }),
    pointwise({
      schema: `${name}.Scalar_out(Tensor self, Scalar other, Scalar alpha=1`,
      inputs: ["self"],
      result: "same",
      rule(args) {
        const other = alphaOf(args) * args.number("other");
        const addend = isFloat(args.tensor("self").dtype) ? stepOf(args.tensor("self"))(other) : other;
        return (a) => a + addend;
      },
      whole(args) {
        const addend = wholeLiteral(alphaOf(args) * args.number("other"));
        return addend === undefined ? undefined : (a) => a + addend;
      },
    }),
  ];
}

const [addTensors, addScalar] = sum("add", 1);

/** Whether both are float tensors of one shape, as in residual additions, for which there are optimised kernels. */
function areEqualFloats(args: Arguments<TensorSpec>): boolean {
  const [self, other] = [args.tensor("self"), args.tensor("other")];
  return self.dtype === "f32" && other.dtype === "f32" && isSameShape(self.shape, other.shape);
}

const add = overload(addTensors!, { operator: addOperator, fits: areEqualFloats });

const [mulTensors, mulScalar] = binary("mul", "same", (a, b) => a * b, { whole: (a, b) => a * b });

const mulEqualFloats = overload(mulTensors!, { operator: multiplyOperator, fits: areEqualFloats });

const mulFloats = overload(mulScalar!, {
  operator: scaleOperator,
  fits: (args) => args.tensor("self").dtype === "f32",
});

const SQRT_2_OVER_PI = Math.sqrt(2 / Math.PI);
function geluTanh(a: number, step: (value: number) => number): number {
  const cubic = step(step(0.044715) * step(step(a * a) * a));
  const inner = step(step(SQRT_2_OVER_PI) * step(a + cubic));
  return step(0.5 * a) * step(1 + step(Math.tanh(inner)));
}
const geluErf = (a: number) => 0.5 * a * (1 + erf(a * Math.SQRT1_2));

const anyGelu = pointwise({
  schema: "gelu.out(Tensor self, str approximate",
  inputs: ["self"],
  result: "same",
  rule(args) {
    const step = stepOf(args.tensor("self"));
    return args.string("approximate") === "tanh" ? (a) => geluTanh(a, step) : geluErf;
  },
});

/** GELU, exported alone, so that bundles of programs that only call GELU need no other operators of this file. */
export const gelu: Operator = overload(anyGelu, {
  operator: geluOperator,
  fits: (args) => args.tensor("self").dtype === "f32",
});

const where = pointwise({
  schema: "where.self_out(Tensor condition, Tensor self, Tensor other",
  inputs: ["condition", "self", "other"],
  result: "same",
  rule: () => (condition, a, b) => (condition !== 0 ? a : b),
  whole: () => (condition, a, b) => (condition !== 0n ? a : b),
});

const clamp = pointwise({
  schema: "clamp.out(Tensor self, Scalar? min=None, Scalar? max=None",
  inputs: ["self"],
  result: "same",
  rule(args) {
    const min = args.optionalNumber("min") ?? Number.NEGATIVE_INFINITY;
    const max = args.optionalNumber("max") ?? Number.POSITIVE_INFINITY;
    return (a) => Math.min(Math.max(a, min), max);
  },
  whole(args) {
    const [min, max] = ["min", "max"].map((name) => args.optionalNumber(name));
    const [least, most] = [wholeLiteral(min ?? -(2 ** 63)), wholeLiteral(max ?? 2 ** 63)];
    if (least === undefined || most === undefined) return undefined;
    return (a) => lesser(greater(a, least), most);
  },
});

const maskedFill = pointwise({
  schema: "masked_fill.Scalar_out(Tensor self, Tensor mask, Scalar value",
  inputs: ["mask", "self"],
  result: "same",
  rule(args) {
    const value = args.number("value");
    return (mask, a) => (mask !== 0 ? value : a);
  },
  whole(args) {
    const value = wholeLiteral(args.number("value"));
    return value === undefined ? undefined : (mask, a) => (mask !== 0n ? value : a);
  },
});

const bitwiseNot = pointwise({
  schema: "bitwise_not.out(Tensor self",
  inputs: ["self"],
  result: "same",
  rule: (args) => (args.tensor("self").dtype === "bool" ? (a) => Number(a === 0) : (a) => -a - 1),
  whole: () => (a) => ~a,
});

const powScalar = pointwise({
  schema: "pow.Tensor_Scalar_out(Tensor self, Scalar exponent",
  inputs: ["self"],
  result: "same",
  rule(args) {
    const exponent = args.number("exponent");
    return (a) => a ** exponent;
  },
});

const scalarPow = pointwise({
  schema: "pow.Scalar_out(Scalar self, Tensor exponent",
  inputs: ["exponent"],
  result: "same",
  rule(args) {
    const self = args.number("self");
    return (exponent) => self ** exponent;
  },
});

export const pointwiseOperators: readonly Operator[] = [
  add,
  addScalar!,
  ...sum("sub", -1),
  mulEqualFloats,
  mulFloats,
  ...binary("div", "float", (a, b) => a / b),
  ...comparison("eq", (a, b) => a === b),
  ...comparison("ne", (a, b) => a !== b),
  ...comparison("lt", (a, b) => a < b),
  ...comparison("le", (a, b) => a <= b),
  ...comparison("gt", (a, b) => a > b),
  ...comparison("ge", (a, b) => a >= b),
  binary("minimum", "same", (a, b) => Math.min(a, b), { whole: lesser })[0]!,
  binary("maximum", "same", (a, b) => Math.max(a, b), { whole: greater })[0]!,
  binary("logical_and", "bool", (a, b) => Number(a !== 0 && b !== 0))[0]!,
  binary("logical_xor", "bool", (a, b) => Number((a !== 0) !== (b !== 0)))[0]!,
  binary("logical_or", "bool", (a, b) => Number(a !== 0 || b !== 0))[0]!,
  ...bitwise(
    "bitwise_and",
    (a, b) => a & b,
    (a, b) => a & b,
  ),
  ...bitwise(
    "bitwise_or",
    (a, b) => a | b,
    (a, b) => a | b,
  ),
  ...bitwise(
    "bitwise_xor",
    (a, b) => a ^ b,
    (a, b) => a ^ b,
  ),
  unary("logical_not", "bool", (a) => Number(a === 0)),
  bitwiseNot,
  unary(
    "neg",
    "same",
    (a) => -a,
    (a) => -a,
  ),
  unary("abs", "same", Math.abs, (a) => (a < 0n ? -a : a)),
  stepwise("exp", exponential),
  unary("isnan", "bool", (a) => Number(Number.isNaN(a))),
  unary("log", "float", Math.log),
  unary("log1p", "float", Math.log1p),
  unary("sqrt", "float", Math.sqrt),
  stepwise("rsqrt", (a, step) => 1 / step(Math.sqrt(a))),
  unary("reciprocal", "float", (a) => 1 / a),
  stepwise("sigmoid", (a, step) => 1 / step(1 + exponential(-a, step))),
  unary("tanh", "float", Math.tanh),
  unary("cos", "float", Math.cos),
  unary("sin", "float", Math.sin),
  unary("floor", "same", Math.floor),
  unary("ceil", "same", Math.ceil),
  unary("round", "same", roundHalfEven),
  unary("relu", "same", (a) => Math.max(a, 0)),
  powScalar,
  scalarPow,
  where,
  clamp,
  maskedFill,
];
