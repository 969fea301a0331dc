/** GELU (Hendrycks & Gimpel 2016), value by value, as in the gates: exact by erf, or approximated by tanh. */
import { casesOf } from "../../cases.ts";
import { choice, input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import { elementwise } from "../../wasm/declared.ts";
import { activationOf, gateFormulas } from "../gate/activations.ts";

const forms = ["none", "tanh"] as const;
const activation = { none: "gelu", tanh: "geluTanh" } as const;

export const gelu = family(
  "gelu",
  {
    /** y may be the same memory. */
    x: input("f32", "count"),
    y: output("f32", "count"),
    /** Approximation, by PyTorch's name. */
    approximate: choice(forms),
  },
  {
    by: "elements",
    reference({ x, y, approximate }) {
      const f = activationOf[activation[approximate]];
      for (let i = 0; i < y.length; i++) y[i] = f(x[i]!);
    },
    wasm: {
      specialise: ({ approximate }) => ({ approximate }),
      body(variables, tile) {
        const formula = gateFormulas[activation[tile.special.approximate]];
        return elementwise({ inputs: ["x"], result: "y" }, ({ of: { x }, ...rest }) =>
          formula({ ...rest, a: x, b: rest.constants.floats(1) }),
        )(variables, tile);
      },
    },
  },
);

export const cases = casesOf(gelu, {
  small: forms.map((approximate) => ({ count: 451, approximate })),
  model: (tokens, { intermediate }) => ({ count: tokens * intermediate, approximate: "none" as const }),
});
