/** Qwen 3 and 3.5 with a mixture of experts (Yang et al. 2025) in each layer, or in some of them. */
import { InvalidFileError } from "../errors.ts";
import { Attention } from "./attention.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { Experts } from "./experts.ts";
import { GatedMlp } from "./gated-mlp.ts";
import { readMultiToken } from "./multi-token.ts";
import { readMixers, readQwen35 } from "./qwen3-5.ts";
import { attentionBias, expertCounts, mixed, readStack, stacked } from "./transformer-config.ts";

/** Layers with a dense MLP, by number, whatever `decoder_sparse_step` says. */
function denseLayers(config: ConfigReader): ReadonlySet<number> {
  const listed = config.fields.mlp_only_layers ?? [];
  if (!Array.isArray(listed) || !listed.every(Number.isInteger))
    throw new InvalidFileError(
      config.file,
      `mlp_only_layers: expected a list of layers but found ${JSON.stringify(listed)}`,
    );
  return new Set(listed);
}

export const qwen3Moe: Architecture = {
  name: "Qwen3MoeForCausalLM",
  modelType: "qwen3_moe",
  read(config) {
    const base = readStack(config, { contextLength: 32768, kvHeads: 4 });
    const window = config.boolean("use_sliding_window", false) ? config.sizeOrNull("sliding_window", 4096) : null;
    const attention = {
      ...base.attention,
      biases: attentionBias(config),
      queryKeyNorm: "head" as const,
      window: window ?? 0,
    };
    const experts = new Experts({
      ...expertCounts(config, { experts: 128, topK: 8 }),
      hidden: base.hidden,
      intermediate: config.size("moe_intermediate_size", 768),
      normalize: config.boolean("norm_topk_prob", false),
      gate: base.mlp.activation,
    });
    const dense = new GatedMlp(base.mlp);
    const isDense = denseLayers(config);
    const step = config.size("decoder_sparse_step", 1);
    return stacked(
      { ...base, attention },
      () => ({}),
      (i) => (isDense.has(i) || (i + 1) % step !== 0 ? dense : experts),
    );
  },
};

/** Qwen 3.5's mixers, and in each layer a mixture of experts with a gated shared expert. */
export const qwen35Moe: Architecture = {
  name: "Qwen3_5MoeForCausalLM",
  modelType: "qwen3_5_moe_text",
  read(config) {
    const intermediate = config.size("moe_intermediate_size", 512);
    const base = readQwen35(config.with({ intermediate_size: intermediate }), { kvHeads: 2 });
    const mixers = readMixers(config, base);
    const shared = new GatedMlp({
      ...base.mlp,
      intermediate: config.size("shared_expert_intermediate_size", 512),
      names: { mlp: "shared_expert" },
    });
    const experts = new Experts({
      ...expertCounts(config, { experts: 256, topK: 8 }),
      hidden: base.hidden,
      intermediate,
      gate: base.mlp.activation,
      shared: { mlp: shared, gate: "shared_expert_gate" },
    });
    const stack = mixed(
      base,
      (i) => mixers[i]!,
      () => experts,
    );
    const { attention, norms } = base;
    const drafter = readMultiToken(config, base, { mixer: new Attention(attention), mlp: experts, norms });
    return { ...stack, drafter };
  },
};
