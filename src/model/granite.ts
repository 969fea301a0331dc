/** Granite (IBM 2024): Llama with factors on embeddings, residuals, attention scores and logits. */
import type { Architecture } from "./decoder.ts";
import { transformer } from "./transformer.ts";
import { attentionBias, readTransformer } from "./transformer-config.ts";

export const granite: Architecture = {
  name: "GraniteForCausalLM",
  modelType: "granite",
  build(config) {
    return transformer(this.name, {
      ...readTransformer(config),
      biases: { ...attentionBias(config), mlp: config.boolean("mlp_bias", false) },
      scales: {
        embedding: config.number("embedding_multiplier", 1),
        residual: config.number("residual_multiplier", 1),
        attention: config.number("attention_multiplier", 1),
        logits: 1 / config.number("logits_scaling", 1),
      },
    });
  },
};
