/** Granite (IBM 2024): Llama with factors on embeddings, residuals, attention scores and logits; also with experts. */
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { Experts, type ExpertsConfig } from "./experts.ts";
import { attentionBias, expertCounts, readStack, type StackConfig, stacked } from "./transformer-config.ts";

/** The config that Granite's families share. */
export function readGranite(config: ConfigReader): StackConfig {
  const base = readStack(config);
  return {
    ...base,
    attention: {
      ...base.attention,
      biases: attentionBias(config),
      scale: config.number("attention_multiplier", 1),
    },
    mlp: { ...base.mlp, bias: config.boolean("mlp_bias", false) },
    scales: {
      embedding: config.number("embedding_multiplier", 1),
      residual: config.number("residual_multiplier", 1),
      logits: 1 / config.positive("logits_scaling", 1),
    },
  };
}

export const granite: Architecture = {
  name: "GraniteForCausalLM",
  modelType: "granite",
  read(config) {
    return stacked(readGranite(config));
  },
};

/**
 * Experts whose router takes the softmax over the chosen logits only, which is the softmax over all divided by the chosen
 * ones' sum.
 */
export function readExperts(
  config: ConfigReader,
  { hidden, mlp }: StackConfig,
  options: Pick<ExpertsConfig, "shared"> = {},
): Experts {
  return new Experts({
    ...expertCounts(config, { experts: 8, topK: 2 }),
    hidden,
    intermediate: mlp.intermediate,
    gate: mlp.activation,
    stacks: { both: "input_linear.weight", down: "output_linear.weight" },
    names: { mlp: "block_sparse_moe", router: "router.layer" },
    ...options,
  });
}

export const graniteMoe: Architecture = {
  name: "GraniteMoeForCausalLM",
  modelType: "granitemoe",
  read(config) {
    const base = readGranite(config);
    const experts = readExperts(config, base);
    return stacked(
      base,
      () => ({}),
      () => experts,
    );
  },
};
