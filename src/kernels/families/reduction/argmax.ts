/** y [rows] = index of the first largest value of each row of x [rows, dim], or of the first NaN. */
import { casesOf } from "../../cases.ts";
import { input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import { when } from "../../wasm/assembler/expression.ts";
import { f32, i32, i64, int } from "../../wasm/assembler/instructions.ts";
import { advance, elementAt, forRange } from "../../wasm/generate/loops.ts";

export const argmax = family(
  "argmax",
  {
    x: input("f32", "rows", "dim"),
    y: output("i64", "rows"),
  },
  {
    by: "rows",
    reference({ rows, dim, x, y }) {
      for (let row = 0; row < rows; row++) {
        let best = 0;
        for (let c = 1; c < dim && !Number.isNaN(x[row * dim + best]); c++)
          if (!(x[row * dim + c]! <= x[row * dim + best]!)) best = c;
        y[row] = BigInt(best);
      }
    },
    wasm: {
      lanes: 1,
      /** The first NaN wins, since no comparison with it is true. */
      body({ x, y, dim }, { scope, tile }) {
        const at = scope.local("ptr", "at");
        const [best, i] = [scope.local("i32", "best"), scope.local("i32", "i")];
        const largest = scope.local("f32", "largest");
        return [
          at.set(elementAt(x, i32.mul(tile, dim), 4)),
          largest.set(f32.load(at)),
          forRange(i, int(0), dim, [
            when(i32.and(i32.eqz(f32.le(f32.load(at), largest)), f32.eq(largest, largest)), [
              largest.set(f32.load(at)),
              best.set(i),
            ]),
            advance(at, 4),
          ]),
          i64.store(elementAt(y, tile, 8), i64.extend_i32_u(best)),
        ];
      },
    },
  },
);

export const cases = casesOf(argmax, {
  small: [{ rows: 7, dim: 64 }],
  model: (tokens, { vocabulary }) => ({ rows: tokens, dim: vocabulary }),
});
