/** BitNet b1.58 (Ma et al. 2024, 2025): ternary weights, and norms before the last matrix of attention and MLP. */
import type { Architecture } from "./decoder.ts";
import { attentionBias, readStack, stacked } from "./transformer-config.ts";

export const bitnet: Architecture = {
  name: "BitNetForCausalLM",
  modelType: "bitnet",
  read(config) {
    const base = readStack(config, { eps: 1e-5, theta: 500000, kvHeads: 5, activation: "relu2" });
    return stacked({
      ...base,
      attention: { ...base.attention, biases: attentionBias(config), outputNorm: "attn_sub_norm" },
      mlp: { ...base.mlp, innerNorm: "ffn_sub_norm" },
    });
  },
};
