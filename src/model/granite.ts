/** Granite (IBM 2024): Llama with factors on embeddings, residuals, attention scores and logits. */
import type { Architecture } from "./decoder.ts";
import { transformer } from "./transformer.ts";
import { attentionBias, readStack, stacked } from "./transformer-config.ts";

export const granite: Architecture = {
  name: "GraniteForCausalLM",
  modelType: "granite",
  build(config) {
    const base = readStack(config);
    return transformer(
      this.name,
      stacked({
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
      }),
    );
  },
};
