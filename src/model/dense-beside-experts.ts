/**
 * Gemma 4's mixture of experts: a gated MLP and experts in parallel, each with norms of its own, and a router that reads
 * the hidden state through a norm of its own.
 */
import type { Experts } from "./experts.ts";
import type { GatedMlp } from "./gated-mlp.ts";
import type { ExpertStack, LayerPart, LayerPass, PartActivations, Place } from "./layer.ts";
import { madeByNorm } from "./scalable.ts";
import { vectorSlot, type WeightSlot } from "./weight-slot.ts";

const DENSE = { before: "pre_feedforward_layernorm", after: "post_feedforward_layernorm_1" } as const;
const EXPERTS = { before: "pre_feedforward_layernorm_2", after: "post_feedforward_layernorm_2" } as const;
/** Name of the factors of the router's norm. */
const ROUTER_SCALE = "router.scale";

export interface DenseBesideExpertsConfig {
  /** Elements of a token's hidden state. */
  readonly hidden: number;
  readonly dense: GatedMlp;
  /** The experts; their modules belong to the layer itself. */
  readonly experts: Experts;
}

/** y = norm(dense(norm(x))) + norm(experts(norm(x))); the router reads x / rms(x) * scale / sqrt(hidden). */
export class DenseBesideExperts implements LayerPart {
  readonly module = null;
  readonly config: DenseBesideExpertsConfig;

  constructor(config: DenseBesideExpertsConfig) {
    this.config = config;
  }

  slots(module: string): WeightSlot[] {
    const { hidden, dense, experts } = this.config;
    const norms = [DENSE.before, DENSE.after, EXPERTS.before, EXPERTS.after];
    return [
      ...norms.map((name) => vectorSlot(`${module}.${name}.weight`, hidden)),
      vectorSlot(`${module}.${ROUTER_SCALE}`, hidden),
      ...dense.slots(`${module}.${dense.module}`),
      ...experts.slots(module),
    ];
  }

  stacks(module: string): ExpertStack[] {
    return this.config.experts.stacks(module);
  }

  scalable(module: string, normOffset: number): PartActivations {
    const { hidden, dense } = this.config;
    const { readers, inner } = dense.scalable(`${module}.${dense.module}`, normOffset);
    return { readers: [], inner: [madeByNorm(`${module}.${DENSE.before}`, hidden, normOffset, readers), ...inner] };
  }

  forward<T>(pass: LayerPass<T>, x: T, place: Place): T {
    const { ops } = pass;
    const { hidden, dense, experts } = this.config;
    const { module } = place;
    const norm = (value: T, name: string) => pass.norm(value, `${module}.${name}`);
    const own = { ...place, module: `${module}.${dense.module}` };
    const common = norm(dense.forward(pass, norm(x, DENSE.before), own), DENSE.after);
    const read = ops.scale(ops.rmsNorm(x, pass.weight(`${module}.${ROUTER_SCALE}`), pass.eps), hidden ** -0.5);
    const made = experts.routed(pass, norm(x, EXPERTS.before), read, place);
    return ops.add(common, norm(made, EXPERTS.after));
  }
}
