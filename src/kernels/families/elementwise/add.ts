/** y = a + alpha * b, value by value. */
import { casesOf } from "../../cases.ts";
import { float, input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import { f32x4 } from "../../wasm/assembler/instructions.ts";
import { elementwise } from "../../wasm/declared.ts";

export const add = family(
  "add",
  {
    /** y may be the same memory as `a` or `b`. */
    a: input("f32", "count"),
    b: input("f32", "count"),
    y: output("f32", "count"),
    alpha: float,
  },
  {
    by: "elements",
    reference({ a, b, alpha, y }) {
      for (let i = 0; i < y.length; i++) y[i] = a[i]! + alpha * b[i]!;
    },
    wasm: {
      body: elementwise({ inputs: ["a", "b"], numbers: ["alpha"], result: "y" }, ({ of: { a, b, alpha } }) => [
        a.set(f32x4.add(a, f32x4.mul(alpha, b))),
      ]),
    },
  },
);

export const cases = casesOf(add, {
  small: [{ count: 451, alpha: 0.5 }],
  model: (tokens, { hidden }) => ({ count: tokens * hidden, alpha: 1 }),
});
