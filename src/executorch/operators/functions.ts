/** aten's elementary functions, activations, and divisions with remainder, elementwise. */
import { InvalidArgumentError } from "../../errors.ts";
import { erf } from "../../kernels/families/gate/erf.ts";
import type { Operator } from "../../ops/operator.ts";
import type { WholeRule } from "../kernels/pointwise.ts";
import { binary, pointwise, unary } from "./pointwise.ts";

/** floor(a / b) without rounding up: a float quotient between two integers may round to the upper one. */
function flooredQuotient(a: number, b: number): number {
  if (b === 0) return a / b;
  const rest = a % b;
  const quotient = Math.round((a - rest) / b);
  return rest !== 0 && rest < 0 !== b < 0 ? quotient - 1 : quotient;
}

/** a - b * floor(a / b), with the sign of b. */
function flooredRest(a: number, b: number): number {
  const rest = a % b;
  return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
}

/** A rule of integers. InvalidArgumentError for a divisor of 0. */
const dividing =
  (rule: (a: bigint, b: bigint) => bigint): WholeRule =>
  (a, b) => {
    if (b === 0n) throw new InvalidArgumentError(`integer ${a} is divided by 0`);
    return rule(a, b);
  };

/** Whether floor(a / b) differs from truncation. */
const isBelow = (a: bigint, b: bigint): boolean => a % b !== 0n && a < 0n !== b < 0n;

const wholeRest = dividing((a, b) => a % b);
const wholeFlooredRest = dividing((a, b) => (isBelow(a, b) ? (a % b) + b : a % b));
const wholeTruncated = dividing((a, b) => a / b);
const wholeFloored = dividing((a, b) => (isBelow(a, b) ? a / b - 1n : a / b));

const divMode = pointwise({
  schema: "div.out_mode(Tensor self, Tensor other, str? rounding_mode",
  inputs: ["self", "other"],
  result: "same",
  rule(args) {
    const mode = args.string("rounding_mode");
    if (mode !== "floor" && mode !== "trunc") args.fail("rounding_mode", `expected floor or trunc but found ${mode}`);
    return mode === "floor" ? flooredQuotient : (a, b) => Math.trunc(a / b);
  },
  whole: (args) => (args.string("rounding_mode") === "floor" ? wholeFloored : wholeTruncated),
});

const hardtanh = pointwise({
  schema: "hardtanh.out(Tensor self, Scalar min_val=-1, Scalar max_val=1",
  inputs: ["self"],
  result: "same",
  rule(args) {
    const [min, max] = [args.number("min_val"), args.number("max_val")];
    return (a) => Math.min(Math.max(a, min), max);
  },
});

const elu = pointwise({
  schema: "elu.out(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1",
  inputs: ["self"],
  result: "same",
  rule(args) {
    const [alpha, scale, inputScale] = [args.number("alpha"), args.number("scale"), args.number("input_scale")];
    return (a) => (a > 0 ? a * scale : Math.expm1(a * inputScale) * alpha * scale);
  },
});

const leakyRelu = pointwise({
  schema: "leaky_relu.out(Tensor self, Scalar negative_slope=0.01",
  inputs: ["self"],
  result: "same",
  rule(args) {
    const slope = args.number("negative_slope");
    return (a) => (a > 0 ? a : a * slope);
  },
});

const clampTensors = pointwise({
  schema: "clamp.Tensor_out(Tensor self, Tensor? min=None, Tensor? max=None",
  inputs: ["self", "min", "max"],
  result: "same",
  rule(args) {
    if (!args.optionalTensor("min")) return (a, most) => Math.min(a, most);
    if (!args.optionalTensor("max")) return (a, least) => Math.max(a, least);
    return (a, least, most) => Math.min(Math.max(a, least), most);
  },
});

const powTensors = pointwise({
  schema: "pow.Tensor_Tensor_out(Tensor self, Tensor exponent",
  inputs: ["self", "exponent"],
  result: "same",
  rule: () => (a, b) => a ** b,
});

export const functionOperators: readonly Operator[] = [
  ...(
    ["tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "expm1", "log2", "log10"] as const
  ).map((name) => unary(name, "float", Math[name])),
  unary("erf", "float", erf),
  binary("atan2", "float", Math.atan2)[0]!,
  unary("sign", "same", (a) => (a > 0 ? 1 : a < 0 ? -1 : 0)),
  unary("trunc", "same", Math.trunc),
  unary("isinf", "bool", (a) => Number(Math.abs(a) === Number.POSITIVE_INFINITY)),
  ...binary("remainder", "same", flooredRest, { whole: wholeFlooredRest, tensorOverload: "Tensor_out" }),
  ...binary("fmod", "same", (a, b) => a % b, { whole: wholeRest, tensorOverload: "Tensor_out" }),
  divMode,
  hardtanh,
  elu,
  leakyRelu,
  clampTensors,
  powTensors,
];
