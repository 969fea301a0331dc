/**
 * Gated activations of rows [rows, 2 * dim] with gate and up side by side: y [rows, dim] = activation(left half) * right half.
 */
import { casesOf } from "../../cases.ts";
import { type ArgumentsOf, choice, input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import { i32 } from "../../wasm/assembler/instructions.ts";
import { forLanes } from "../../wasm/generate/lanes.ts";
import { elementAt } from "../../wasm/generate/loops.ts";
import { activationOf, activations, gateFormulas } from "./activations.ts";

const fields = {
  gateUp: input("f32", "rows", 2, "dim"),
  y: output("f32", "rows", "dim"),
  activation: choice(activations),
};

/** y = activation(left half) * right half, with the same bits as the reference kernel of `gate`. */
export function gateRows({ rows, dim, gateUp, y, activation }: ArgumentsOf<typeof fields>): void {
  const f = activationOf[activation];
  for (let row = 0; row < rows; row++)
    for (let c = 0; c < dim; c++) y[row * dim + c] = f(gateUp[2 * row * dim + c]!) * gateUp[(2 * row + 1) * dim + c]!;
}

export const gateHalves = family("gate_halves", fields, {
  by: "rows",
  reference: gateRows,
  wasm: {
    specialise: ({ activation }) => ({ activation }),
    body({ gateUp, y, dim }, { scope, constants, tile, special }) {
      const [a, b, free] = ["a", "b", "free"].map((name) => scope.local("v128", name));
      const up = scope.local("ptr", "up");
      return [
        gateUp.set(elementAt(gateUp, i32.mul(tile, dim), 8)),
        y.set(elementAt(y, i32.mul(tile, dim), 4)),
        up.set(elementAt(gateUp, dim, 4)),
        forLanes({ scope, constants, count: dim, pointers: [[gateUp], [up], [y]] }, (lanes) => [
          a!.set(lanes.load(gateUp)),
          b!.set(lanes.load(up)),
          gateFormulas[special.activation]({ a: a!, b: b!, free: free!, scope, constants }),
          lanes.store(y, a!),
        ]),
      ];
    },
  },
});

export const cases = casesOf(gateHalves, {
  small: activations.map((activation) => ({ rows: 7, dim: 61, activation })),
  model: (tokens, { intermediate }) => ({ rows: tokens, dim: intermediate, activation: "silu" as const }),
});
