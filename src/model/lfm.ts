/**
 * LFM2 (Liquid AI 2025): gated short convolutions in most layers, attention with norms of queries and keys in the others.
 * LFM3 (2026): post-norms as well, sliding windows, a gate for each head, and a RoPE for each kind of attention.
 */
import { Attention } from "./attention.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { Experts } from "./experts.ts";
import { GatedMlp } from "./gated-mlp.ts";
import type { LayerNorms } from "./layer.ts";
import { ropeOf } from "./rope.ts";
import { ShortConvolution, tapsOf } from "./short-convolution.ts";
import {
  attentionBias,
  type Defaults,
  expertCounts,
  mixed,
  readStack,
  type StackConfig,
} from "./transformer-config.ts";

const norms: LayerNorms = { beforeMixer: "operator_norm", afterMixer: null, beforeMlp: "ffn_norm", afterMlp: null };
const mlpNames = { mlp: "feed_forward", gate: "w1", up: "w3", down: "w2" };

/** The config that all generations share. Published files have some fields under other names than transformers' class. */
function readLfm(config: ConfigReader, defaults: Defaults): StackConfig {
  const { fields } = config;
  const renamed = config.without("hidden_act").with({
    rms_norm_eps: fields.norm_eps ?? fields.rms_norm_eps,
    tie_word_embeddings: fields.tie_embedding ?? fields.tie_word_embeddings,
    intermediate_size: fields.block_ff_dim ?? fields.intermediate_size,
  });
  const base = readStack(renamed, { contextLength: 128000, eps: 1e-5, theta: 1e6, tied: true, ...defaults });
  return {
    ...base,
    lastNorm: "model.embedding_norm",
    attention: { ...base.attention, queryKeyNorm: "head" },
    mlp: { ...base.mlp, names: mlpNames },
    norms,
  };
}

/** The gated short convolution of every layer that has one. */
function readConvolution(config: ConfigReader, hidden: number, taps: number): ShortConvolution {
  return new ShortConvolution({
    hidden,
    taps: tapsOf(config, "conv_L_cache", taps),
    bias: config.boolean("conv_bias", false),
  });
}

/** The attention of LFM2. */
function readAttention(base: StackConfig): Attention {
  const names = { output: "out_proj", queryNorm: "q_layernorm", keyNorm: "k_layernorm" };
  return new Attention({ ...base.attention, names });
}

/** Intermediate size of LFM2's MLP: the given one, or two thirds of it times a factor, rounded up to a multiple of a number. */
function intermediateOf(config: ConfigReader, given: number): number {
  if (!config.boolean("block_auto_adjust_ff_dim", true)) return given;
  const factor = config.numberOrNull("block_ffn_dim_multiplier", 1);
  const part = Math.trunc((2 * given) / 3);
  if (factor === null) return part;
  const multiple = config.size("block_multiple_of", 256);
  return multiple * Math.ceil(Math.trunc(factor * part) / multiple);
}

/** Whether each layer is attention: by `layer_types`, else by `full_attn_idxs`, else all are. */
function attentionLayers(config: ConfigReader, depth: number): readonly boolean[] {
  const types = config.choices("layer_types", depth, ["full_attention", "conv"]);
  if (types) return types.map((type) => type !== "conv");
  const indices = config.fields.full_attn_idxs;
  return Array.from({ length: depth }, (_, i) => !Array.isArray(indices) || indices.includes(i));
}

export const lfm2: Architecture = {
  name: "Lfm2ForCausalLM",
  modelType: "lfm2",
  read(config) {
    const base = readLfm(config, { kvHeads: 8 });
    const mlp = { ...base.mlp, intermediate: intermediateOf(config, base.mlp.intermediate) };
    const isAttention = attentionLayers(config, base.depth);
    const [attention, convolution] = [readAttention(base), readConvolution(config, base.hidden, 3)];
    return mixed({ ...base, mlp }, (i) => (isAttention[i] ? attention : convolution));
  },
};

/** LFM2-8B-A1B (2025): a mixture of experts in all but the first layers, with sigmoid scores and a bias for choosing. */
export const lfm2Moe: Architecture = {
  name: "Lfm2MoeForCausalLM",
  modelType: "lfm2_moe",
  read(config) {
    const base = readLfm(config, { kvHeads: 8 });
    const isAttention = attentionLayers(config, base.depth);
    const [attention, convolution] = [readAttention(base), readConvolution(config, base.hidden, 3)];
    const experts = new Experts({
      ...expertCounts(config, { experts: 32, topK: 4 }),
      hidden: base.hidden,
      intermediate: config.size("moe_intermediate_size", 1792),
      scores: "sigmoid",
      normalize: config.boolean("norm_topk_prob", true),
      eps: 1e-6,
      scale: config.number("routed_scaling_factor", 1),
      ...(config.boolean("use_expert_bias", true) ? { routerVectors: { choice: "expert_bias" } } : {}),
      gate: base.mlp.activation,
      names: mlpNames,
    });
    const dense = new GatedMlp(base.mlp);
    const denseLayers = config.count("num_dense_layers", 2);
    return mixed(
      base,
      (i) => (isAttention[i] ? attention : convolution),
      (i) => (i < denseLayers ? dense : experts),
    );
  },
};

const lfm3Types = ["conv", "full_attention", "sliding_attention"] as const;

/** Default RoPEs of LFM3. */
const lfm3Ropes = {
  sliding_attention: { rope_type: "default", rope_theta: 1e4 },
  full_attention: { rope_type: "proportional", rope_theta: 1e6, partial_rotary_factor: 0.5 },
};

export const lfm3: Architecture = {
  name: "Lfm3ForCausalLM",
  modelType: "lfm3",
  read(config) {
    const base = readLfm(config.without("rope_parameters"), { kvHeads: 4, headDim: 128 });
    const types =
      config.choices("layer_types", base.depth, lfm3Types) ??
      Array.from({ length: base.depth }, (_, i) =>
        i % 4 === 2 ? lfm3Types[1] : lfm3Types[i % 4 === 0 && i > 0 ? 2 : 0],
      );
    const sandwich = config.boolean("use_sandwich_norm", true);
    const parameters = config.has("rope_parameters") ? config : config.with({ rope_parameters: lfm3Ropes });
    const { headDim } = base.attention;
    const rope = (type: string) =>
      ropeOf(config, parameters.object("rope_parameters").object(type), { headDim, theta: 1e6 });
    const attention = {
      ...base.attention,
      biases: attentionBias(config),
      ...(config.boolean("use_attention_gate", true) ? { gate: "heads" as const } : {}),
    };
    const window = types.includes("sliding_attention") ? config.size("sliding_window", 256) : 0;
    const convolution = readConvolution(config, base.hidden, 7);
    return mixed(
      {
        ...base,
        norms: { ...norms, ...(sandwich ? { afterMixer: "post_operator_norm", afterMlp: "post_ffn_norm" } : {}) },
        ropes: { full_attention: rope("full_attention"), sliding_attention: rope("sliding_attention") },
      },
      (i) => {
        const type = types[i]!;
        if (type === "conv") return convolution;
        return new Attention({ ...attention, rope: type, window: type === "sliding_attention" ? window : 0 });
      },
    );
  },
};
