/**
 * GLM-4-0414 (2025): norms before and after attention and MLP, RoPE of neighbouring pairs on the first part of heads, gate
 * and up in one matrix.
 */
import type { Architecture } from "./decoder.ts";
import { readStack, stacked } from "./transformer-config.ts";

export const glm4: Architecture = {
  name: "Glm4ForCausalLM",
  modelType: "glm4",
  read(given) {
    const config = given.withDefaults({ partial_rotary_factor: 0.5 });
    const sizes = { headDim: 128, kvHeads: 2, contextLength: 131072 };
    const base = readStack(config, { ...sizes, eps: 1.5625e-7, partialRotary: true });
    const rotated = 2 * base.ropes.rope!.inverseFrequencies.length;
    return stacked({
      ...base,
      attention: {
        ...base.attention,
        biases: { qkv: config.boolean("attention_bias", true), output: false },
        pairedRows: rotated,
      },
      mlp: { ...base.mlp, fused: true },
      norms: {
        beforeMixer: "input_layernorm",
        afterMixer: "post_self_attn_layernorm",
        beforeMlp: "post_attention_layernorm",
        afterMlp: "post_mlp_layernorm",
      },
    });
  },
};
