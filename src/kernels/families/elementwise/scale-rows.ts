/** y[r, c] = factors[r mod factorCount] * x[r, c]: if there are fewer factors than rows, they repeat. */
import { casesOf } from "../../cases.ts";
import { input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import { f32x4, i32, v128 } from "../../wasm/assembler/instructions.ts";
import { forLanes } from "../../wasm/generate/lanes.ts";
import { elementAt } from "../../wasm/generate/loops.ts";

export const scaleRows = family(
  "scale_rows",
  {
    /** y may be the same memory. */
    x: input("f32", "rows", "dim"),
    factors: input("f32", "factorCount"),
    y: output("f32", "rows", "dim"),
  },
  {
    by: "rows",
    reference({ dim, factorCount, x, factors, y }) {
      for (let i = 0; i < y.length; i++) y[i] = factors[Math.floor(i / dim) % factorCount]! * x[i]!;
    },
    wasm: {
      body({ x, factors, y, dim, factorCount }, { scope, constants, tile }) {
        const factor = scope.local("v128", "factor");
        return [
          factor.set(v128.load32_splat(elementAt(factors, i32.rem_u(tile, factorCount), 4))),
          x.set(elementAt(x, i32.mul(tile, dim), 4)),
          y.set(elementAt(y, i32.mul(tile, dim), 4)),
          forLanes({ scope, constants, count: dim, pointers: [[x], [y]] }, (lanes) => [
            lanes.store(y, f32x4.mul(factor, lanes.load(x))),
          ]),
        ];
      },
    },
  },
);

export const cases = casesOf(scaleRows, {
  small: [{ rows: 7, dim: 61, factorCount: 1 }],
  model: (tokens, { heads, headDim }) => ({ rows: tokens * heads, dim: headDim, factorCount: tokens * heads }),
});
