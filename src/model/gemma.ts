/**
 * Gemma (2024) has GELU, scaled embeddings and norm weights stored minus 1. Gemma 2 adds norms behind attention and MLP, soft caps
 * on scores and logits, and a sliding window in every other layer. Gemma 3 (text, 2025) has norms of queries and keys in place
 * of soft caps on scores, five windowed layers for each full one, and a RoPE for each of the two kinds.
 */
import { UnsupportedError } from "../errors.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import type { LayerNorms } from "./layer.ts";
import { ropesByType } from "./rope.ts";
import {
  activationOf,
  attentionBias,
  layerWindows,
  readStack,
  type StackConfig,
  stacked,
} from "./transformer-config.ts";

const GELU = "gelu_pytorch_tanh";

function readGemma(config: ConfigReader, contextLength: number, kvHeads: number): StackConfig {
  const base = readStack(config.without("hidden_act"), { tied: true, headDim: 256, contextLength, kvHeads });
  return {
    ...base,
    normOffset: 1,
    attention: { ...base.attention, biases: attentionBias(config) },
    scales: { ...base.scales, embedding: base.hidden ** 0.5 },
  };
}

export const gemma: Architecture = {
  name: "GemmaForCausalLM",
  modelType: "gemma",
  read(config) {
    // The first configs say "gelu" but mean its tanh approximation.
    const says = config.has("hidden_act") && config.string("hidden_act") !== "gelu";
    const activation = says ? activationOf(config, "hidden_act", GELU) : "geluTanh";
    const base = readGemma(config, 8192, 16);
    return stacked({ ...base, mlp: { ...base.mlp, activation } });
  },
};

/** Norms before and after both attention and MLP. */
export const normsAround: LayerNorms = {
  beforeMixer: "input_layernorm",
  afterMixer: "post_attention_layernorm",
  beforeMlp: "pre_feedforward_layernorm",
  afterMlp: "post_feedforward_layernorm",
};

/** The config that Gemma 2 and 3 share. */
function readSecond(config: ConfigReader, contextLength: number): StackConfig {
  const base = readGemma(config, contextLength, 4);
  return {
    ...base,
    norms: normsAround,
    attention: { ...base.attention, scale: config.positive("query_pre_attn_scalar", 256) ** -0.5 },
    mlp: { ...base.mlp, activation: activationOf(config, "hidden_activation", GELU) },
  };
}

export const gemma2: Architecture = {
  name: "Gemma2ForCausalLM",
  modelType: "gemma2",
  read(config) {
    const base = readSecond(config, 8192);
    const window = config.sizeOrNull("sliding_window", 4096);
    const windows = layerWindows(config, base.depth, window, (i) => i % 2 === 0);
    const softcap = config.numberOrNull("attn_logit_softcapping", 50) ?? 0;
    const logitSoftcap = config.numberOrNull("final_logit_softcapping", 30) ?? 0;
    return stacked({ ...base, logitSoftcap }, (i) => ({ window: windows[i]!, softcap }));
  },
};

export const gemma3: Architecture = {
  name: "Gemma3ForCausalLM",
  modelType: "gemma3_text",
  textTypes: {
    gemma3_text: {
      vocab_size: 262208,
      hidden_size: 2304,
      intermediate_size: 9216,
      num_hidden_layers: 26,
      num_attention_heads: 8,
    },
  },
  read(config) {
    if (config.has("text_config"))
      throw new UnsupportedError(`${config.file}: models of images and text are not supported, only text models`);
    const base = readSecond(config.without("rope_parameters", "rope_scaling"), 131072);
    const window = config.sizeOrNull("sliding_window", 4096);
    const pattern = config.size("sliding_window_pattern", 6);
    const windows = layerWindows(config, base.depth, window, (i) => (i + 1) % pattern !== 0);
    return stacked(
      {
        ...base,
        attention: { ...base.attention, queryKeyNorm: "head" },
        ropes: ropesByType(config, {
          headDim: base.attention.headDim,
          full: 1e6,
          sliding: config.positive("rope_local_base_freq", 10000),
        }),
        logitSoftcap: config.numberOrNull("final_logit_softcapping", null) ?? 0,
      },
      (i) => ({ window: windows[i]!, rope: windows[i]! > 0 ? "sliding_attention" : "full_attention" }),
    );
  },
};
