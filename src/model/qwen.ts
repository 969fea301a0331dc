/** Qwen 2 and 2.5 (Yang et al. 2024): biases on queries, keys and values. Qwen 3 (2025): norms of queries and keys. */
import { Attention } from "./attention.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { GatedMlp } from "./gated-mlp.ts";
import { MIMO, readMultiToken } from "./multi-token.ts";
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

/** Sliding windows by layer: with `use_sliding_window`, the layers from `max_window_layers` on have one. */
function windowsOf(config: ConfigReader, depth: number): number[] {
  const window = config.boolean("use_sliding_window", false) ? config.sizeOrNull("sliding_window", 4096) : null;
  const firstSliding = config.count("max_window_layers", 28);
  return layerWindows(config, depth, window, (i) => window !== null && i >= firstSliding);
}

const qwen2VL = {
  vocab_size: 152064,
  hidden_size: 8192,
  intermediate_size: 29568,
  num_hidden_layers: 80,
  num_attention_heads: 64,
  num_key_value_heads: 8,
  rms_norm_eps: 1e-5,
  rope_theta: 1e6,
  max_window_layers: 80,
};

export const qwen2: Architecture = {
  name: "Qwen2ForCausalLM",
  modelType: "qwen2",
  textTypes: { qwen2_vl: qwen2VL, qwen2_vl_text: qwen2VL, qwen2_5_vl: qwen2VL, qwen2_5_vl_text: qwen2VL },
  read(config) {
    const base = readQwen(config, {});
    const windows = windowsOf(config, base.depth);
    const attention = { ...base.attention, biases: { qkv: true, output: false } };
    return stacked({ ...base, attention }, (i) => ({ window: windows[i]! }));
  },
};

/** MiMo (Xiaomi 2025): Qwen 2 with a layer of multi-token prediction, which joins hidden states and embeddings in the other order. */
export const mimo: Architecture = {
  name: MIMO,
  modelType: "mimo",
  read(config) {
    const base = readQwen(config, {});
    const windows = windowsOf(config, base.depth);
    const attention = { ...base.attention, biases: { qkv: config.boolean("attention_bias", true), output: false } };
    const stack = stacked({ ...base, attention }, (i) => ({ window: windows[i]! }));
    const parts = { mixer: new Attention(attention), mlp: new GatedMlp(base.mlp), norms: base.norms };
    const drafter = readMultiToken(config, { ...base, isHiddenFirst: true }, parts);
    return { ...stack, ...(drafter && { drafter }) };
  },
};

export const qwen3: Architecture = {
  name: "Qwen3ForCausalLM",
  modelType: "qwen3",
  textTypes: {
    qwen3_vl_text: {
      vocab_size: 151936,
      hidden_size: 4096,
      intermediate_size: 22016,
      num_hidden_layers: 32,
      num_attention_heads: 32,
      max_position_embeddings: 128000,
      rope_theta: 500000,
    },
  },
  read(config) {
    const base = readQwen(config, { headDim: 128 });
    const windows = windowsOf(config, base.depth);
    const attention = { ...base.attention, biases: attentionBias(config), queryKeyNorm: "head" as const };
    return stacked({ ...base, attention }, (i) => ({ window: windows[i]! }));
  },
};
