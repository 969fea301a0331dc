/** Granite (IBM 2024): Llama with factors on embeddings, residuals, attention scores and logits. */
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { transformer } from "./transformer.ts";
import { attentionBias, readStack, type StackConfig, stacked } from "./transformer-config.ts";

/** What Granite's families share. */
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
      logits: 1 / config.number("logits_scaling", 1),
    },
  };
}

export const granite: Architecture = {
  name: "GraniteForCausalLM",
  modelType: "granite",
  build(config) {
    return transformer(this.name, stacked(readGranite(config)));
  },
};
