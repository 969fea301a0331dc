/** Qwen 2 and 2.5 (Yang et al. 2024): biases of queries, keys and values. Qwen 3 (2025): norms of queries and keys. */
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { transformer } from "./transformer.ts";
import {
  attentionBias,
  type Defaults,
  layerWindows,
  readStack,
  type StackConfig,
  stacked,
} from "./transformer-config.ts";

function readQwen(config: ConfigReader, defaults: Defaults): StackConfig {
  return readStack(config, { contextLength: 32768, kvHeads: 32, ...defaults });
}

/** Windows, when they are used at all, of the layers from `max_window_layers` on. */
function windowsOf(config: ConfigReader, depth: number): number[] {
  const window = config.boolean("use_sliding_window", false) ? config.sizeOrNull("sliding_window", 4096) : null;
  const firstSliding = config.number("max_window_layers", 28);
  return layerWindows(config, depth, window, (i) => window !== null && i >= firstSliding);
}

export const qwen2: Architecture = {
  name: "Qwen2ForCausalLM",
  modelType: "qwen2",
  build(config) {
    const base = readQwen(config, {});
    const windows = windowsOf(config, base.depth);
    const attention = { ...base.attention, biases: { qkv: true, output: false } };
    return transformer(
      this.name,
      stacked({ ...base, attention }, (i) => ({ window: windows[i]! })),
    );
  },
};

export const qwen3: Architecture = {
  name: "Qwen3ForCausalLM",
  modelType: "qwen3",
  build(config) {
    const base = readQwen(config, { headDim: 128 });
    const windows = windowsOf(config, base.depth);
    const attention = { ...base.attention, biases: attentionBias(config), queryKeyNorm: "head" as const };
    return transformer(
      this.name,
      stacked({ ...base, attention }, (i) => ({ window: windows[i]! })),
    );
  },
};
