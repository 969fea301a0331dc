/** y = x * factor, value by value. */
import { casesOf } from "../../cases.ts";
import { float, input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import { f32x4 } from "../../wasm/assembler/instructions.ts";
import { elementwise } from "../../wasm/declared.ts";

export const scale = family(
  "scale",
  {
    /** y may be the same memory. */
    x: input("f32", "count"),
    y: output("f32", "count"),
    factor: float,
  },
  {
    by: "elements",
    reference({ x, factor, y }) {
      for (let i = 0; i < y.length; i++) y[i] = x[i]! * factor;
    },
    wasm: {
      body: elementwise({ inputs: ["x"], numbers: ["factor"], result: "y" }, ({ of: { x, factor } }) => [
        x.set(f32x4.mul(x, factor)),
      ]),
    },
  },
);

export const cases = casesOf(scale, {
  small: [{ count: 451, factor: -2.5 }],
  model: (tokens, { hidden }) => ({ count: tokens * hidden, factor: 30 }),
});
