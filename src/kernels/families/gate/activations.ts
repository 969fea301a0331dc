/** Activation functions of gates: definitions, and formulas in WebAssembly. */

import type { Body, Expr, Local } from "../../wasm/assembler/expression.ts";
import { f32x4 } from "../../wasm/assembler/instructions.ts";
import type { TileScope } from "../../wasm/declared.ts";
import { VectorMath } from "../../wasm/generate/vector-math.ts";
import { erf } from "./erf.ts";

/** Names of the functions; `identity` makes the gate a plain product. */
export const activations = [
  "silu",
  "gelu",
  "geluTanh",
  "quickGelu",
  "sigmoid",
  "relu",
  "squaredRelu",
  "identity",
] as const;
export type ActivationName = (typeof activations)[number];

export const sigmoid = (a: number): number => 1 / (1 + Math.exp(-a));

/** Definitions in double precision. */
export const activationOf: Readonly<Record<ActivationName, (a: number) => number>> = {
  /** a sigmoid(a) */
  silu: (a) => a / (1 + Math.exp(-a)),
  /** a / 2 * (1 + erf(a / sqrt 2)) */
  gelu: (a) => 0.5 * a * (1 + erf(a * Math.SQRT1_2)),
  /** a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))) (Hendrycks & Gimpel 2016) */
  geluTanh: (a) => 0.5 * a * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (a + 0.044715 * a ** 3))),
  /** a sigmoid(1.702 a) */
  quickGelu: (a) => a * sigmoid(1.702 * a),
  sigmoid,
  /** max(a, 0) */
  relu: (a) => Math.max(a, 0),
  squaredRelu: (a) => Math.max(a, 0) ** 2,
  identity: (a) => a,
};

/** Variables of a formula. */
export interface GateOperands extends Pick<TileScope<unknown>, "scope" | "constants"> {
  /** The argument; set to the result. */
  readonly a: Local<"v128">;
  readonly b: Expr<"v128">;
  readonly free: Local<"v128">;
}

/** a = a / (1 + exp(-u)) * b. */
export function sigmoidTimes({ a, b, free, scope, constants }: GateOperands, u: Expr<"v128">): Body {
  return [
    new VectorMath(scope, constants).exp(f32x4.neg(u), free),
    a.set(f32x4.mul(f32x4.div(a, f32x4.add(constants.floats(1), free)), b)),
  ];
}

/** a = b / (1 + exp(-a)). */
export function sigmoidFormula({ a, b, free, scope, constants }: GateOperands): Body {
  return [
    new VectorMath(scope, constants).exp(f32x4.neg(a), free),
    a.set(f32x4.div(b, f32x4.add(constants.floats(1), free))),
  ];
}

/**
 * The argument u2 that turns GELU's tanh form into a * sigmoid(u2), since 1 + tanh(u) = 2 sigmoid(2 u): u2 = 2 sqrt(2 / pi) (a
 * + 0.044715 a^3).
 */
function tanhArgument({ a, constants }: GateOperands): Expr<"v128"> {
  const root = Math.sqrt(8 / Math.PI);
  const cubic = f32x4.mul(f32x4.mul(a, a), constants.floats(0.044715 * root));
  return f32x4.mul(a, f32x4.add(constants.floats(root), cubic));
}

/**
 * Coefficients of ln(erfc(z) / t) + z^2 by powers of t = 1 / (1 + z / 2), z >= 0, highest first: a relative error of 1.2e-7
 * (Press et al., Numerical Recipes, 6.2).
 */
const ERFC = [
  0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
  -1.26551223,
];

/** gelu(a) = max(a, 0) - |a| erfc(|a| / sqrt 2) / 2. */
function erfFormula({ a, b, free, scope, constants }: GateOperands): Body {
  const floats = (number: number) => constants.floats(number);
  const t = f32x4.div(floats(1), f32x4.add(floats(1), f32x4.mul(floats(Math.SQRT1_2 / 2), f32x4.abs(a))));
  const polynomial = ERFC.slice(1).reduce<Expr<"v128">>(
    (sum, coefficient) => f32x4.add(f32x4.mul(sum, free), floats(coefficient)),
    floats(ERFC[0]!),
  );
  const tail = f32x4.mul(f32x4.mul(t, floats(0.5)), free);
  return [
    free.set(t),
    new VectorMath(scope, constants).exp(f32x4.sub(polynomial, f32x4.mul(f32x4.mul(a, a), floats(0.5))), free),
    a.set(f32x4.mul(f32x4.sub(f32x4.max(a, floats(0)), f32x4.mul(f32x4.abs(a), tail)), b)),
  ];
}

/** Formulas of f(a) * b, by activation. */
export const gateFormulas: Readonly<Record<ActivationName, (operands: GateOperands) => Body>> = {
  silu: (operands) => sigmoidTimes(operands, operands.a),
  gelu: erfFormula,
  geluTanh: (operands) => sigmoidTimes(operands, tanhArgument(operands)),
  quickGelu: (operands) => sigmoidTimes(operands, f32x4.mul(operands.a, operands.constants.floats(1.702))),
  sigmoid: sigmoidFormula,
  relu: ({ a, b, constants }) => [a.set(f32x4.mul(f32x4.max(a, constants.floats(0)), b))],
  squaredRelu: ({ a, b, constants }) => [
    a.set(f32x4.max(a, constants.floats(0))),
    a.set(f32x4.mul(f32x4.mul(a, a), b)),
  ],
  identity: ({ a, b }) => [a.set(f32x4.mul(a, b))],
};
