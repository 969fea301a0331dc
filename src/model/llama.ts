/**
 * Llama 2, 3, 3.1, 3.2 (Touvron et al. 2023; Grattafiori et al. 2024), and those built alike, such as TinyLlama and
 * SmolLM2: pre-norm blocks, grouped-query attention, SwiGLU.
 */
import type { Architecture } from "./decoder.ts";
import { transformer } from "./transformer.ts";
import { attentionBias, readTransformer } from "./transformer-config.ts";

export const llama: Architecture = {
  name: "LlamaForCausalLM",
  modelType: "llama",
  build(config) {
    const biases = { ...attentionBias(config), mlp: config.boolean("mlp_bias", false) };
    return transformer(this.name, { ...readTransformer(config), biases });
  },
};
