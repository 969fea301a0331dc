/** The gate of gpt-oss (OpenAI 2025): y = (clamp(up, -limit, limit) + 1) * c * sigmoid(slope * c), c = min(gate, limit). */
import { casesOf } from "../../cases.ts";
import { float, input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import { f32x4 } from "../../wasm/assembler/instructions.ts";
import { elementwise } from "../../wasm/declared.ts";
import { sigmoid, sigmoidTimes } from "./activations.ts";

export const clampedGate = family(
  "clamped_gate",
  {
    /** y may be the same memory as `gate` or `up`. */
    gate: input("f32", "count"),
    up: input("f32", "count"),
    y: output("f32", "count"),
    slope: float,
    limit: float,
  },
  {
    by: "elements",
    reference({ gate, up, slope, limit, y }) {
      for (let i = 0; i < y.length; i++) {
        const c = Math.min(gate[i]!, limit);
        y[i] = (Math.max(-limit, Math.min(up[i]!, limit)) + 1) * c * sigmoid(slope * c);
      }
    },
    wasm: {
      /** Code is specialised to slope and limit, which are the same in all layers of a model. */
      specialise: ({ slope, limit }) => ({ slope, limit }),
      body(variables, tile) {
        const { slope, limit } = tile.special;
        return elementwise({ inputs: ["gate", "up"], result: "y" }, ({ of, ...rest }) => {
          const floats = (number: number) => rest.constants.floats(number);
          const clamped = f32x4.max(f32x4.min(of.up, floats(limit)), floats(-limit));
          return [
            of.gate.set(f32x4.min(of.gate, floats(limit))),
            of.up.set(f32x4.add(clamped, floats(1))),
            sigmoidTimes({ ...rest, a: of.gate, b: of.up }, f32x4.mul(of.gate, floats(slope))),
          ];
        })(variables, tile);
      },
    },
  },
);

export const cases = casesOf(clampedGate, {
  small: [{ count: 451, slope: 1.702, limit: 0.7 }],
  model: (tokens, { intermediate }) => ({ count: tokens * intermediate, slope: 1.702, limit: 7 }),
});
