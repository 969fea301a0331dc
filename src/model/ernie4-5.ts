/** ERNIE 4.5 (2025), the dense ones: Llama with RoPE of neighbouring pairs. */
import type { Architecture } from "./decoder.ts";
import { readStack, stacked } from "./transformer-config.ts";

export const ernie4_5: Architecture = {
  name: "Ernie4_5ForCausalLM",
  modelType: "ernie4_5",
  read(config) {
    const sizes = { headDim: 128, kvHeads: 2, contextLength: 131072 };
    const base = readStack(config, { ...sizes, eps: 1e-5, theta: 500000, tied: true });
    const bias = config.boolean("use_bias", false);
    return stacked({
      ...base,
      attention: { ...base.attention, biases: { qkv: bias, output: bias }, pairedRows: base.attention.headDim },
      mlp: { ...base.mlp, bias },
    });
  },
};
