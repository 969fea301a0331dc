/**
 * OLMo 2 (2024): post-norms only, and norms over all queries and all keys of a token. Olmo 3 (2025): sliding windows in
 * three of four layers, and scaled RoPE in the others.
 */
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { ropesByType } from "./rope.ts";
import { attentionBias, layerWindows, readStack, type StackConfig, stacked } from "./transformer-config.ts";

function readOlmo(config: ConfigReader): StackConfig {
  const base = readStack(config, { eps: 1e-5 });
  return {
    ...base,
    attention: { ...base.attention, biases: attentionBias(config), queryKeyNorm: "all" },
    norms: {
      beforeMixer: null,
      afterMixer: "post_attention_layernorm",
      beforeMlp: null,
      afterMlp: "post_feedforward_layernorm",
    },
  };
}

export const olmo2: Architecture = {
  name: "Olmo2ForCausalLM",
  modelType: "olmo2",
  read(config) {
    return stacked(readOlmo(config));
  },
};

export const olmo3: Architecture = {
  name: "Olmo3ForCausalLM",
  modelType: "olmo3",
  read(config) {
    const base = readOlmo(config.without("rope_parameters", "rope_scaling"));
    const window = config.sizeOrNull("sliding_window", 4096);
    const windows = layerWindows(config, base.depth, window, (i) => (i + 1) % 4 !== 0);
    const ropes = ropesByType(config, { headDim: base.attention.headDim, full: 500000, sliding: 500000 });
    return stacked({ ...base, ropes }, (i) => ({
      window: windows[i]!,
      rope: windows[i]! > 0 ? "sliding_attention" : "full_attention",
    }));
  },
};
