/** y = cap * tanh(x / cap), value by value: x bounded smoothly (Gemma 2). */
import { casesOf } from "../../cases.ts";
import { float, input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import { f32x4 } from "../../wasm/assembler/instructions.ts";
import { elementwise } from "../../wasm/declared.ts";
import { VectorMath } from "../../wasm/generate/vector-math.ts";

export const softcap = family(
  "softcap",
  {
    /** y may be the same memory. */
    x: input("f32", "count"),
    y: output("f32", "count"),
    cap: float,
  },
  {
    by: "elements",
    reference({ x, cap, y }) {
      for (let i = 0; i < y.length; i++) y[i] = cap * Math.tanh(x[i]! / cap);
    },
    wasm: {
      body: elementwise(
        { inputs: ["x"], numbers: ["cap"], result: "y" },
        ({ of: { x, cap }, free, scope, constants }) => [
          new VectorMath(scope, constants).tanh(f32x4.div(x, cap), free),
          x.set(f32x4.mul(free, cap)),
        ],
      ),
    },
  },
);

export const cases = casesOf(softcap, {
  small: [{ count: 451, cap: 3 }],
  model: (tokens, { vocabulary }) => ({ count: tokens * vocabulary, cap: 30 }),
});
