/** Gated activations (Shazeer 2020): y = activation(gate) * up, value by value. */
import { casesOf } from "../../cases.ts";
import { choice, input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import { elementwise } from "../../wasm/declared.ts";
import { activationOf, activations, gateFormulas } from "./activations.ts";

export const gate = family(
  "gate",
  {
    /** y may be the same memory as `gate` or `up`. */
    gate: input("f32", "count"),
    up: input("f32", "count"),
    y: output("f32", "count"),
    activation: choice(activations),
  },
  {
    by: "elements",
    reference({ gate, up, y, activation }) {
      const f = activationOf[activation];
      for (let i = 0; i < y.length; i++) y[i] = f(gate[i]!) * up[i]!;
    },
    wasm: {
      specialise: ({ activation }) => ({ activation }),
      body(variables, tile) {
        const formula = gateFormulas[tile.special.activation];
        return elementwise({ inputs: ["gate", "up"], result: "y" }, ({ of, ...rest }) =>
          formula({ ...rest, a: of.gate, b: of.up }),
        )(variables, tile);
      },
    },
  },
);

export const cases = casesOf(gate, {
  small: activations.map((activation) => ({ count: 451, activation })),
  model: (tokens, { intermediate }) => ({ count: tokens * intermediate, activation: "silu" as const }),
});
