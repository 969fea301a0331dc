/** RMSNorm (Zhang & Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * weight over rows of `dim` values. */
import { casesOf } from "../../cases.ts";
import { type ArgumentsOf, double, input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import type { Body, Local } from "../../wasm/assembler/expression.ts";
import { f32, f32x4, float, i32 } from "../../wasm/assembler/instructions.ts";
import type { TileScope } from "../../wasm/declared.ts";
import { forLanes, sumOfLanes } from "../../wasm/generate/lanes.ts";
import { elementAt } from "../../wasm/generate/loops.ts";

const fields = {
  x: input("f32", "rows", "dim"),
  weight: input("f32", "dim"),
  y: output("f32", "rows", "dim"),
  eps: double,
};

export const rmsNorm = family("rms_norm", fields, {
  by: "rows",
  reference: normRows,
  wasm: {
    body(variables, tile) {
      const { x, dim } = variables;
      const { at, value, squares } = normLocals(tile);
      return [
        at.set(elementAt(x, i32.mul(tile.tile, dim), 4)),
        forLanes({ ...tile, count: dim, pointers: [[at]] }, (lanes) => [
          value.set(lanes.load(at)),
          squares.set(f32x4.add(squares, f32x4.mul(value, value))),
        ]),
        normalize({ ...variables, at, squares }, tile),
      ];
    },
  },
});

export const cases = casesOf(rmsNorm, {
  small: [
    { rows: 1, dim: 64, eps: 1e-5 },
    { rows: 7, dim: 61, eps: 1e-5 },
  ],
  model: (tokens, { hidden }) => ({ rows: tokens, dim: hidden, eps: 1e-5 }),
});

/** y = x / sqrt(mean(x^2) + eps) * weight, with sums in double precision and results rounded to float32. */
export function normRows({ dim, x, weight, eps, y }: ArgumentsOf<typeof fields>): void {
  for (let start = 0; start < x.length; start += dim) {
    let squares = 0;
    for (let c = start; c < start + dim; c++) squares += x[c]! * x[c]!;
    const inverse = 1 / Math.sqrt(squares / dim + eps);
    for (let c = 0; c < dim; c++) y[start + c] = x[start + c]! * inverse * weight[c]!;
  }
}

/** Variables of a norm: `squares` accumulates lanes of the row's sum of squares; `at` and `value` are free for use. */
export function normLocals({ scope }: Pick<TileScope<unknown>, "scope">) {
  const [value, squares] = [scope.local("v128", "value"), scope.local("v128", "squares")];
  return { at: scope.local("ptr", "at"), value, squares };
}

interface Norm extends Readonly<Record<"x" | "y" | "weight" | "at", Local<"ptr">>> {
  readonly dim: Local<"i32">;
  readonly eps: Local<"f32">;
  readonly squares: Local<"v128">;
}

/** Computes row `tile` of y = x / sqrt(mean(x^2) + eps) * weight; y becomes the row's address. */
export function normalize({ x, weight, y, dim, eps, at, squares }: Norm, tile: TileScope<unknown>): Body {
  const inverse = tile.scope.local("v128", "inverse");
  const mean = f32.div(sumOfLanes(squares), f32.convert_i32_s(dim));
  const row = (base: Local<"ptr">) => elementAt(base, i32.mul(tile.tile, dim), 4);
  return [
    inverse.set(f32x4.splat(f32.div(float(1), f32.sqrt(f32.add(mean, eps))))),
    at.set(row(x)),
    y.set(row(y)),
    forLanes({ ...tile, count: dim, pointers: [[at], [weight], [y]] }, (lanes) => [
      lanes.store(y, f32x4.mul(f32x4.mul(lanes.load(at), inverse), lanes.load(weight))),
    ]),
  ];
}
