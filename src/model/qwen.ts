/** Qwen 2 and 2.5 (Yang et al. 2024): biases of queries, keys and values. Qwen 3 (2025): norms of queries and keys. */
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { transformer } from "./transformer.ts";
import {
  attentionBias,
  type Defaults,
  layerWindows,
  readTransformer,
  type TransformerConfig,
} from "./transformer-config.ts";

/** A window, when one is used at all, in the layers from `max_window_layers` on. */
function readQwen(config: ConfigReader, defaults: Defaults): TransformerConfig {
  const base = readTransformer(config, { contextLength: 32768, kvHeads: 32, ...defaults });
  const window = config.boolean("use_sliding_window", false) ? config.sizeOrNull("sliding_window", 4096) : null;
  const firstSliding = config.number("max_window_layers", 28);
  const windows = layerWindows(config, base.layers.length, window, (i) => window !== null && i >= firstSliding);
  return { ...base, layers: base.layers.map((layer, i) => ({ ...layer, window: windows[i]! })) };
}

export const qwen2: Architecture = {
  name: "Qwen2ForCausalLM",
  modelType: "qwen2",
  build(config) {
    return transformer(this.name, {
      ...readQwen(config, {}),
      biases: { qkv: true, output: false, mlp: false },
    });
  },
};

export const qwen3: Architecture = {
  name: "Qwen3ForCausalLM",
  modelType: "qwen3",
  build(config) {
    const base = readQwen(config, { headDim: 128 });
    return transformer(this.name, {
      ...base,
      biases: { ...attentionBias(config), mlp: false },
      norms: { ...base.norms, queryKey: "head" },
    });
  },
};
