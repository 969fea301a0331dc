/**
 * Residual addition and RMSNorm: x += alpha * addend, then y = x / sqrt(mean(x^2) + eps) * weight, for rows of `dim` values.
 */
import { casesOf } from "../../cases.ts";
import { double, float, inout, input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import { f32x4, i32 } from "../../wasm/assembler/instructions.ts";
import { forLanes } from "../../wasm/generate/lanes.ts";
import { elementAt } from "../../wasm/generate/loops.ts";
import { normalize, normLocals, normRows } from "./rms-norm.ts";

export const addRmsNorm = family(
  "add_rms_norm",
  {
    x: inout("f32", "rows", "dim"),
    /** y may be the same memory. */
    addend: input("f32", "rows", "dim"),
    weight: input("f32", "dim"),
    y: output("f32", "rows", "dim"),
    eps: double,
    alpha: float,
  },
  {
    by: "rows",
    reference(args) {
      const { x, addend, alpha } = args;
      for (let i = 0; i < x.length; i++) x[i]! += alpha * addend[i]!;
      normRows(args);
    },
    wasm: {
      body(variables, tile) {
        const { x, addend, dim, alpha } = variables;
        const { at, value, squares } = normLocals(tile);
        const factor = tile.scope.local("v128", "factor");
        const row = (base: typeof x) => elementAt(base, i32.mul(tile.tile, dim), 4);
        return [
          factor.set(f32x4.splat(alpha)),
          at.set(row(x)),
          addend.set(row(addend)),
          forLanes({ ...tile, count: dim, pointers: [[at], [addend]] }, (lanes) => [
            value.set(f32x4.add(lanes.load(at), f32x4.mul(factor, lanes.load(addend)))),
            lanes.store(at, value),
            squares.set(f32x4.add(squares, f32x4.mul(value, value))),
          ]),
          normalize({ ...variables, at, squares }, tile),
        ];
      },
    },
  },
);

export const cases = casesOf(addRmsNorm, {
  small: [
    { rows: 1, dim: 64, eps: 1e-5, alpha: 1 },
    { rows: 7, dim: 61, eps: 1e-5, alpha: -0.5 },
  ],
  model: (tokens, { hidden }) => ({ rows: tokens, dim: hidden, eps: 1e-5, alpha: 1 }),
});
