/** SmolLM3 (2025): Llama in which some layers, by default every fourth, have no RoPE. */
import type { Architecture } from "./decoder.ts";
import { attentionBias, layerWindows, readStack, stacked } from "./transformer-config.ts";

export const smollm3: Architecture = {
  name: "SmolLM3ForCausalLM",
  modelType: "smollm3",
  read(config) {
    const base = readStack(config, { kvHeads: 4, contextLength: 32768, theta: 2e6, tied: true });
    const { depth } = base;
    const interval = config.size("no_rope_layer_interval", 4);
    const turned =
      config.choices("no_rope_layers", depth, [0, 1]) ??
      Array.from({ length: depth }, (_, i) => ((i + 1) % interval === 0 ? 0 : 1));
    const window = config.sizeOrNull("sliding_window", null);
    const sliding = config.boolean("use_sliding_window", false) && window !== null;
    const windows = layerWindows(config, depth, window, (i) => sliding && turned[i] === 0);
    return stacked(
      {
        ...base,
        attention: { ...base.attention, biases: attentionBias(config) },
        mlp: { ...base.mlp, bias: config.boolean("mlp_bias", false) },
      },
      (i) => ({ window: windows[i]!, rope: turned[i] === 1 ? "rope" : null }),
    );
  },
};
