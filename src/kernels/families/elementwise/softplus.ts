/** y[r, c] = factors[c] * ln(1 + exp(x[r, c] + bias[c])): time steps and decays of recurrent layers (Gu & Dao 2023). */
import { casesOf } from "../../cases.ts";
import { input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import type { Expr } from "../../wasm/assembler/expression.ts";
import { f32x4, i32 } from "../../wasm/assembler/instructions.ts";
import { forLanes } from "../../wasm/generate/lanes.ts";
import { elementAt } from "../../wasm/generate/loops.ts";
import { VectorMath } from "../../wasm/generate/vector-math.ts";

/** Coefficients of the series 2 atanh(s) / s in s^2, highest power first: s is at most 1/3, so the relative error is 1e-8. */
const ATANH = [15, 13, 11, 9, 7, 5, 3, 1].map((power) => 2 / power);

export const softplus = family(
  "softplus",
  {
    /** y may be the same memory. */
    x: input("f32", "rows", "dim"),
    bias: input("f32", "dim"),
    factors: input("f32", "dim"),
    y: output("f32", "rows", "dim"),
  },
  {
    by: "rows",
    reference({ dim, x, bias, factors, y }) {
      // ln(1 + exp(a)), without overflow of exp.
      const f = (a: number) => Math.max(a, 0) + Math.log1p(Math.exp(-Math.abs(a)));
      for (let i = 0; i < y.length; i++) y[i] = factors[i % dim]! * f(x[i]! + bias[i % dim]!);
    },
    wasm: {
      /** ln(1 + exp(a)) = max(a, 0) + ln(1 + e) with e = exp(-|a|), and ln(1 + e) = 2 atanh(e / (2 + e)). */
      body({ x, bias, factors, y, dim }, { scope, constants, tile }) {
        const [a, s, square] = ["a", "s", "square"].map((name) => scope.local("v128", name));
        const math = new VectorMath(scope, constants);
        const series = ATANH.slice(1).reduce<Expr<"v128">>(
          (sum, coefficient) => f32x4.add(f32x4.mul(sum, square!), constants.floats(coefficient)),
          constants.floats(ATANH[0]!),
        );
        return [
          x.set(elementAt(x, i32.mul(tile, dim), 4)),
          y.set(elementAt(y, i32.mul(tile, dim), 4)),
          forLanes({ scope, constants, count: dim, pointers: [[x], [bias], [factors], [y]] }, (lanes) => [
            a!.set(f32x4.add(lanes.load(x), lanes.load(bias))),
            math.exp(f32x4.neg(f32x4.abs(a!)), s!),
            s!.set(f32x4.div(s!, f32x4.add(constants.floats(2), s!))),
            square!.set(f32x4.mul(s!, s!)),
            s!.set(f32x4.add(f32x4.mul(s!, series), f32x4.max(a!, constants.floats(0)))),
            lanes.store(y, f32x4.mul(lanes.load(factors), s!)),
          ]),
        ];
      },
    },
  },
);

export const cases = casesOf(softplus, {
  small: [
    { rows: 7, dim: 64 },
    { rows: 2, dim: 13 },
  ],
  model: (tokens, { heads }) => ({ rows: tokens, dim: heads }),
});
