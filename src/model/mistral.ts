/** Mistral (Jiang et al. 2023): Llama with a sliding window in every layer, or in those of `layer_types` (Ministral, 2024). */
import type { Architecture } from "./decoder.ts";
import { ropeField } from "./rope.ts";
import { layerWindows, readStack, stacked } from "./transformer-config.ts";

export const mistral: Architecture = {
  name: "MistralForCausalLM",
  modelType: "mistral",
  textTypes: {
    mistral: {
      vocab_size: 32000,
      hidden_size: 4096,
      intermediate_size: 14336,
      num_hidden_layers: 32,
      num_attention_heads: 32,
    },
  },
  read(config) {
    const base = readStack(config, { kvHeads: 8, contextLength: 131072 });
    const window = config.sizeOrNull("sliding_window", 4096);
    const windows = layerWindows(config, base.depth, window, () => window !== null);
    return stacked(base, (i) => ({ window: windows[i]! }));
  },
};

const yarn = {
  rope_type: "yarn",
  rope_theta: 1e6,
  factor: 16,
  original_max_position_embeddings: 16384,
  mscale: 1,
  mscale_all_dim: 1,
  llama_4_scaling_beta: 0.1,
};

/** Ministral 3 (2025): a longer context by RoPE scaling, and a factor of queries that grows with their positions. */
export const ministral3: Architecture = {
  name: "Ministral3ForCausalLM",
  modelType: "ministral3",
  textTypes: {
    ministral3: {
      vocab_size: 131072,
      hidden_size: 4096,
      intermediate_size: 14336,
      num_hidden_layers: 34,
      num_attention_heads: 32,
    },
  },
  read(given) {
    const says = given.has("rope_parameters") || given.has("rope_scaling");
    const config = says ? given : given.with({ rope_parameters: yarn });
    const base = readStack(config, { kvHeads: 8, headDim: 128, contextLength: 262144, eps: 1e-5 });
    const rope = config.object(ropeField(config));
    const beta = rope.number("llama_4_scaling_beta", 0);
    const queryScaling = { beta, length: rope.size("original_max_position_embeddings", base.contextLength) };
    const window = config.sizeOrNull("sliding_window", null) ?? 0;
    return stacked({ ...base, attention: { ...base.attention, window, ...(beta === 0 ? {} : { queryScaling }) } });
  },
};

/** Mistral under the name that transformers gives it with `layer_types`. */
export const ministral: Architecture = { ...mistral, name: "MinistralForCausalLM", modelType: "ministral" };
