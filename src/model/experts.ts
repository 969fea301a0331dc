/**
 * Mixture of experts in place of the MLP (Shazeer et al. 2017): a router chooses some gated MLPs for each token and sums
 * their results with its weights. Some models have a shared expert for all tokens, too (DeepSeek-AI 2024).
 */
import type { Activation, RouterOptions, Routing } from "../ops/ops.ts";
import type { GatedMlp } from "./gated-mlp.ts";
import type { ExpertStack, LayerPart, LayerPass, PartActivations, Place } from "./layer.ts";
import { linearSlots, matrixSlot, vectorSlot, type WeightSlot } from "./weight-slot.ts";

/** Gate (clamp(up) + 1) * c * sigmoid(slope * c), c = min(gate, limit), in place of activation(gate) * up. */
interface ClampedGate {
  readonly slope: number;
  readonly limit: number;
}

export interface ExpertsConfig extends Omit<RouterOptions, "bias" | "factors"> {
  /** Elements of a token's hidden state. */
  readonly hidden: number;
  /** Elements of an expert's intermediate activations. */
  readonly intermediate: number;
  readonly experts: number;
  /** Whether the router's linear layer has a bias. Default: false. */
  readonly routerBias?: boolean;
  /**
   * Names of vectors [experts]: `choice` is added to scores for choosing experts, `factors` multiply the experts' weights.
   */
  readonly routerVectors?: { readonly choice?: string; readonly factors?: string };
  /** Gate of an expert: an activation, or a clamped gate. */
  readonly gate: Activation | ClampedGate;
  /** Whether the linear layers of experts have a bias. Default: false. */
  readonly bias?: boolean;
  /** The shared expert of all tokens, and the linear layer whose sigmoid multiplies its result; absent for none. */
  readonly shared?: {
    readonly mlp: GatedMlp;
    readonly gate: string | null;
    /** Whether its module is beside the mixture's, not within. Default: false. */
    readonly isBeside?: boolean;
  };
  /** Names of stacked tensors of all experts in checkpoints, where they differ from transformers'. */
  readonly stacks?: { readonly both: string; readonly down: string };
  /** Whether stacked tensors have matrices [k, n], with rows of gate and up interleaved. Default: false. */
  readonly stacksTurned?: boolean;
  /** Names of modules, where they differ from Qwen's. */
  readonly names?: { readonly [M in keyof typeof qwenNames]?: string };
}

/** Qwen's names of the mixture in its layer, the router, the experts, and an expert's linear layers. */
const qwenNames = {
  mlp: "mlp",
  router: "gate",
  experts: "experts",
  gate: "gate_proj",
  up: "up_proj",
  down: "down_proj",
};

/** Full name of the shared expert's module, given the mixture's. */
function sharedModule(module: string, { mlp, isBeside = false }: NonNullable<ExpertsConfig["shared"]>): string {
  return isBeside ? module.replace(/[^.]+$/, mlp.module) : `${module}.${mlp.module}`;
}

/** A layer's mixture of experts. */
export class Experts implements LayerPart {
  readonly config: ExpertsConfig;

  constructor(config: ExpertsConfig) {
    this.config = config;
  }

  get module(): string {
    return this.#names.mlp;
  }

  get #names() {
    return { ...qwenNames, ...this.config.names };
  }

  slots(module: string): WeightSlot[] {
    const { hidden, intermediate, experts, routerBias, routerVectors, bias, shared } = this.config;
    const names = this.#names;
    const vectors = Object.values(routerVectors ?? {});
    const expert = (name: string): WeightSlot[] => [
      ...linearSlots(`${name}.${names.gate}`, intermediate, hidden, bias),
      ...linearSlots(`${name}.${names.up}`, intermediate, hidden, bias),
      ...linearSlots(`${name}.${names.down}`, hidden, intermediate, bias),
    ];
    return [
      matrixSlot(`${module}.${names.router}.weight`, experts, hidden),
      ...(routerBias ? [vectorSlot(`${module}.${names.router}.bias`, experts)] : []),
      ...vectors.map((name) => vectorSlot(`${module}.${name}`, experts)),
      ...Array.from({ length: experts }, (_, e) => expert(`${module}.${names.experts}.${e}`)).flat(),
      ...(shared ? shared.mlp.slots(sharedModule(module, shared)) : []),
      ...(shared?.gate ? [matrixSlot(`${module}.${shared.gate}.weight`, 1, hidden)] : []),
    ];
  }

  /** Stacked tensors of all experts, as transformers keeps them and as GGUF files do, with gate and up apart. */
  stacks(module: string): ExpertStack[] {
    const { experts, bias, stacks, stacksTurned: isTurned = false } = this.config;
    const names = this.#names;
    const inner = `${module}.${names.experts}`;
    const slots = (part: string, ...modules: readonly string[]) => modules.map((name) => `${inner}.*.${name}.${part}`);
    const stack = (tensor: string, of: readonly string[], isTransposed = false): ExpertStack => ({
      ...{ tensor, experts, slots: of, isTransposed },
      isInterleaved: isTurned && of.length > 1,
    });
    const { both = `${names.experts}.gate_up_proj`, down = `${names.experts}.down_proj` } = stacks ?? {};
    const gateUp = [names.gate, names.up];
    return [
      stack(`${module}.${both}`, slots("weight", ...gateUp), isTurned),
      stack(`${module}.${down}`, slots("weight", names.down), isTurned),
      stack(`${inner}.*.gate_up_proj.weight`, slots("weight", ...gateUp)),
      ...[names.gate, names.up, names.down].flatMap((name, i) => [
        stack(`${inner}.${["gate", "up", "down"][i]}_exps.weight`, slots("weight", name)),
        stack(`${inner}.${["gate", "up", "down"][i]}_exps.bias`, slots("bias", name)),
      ]),
      ...(bias
        ? [
            stack(`${inner}.gate_up_proj_bias`, slots("bias", ...gateUp)),
            stack(`${inner}.down_proj_bias`, slots("bias", names.down)),
          ]
        : []),
    ];
  }

  /** Nothing is scaled: the router reads the same input as the experts, and no text reaches every expert. */
  scalable(): PartActivations {
    return { readers: [], inner: [] };
  }

  forward<T>(pass: LayerPass<T>, x: T, place: Place): T {
    return this.routed(pass, x, x, place);
  }

  /** The experts' summed results for x, chosen by a router that reads `read`. */
  routed<T>(pass: LayerPass<T>, x: T, read: T, place: Place): T {
    const { ops } = pass;
    const { routerBias, routerVectors, shared } = this.config;
    const { module } = place;
    const vector = (name: string | undefined) => (name ? pass.weight(`${module}.${name}`) : null);
    const [bias, factors] = [vector(routerVectors?.choice), vector(routerVectors?.factors)];
    const logits = pass.linear(read, `${module}.${this.#names.router}`, routerBias);
    const routing = ops.route(logits, { ...this.config, bias, factors });
    const made = ops.combineExperts(this.#experts(pass, ops.expertRows(x, routing), routing, module), routing);
    if (!shared) return made;
    const common = shared.mlp.forward(pass, x, { ...place, module: sharedModule(module, shared) });
    const gate = shared.gate && ops.sigmoid(pass.linear(x, `${module}.${shared.gate}`));
    return ops.add(made, gate ? ops.scaleParts(common, gate) : common);
  }

  /** The gated MLP of each token's expert, for tokens sorted by expert. */
  #experts<T>(pass: LayerPass<T>, rows: T, { routing, topK }: Routing<T>, module: string): T {
    const { ops } = pass;
    const { experts, intermediate, bias, gate } = this.config;
    const names = this.#names;
    const layer = (x: T, ...modules: readonly string[]) =>
      ops.expertLinear(x, {
        name: `${module}.${names.experts}.*.${modules.length > 1 ? `{${modules}}` : modules[0]}.weight`,
        parts: Array.from({ length: experts }, (_, e) => {
          const weights = (part: string) =>
            modules.map((name) => pass.weight(`${module}.${names.experts}.${e}.${name}.${part}`));
          return { weights: weights("weight"), biases: bias ? weights("bias") : null };
        }),
        routing,
        topK,
      });
    const both = layer(rows, names.gate, names.up);
    const [gates, ups] = [ops.columns(both, 0, intermediate), ops.columns(both, intermediate, 2 * intermediate)];
    const gated =
      typeof gate === "string" ? ops.gated(gate, gates, ups) : ops.clampedGate(gates, ups, gate.slope, gate.limit);
    return layer(gated, names.down);
  }
}
