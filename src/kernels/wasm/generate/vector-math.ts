/** exp and tanh of vectors, with a relative error of about 2e-7. */
import type { Body, Expr, Local } from "../assembler/expression.ts";
import { f32x4, i32x4, int, v128 } from "../assembler/instructions.ts";
import type { Scope } from "../assembler/module.ts";
import type { VectorConstants } from "./weight-fields.ts";

/** Coefficients of (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2, highest power first: Chebyshev interpolation. */
const REST = [1.39262504e-3, 8.36323295e-3, 4.16665524e-2, 1.66665763e-1, 0.5];
/** ln 2 in two parts, the first with so few bits that its products with small integers are exact. */
const LN2 = [0.693359375, -2.1219444e-4] as const;

export class VectorMath {
  readonly #constants: VectorConstants;
  readonly #x: Local<"v128">;
  readonly #power: Local<"v128">;
  readonly #r: Local<"v128">;
  readonly #rest: Local<"v128">;

  constructor(scope: Scope, constants: VectorConstants) {
    this.#constants = constants;
    this.#x = scope.local("v128", "exponent");
    this.#power = scope.local("v128", "power");
    this.#r = scope.local("v128", "remainder");
    this.#rest = scope.local("v128", "rest");
  }

  /** result = e^x; 0 where that would be subnormal, infinity above 88.7, NaN for NaN. */
  exp(x: Expr<"v128">, result: Local<"v128">): Body {
    const floats = (value: number) => this.#constants.floats(value);
    const value = f32x4.mul(f32x4.add(this.#rest, floats(1)), this.#scale());
    return [
      result.set(x),
      this.#x.set(f32x4.pmin(f32x4.pmax(result, floats(-87)), floats(89))),
      this.#split(),
      result.set(v128.andnot(value, f32x4.lt(result, floats(-87)))),
    ];
  }

  /** result = tanh x = (e - 1) / (e + 1) with e = e^(2 x), where e - 1 is computed without cancellation. */
  tanh(x: Expr<"v128">, result: Local<"v128">): Body {
    const floats = (value: number) => this.#constants.floats(value);
    return [
      result.set(x),
      result.set(f32x4.add(result, result)),
      this.#x.set(f32x4.pmin(f32x4.pmax(result, floats(-20)), floats(20))),
      this.#split(),
      this.#power.set(this.#scale()),
      result.set(f32x4.add(f32x4.mul(this.#power, this.#rest), f32x4.sub(this.#power, floats(1)))),
      result.set(f32x4.div(result, f32x4.add(result, floats(2)))),
    ];
  }

  /** Splits x = power * ln 2 + r, and sets rest = e^r - 1. */
  #split(): Body {
    const floats = (value: number) => this.#constants.floats(value);
    const reduced = LN2.reduce<Expr<"v128">>(
      (rest, part) => f32x4.sub(rest, f32x4.mul(this.#power, floats(part))),
      this.#x,
    );
    const polynomial = REST.slice(1).reduce<Expr<"v128">>(
      (value, coefficient) => f32x4.add(f32x4.mul(value, this.#r), floats(coefficient)),
      floats(REST[0]!),
    );
    return [
      this.#power.set(f32x4.nearest(f32x4.mul(this.#x, floats(Math.LOG2E)))),
      this.#r.set(reduced),
      this.#rest.set(f32x4.add(this.#r, f32x4.mul(f32x4.mul(this.#r, this.#r), polynomial))),
    ];
  }

  /** 2^power, made from its exponent bits. */
  #scale(): Expr<"v128"> {
    const exponent = i32x4.add(i32x4.trunc_sat_f32x4_s(this.#power), this.#constants.words(127));
    return i32x4.shl(exponent, int(23));
  }
}
