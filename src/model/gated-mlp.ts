/** Gated MLP (Shazeer 2020): down(activation(gate(x)) * up(x)). */
import type { Activation } from "../ops/ops.ts";
import type { LayerPart, LayerPass, PartActivations, Place } from "./layer.ts";
import { madeByLinear, madeByNorm } from "./scalable.ts";
import { linearSlots, vectorSlot, type WeightSlot } from "./weight-slot.ts";

export interface GatedMlpConfig {
  /** Elements of a token's hidden state. */
  readonly hidden: number;
  /** Elements of the intermediate activations. */
  readonly intermediate: number;
  /** Activation of the gate. */
  readonly activation: Activation;
  /** Whether the three linear layers have a bias. */
  readonly bias: boolean;
  /** Whether the checkpoint has gate and up in one matrix. */
  readonly fused: boolean;
  /** Name of a norm before the last matrix; absent for none. */
  readonly innerNorm?: string;
  /** Names of modules, where they differ from Llama's. */
  readonly names?: { readonly [M in keyof typeof llamaNames]?: string };
}

/** Llama's names of the MLP in its layer, and of its linear layers; `both` is gate and up in one matrix. */
const llamaNames = { mlp: "mlp", gate: "gate_proj", up: "up_proj", both: "gate_up_proj", down: "down_proj" };

/** A layer's gated MLP. */
export class GatedMlp implements LayerPart {
  readonly config: GatedMlpConfig;

  constructor(config: GatedMlpConfig) {
    this.config = config;
  }

  get module(): string {
    return this.#names.mlp;
  }

  get #names() {
    return { ...llamaNames, ...this.config.names };
  }

  slots(module: string): WeightSlot[] {
    const { hidden, intermediate, bias, fused, innerNorm } = this.config;
    const names = this.#names;
    const project = (name: string, n: number) => linearSlots(`${module}.${name}`, n, hidden, bias);
    return [
      ...(fused
        ? project(names.both, 2 * intermediate)
        : [...project(names.gate, intermediate), ...project(names.up, intermediate)]),
      ...(innerNorm === undefined ? [] : [vectorSlot(`${module}.${innerNorm}.weight`, intermediate)]),
      ...linearSlots(`${module}.${names.down}`, hidden, intermediate, bias),
    ];
  }

  scalable(module: string, normOffset: number): PartActivations {
    const { intermediate, bias, fused, innerNorm } = this.config;
    const names = this.#names;
    const down = `${module}.${names.down}`;
    const gates = fused ? [names.both] : [names.gate, names.up];
    const gate = { module: `${module}.${gates[0]}`, size: intermediate, rowOf: (c: number) => c };
    const ups = { size: intermediate, rowOf: (c: number) => (fused ? intermediate : 0) + c, gate };
    return {
      readers: gates.map((name) => `${module}.${name}.weight`),
      inner: [
        innerNorm === undefined
          ? madeByLinear(`${module}.${gates.at(-1)}`, bias, ups, down)
          : madeByNorm(`${module}.${innerNorm}`, intermediate, normOffset, [`${down}.weight`]),
      ],
    };
  }

  forward<T>(pass: LayerPass<T>, x: T, { module }: Place): T {
    const { ops } = pass;
    const { intermediate, activation, bias, fused, innerNorm } = this.config;
    const names = this.#names;
    const project = (name: string) => pass.linear(x, `${module}.${name}`, bias);
    const both = fused ? project(names.both) : null;
    const gate = both ? ops.columns(both, 0, intermediate) : project(names.gate);
    const up = both ? ops.columns(both, intermediate, 2 * intermediate) : project(names.up);
    const gated = ops.gated(activation, gate, up);
    const normed = innerNorm === undefined ? gated : pass.norm(gated, `${module}.${innerNorm}`);
    return pass.linear(normed, `${module}.${names.down}`, bias);
  }
}
