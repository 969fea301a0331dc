/**
 * OLMoE (Muennighoff et al. 2024): norms over all queries and all keys of a token, and a mixture of experts in each layer.
 */
import type { Architecture } from "./decoder.ts";
import { Experts } from "./experts.ts";
import { attentionBias, expertCounts, readStack, stacked } from "./transformer-config.ts";

export const olmoe: Architecture = {
  name: "OlmoeForCausalLM",
  modelType: "olmoe",
  read(config) {
    const base = readStack(config, { eps: 1e-5, contextLength: 4096 });
    const experts = new Experts({
      ...expertCounts(config, { experts: 64, topK: 8 }),
      hidden: base.hidden,
      intermediate: base.mlp.intermediate,
      normalize: config.boolean("norm_topk_prob", false),
      gate: base.mlp.activation,
    });
    const attention = {
      ...base.attention,
      biases: attentionBias(config),
      queryKeyNorm: "all" as const,
      clip: config.numberOrNull("clip_qkv", null),
    };
    return stacked(
      { ...base, attention },
      () => ({}),
      () => experts,
    );
  },
};
