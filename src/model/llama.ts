/**
 * Llama 2, 3, 3.1, 3.2 (Touvron et al. 2023; Grattafiori et al. 2024), and models of the same structure, such as TinyLlama
 * and SmolLM2: pre-norm layers, grouped-query attention, SwiGLU.
 */
import type { Architecture } from "./decoder.ts";
import { attentionBias, readStack, stacked } from "./transformer-config.ts";

export const llama: Architecture = {
  name: "LlamaForCausalLM",
  modelType: "llama",
  textTypes: {
    llama: {
      vocab_size: 32000,
      hidden_size: 4096,
      intermediate_size: 11008,
      num_hidden_layers: 32,
      num_attention_heads: 32,
    },
  },
  read(config) {
    const base = readStack(config);
    return stacked({
      ...base,
      attention: { ...base.attention, biases: attentionBias(config) },
      mlp: { ...base.mlp, bias: config.boolean("mlp_bias", false) },
    });
  },
};
