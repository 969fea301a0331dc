/** Mixtral (Jiang et al. 2024): Mistral with a mixture of experts in each layer. */
import type { Architecture } from "./decoder.ts";
import { Experts } from "./experts.ts";
import { expertCounts, readStack, stacked } from "./transformer-config.ts";

export const mixtral: Architecture = {
  name: "MixtralForCausalLM",
  modelType: "mixtral",
  read(config) {
    const base = readStack(config, { kvHeads: 8, eps: 1e-5, contextLength: 131072, theta: 1e6 });
    const experts = new Experts({
      ...expertCounts(config, { experts: 8, topK: 2 }),
      hidden: base.hidden,
      intermediate: base.mlp.intermediate,
      gate: base.mlp.activation,
      names: { mlp: "block_sparse_moe", gate: "w1", up: "w3", down: "w2" },
    });
    const attention = { ...base.attention, window: config.sizeOrNull("sliding_window", null) ?? 0 };
    return stacked(
      { ...base, attention },
      () => ({}),
      () => experts,
    );
  },
};
