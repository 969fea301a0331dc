/** y = 1 / (1 + exp(-x)), value by value. */
import { casesOf } from "../../cases.ts";
import { input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import { elementwise } from "../../wasm/declared.ts";
import { sigmoid as plainSigmoid, sigmoidFormula } from "../gate/activations.ts";

export const sigmoid = family(
  "sigmoid",
  {
    /** y may be the same memory. */
    x: input("f32", "count"),
    y: output("f32", "count"),
  },
  {
    by: "elements",
    reference({ x, y }) {
      for (let i = 0; i < y.length; i++) y[i] = plainSigmoid(x[i]!);
    },
    wasm: {
      body: elementwise({ inputs: ["x"], result: "y" }, ({ of: { x }, ...rest }) =>
        sigmoidFormula({ ...rest, a: x, b: rest.constants.floats(1) }),
      ),
    },
  },
);

export const cases = casesOf(sigmoid, {
  small: [{ count: 451 }],
  model: (tokens, { intermediate }) => ({ count: tokens * intermediate }),
});
