/**
 * The architectures of GGUF files: their class names in transformers, and how their metadata and tensors differ from Llama's.
 */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import type { JsonObject } from "../json.ts";
import type { OpenTensors } from "../tensor-source.ts";
import type { ConfigFacts } from "./config-facts.ts";
import { expertParts, sharedParts, withSharedGate } from "./expert-parts.ts";
import { assistantConfig, assistantNames, assistantText, gemma4Config, gemma4Names } from "./gemma4.ts";
import { graniteHybridConfig, mambaNames, sharedMlpNames, withMamba } from "./mamba.ts";
import type { GgufMetadata } from "./metadata.ts";
import { lfm2Config, lfm2Names, qwen35Config, qwen35Names, withDeltaHeads, withTaps } from "./recurrent.ts";
import type { GgufTensors } from "./tensors.ts";

/** How GGUF files of one architecture differ from Llama's. */
export interface GgufArchitecture {
  /** Class name in transformers. */
  readonly name: string;
  /** Class name in transformers, where it depends on metadata. */
  nameOf?(metadata: GgufMetadata): string;
  /** Whether query and key rows are stored for RoPE on adjacent pairs (2i, 2i + 1) rather than on halves (i, i + half). */
  readonly interleaved: boolean;
  /** Number that the converter added to the norms' weights. */
  readonly normOffset: number;
  /** Names of tensors that differ from Llama's. */
  readonly names: Readonly<Record<string, string>>;
  /** Modules whose matrix is stored as two tensors, one for each half of its rows. */
  readonly halves?: Readonly<Record<string, readonly [string, string]>>;
  /** Whether RoPE may rotate only a part of each head. */
  readonly partialRotary?: boolean;
  /** Whether layers have a mixture of experts. */
  readonly hasExperts?: boolean;
  /** Whether sizes of heads, windows and MLPs may differ by layer. */
  readonly hasOwnSizes?: boolean;
  /** Whether files may have RoPE frequency factors as tensors. */
  readonly ropeTensors?: boolean;
  /** Whether only some layers have attention; per-layer sizes are 0 for the others. */
  readonly isHybrid?: boolean;
  /** Adapts tensors whose stored values differ from those of transformers. */
  readonly tensors?: (tensors: OpenTensors, metadata: GgufMetadata) => OpenTensors;
  config(facts: ConfigFacts): JsonObject;
  /** The config of the whole, where what files say is of its text half. */
  readonly wholeConfig?: (text: JsonObject, metadata: GgufMetadata, tensors: GgufTensors) => JsonObject;
}

/** RoPE base (theta) where a file has none. */
export const LOCAL_THETA = 10000;
const WINDOW = "{arch}.attention.sliding_window";
const PATTERN = "{arch}.attention.sliding_window_pattern";
const LOCAL_BASE = "{arch}.rope.freq_base_swa";
/** The sliding window as a config field; null for none. */
const window = ({ metadata }: ConfigFacts) => ({ sliding_window: windowOf(metadata) });
/** Size of the sliding window; null where metadata says 0, no window. */
const windowOf = (metadata: GgufMetadata) => (metadata.number(WINDOW) === 0 ? null : metadata.size(WINDOW));
const hasBias = ({ tensors }: ConfigFacts, module: string) => tensors.has(`blk.0.${module}.bias`);

/**
 * Scale of Gemma's attention scores. The 27B model, recognized by its number of layers, has a scale of its own; the others use
 * the head size.
 */
function gemmaScale({ metadata, layers, headDim }: ConfigFacts, largest: number): JsonObject {
  const hidden = metadata.size("{arch}.embedding_length")!;
  const heads = metadata.sameSize("{arch}.attention.head_count")!;
  return {
    query_pre_attn_scalar: layers === largest ? hidden / heads : headDim,
    hidden_activation: "gelu_pytorch_tanh",
  };
}

/** Layers with a sliding window: as a list in metadata says, or else all but every `period`-th. */
function windowedLayers({ metadata, layers }: ConfigFacts, period: number): JsonObject {
  if (!metadata.isList(PATTERN)) return { sliding_window_pattern: metadata.size(PATTERN) ?? period };
  const flags = metadata.flags(PATTERN);
  if (flags.length < layers)
    throw new InvalidFileError(
      metadata.file,
      `metadata ${metadata.fullKey(PATTERN)}: expected an entry for each of ${layers} layers but found ${flags.length}`,
    );
  return { layer_types: flags.slice(0, layers).map((flag) => (flag ? "sliding_attention" : "full_attention")) };
}

/** Gemma 2: layers alternate, beginning with one that has a window. */
function gemma2Layers(facts: ConfigFacts): JsonObject {
  const { metadata, layers } = facts;
  const theta = metadata.positive("{arch}.rope.freq_base") ?? LOCAL_THETA;
  if ((metadata.positive(LOCAL_BASE) ?? theta) !== theta)
    throw new UnsupportedError(`${metadata.file}: ${metadata.fullKey(LOCAL_BASE)} other than that of all layers`);
  if (metadata.isList(PATTERN)) return windowedLayers(facts, 2);
  const period = metadata.size(PATTERN) ?? 2;
  return {
    layer_types: Array.from({ length: layers }, (_, i) =>
      (i + 1) % period === 0 ? "full_attention" : "sliding_attention",
    ),
  };
}

/** Gemma 3: without a window, all layers have full attention. */
function gemma3Layers(facts: ConfigFacts): JsonObject {
  if (windowOf(facts.metadata) !== null) return windowedLayers(facts, 6);
  return { layer_types: Array.from({ length: facts.layers }, () => "full_attention") };
}

/** OLMo 2, or Olmo 3 where there is a window: its windowed layers use RoPE without scaling. */
function olmoConfig(facts: ConfigFacts): JsonObject {
  const { metadata } = facts;
  if (windowOf(metadata) === null) return {};
  const theta = metadata.positive("{arch}.rope.freq_base") ?? LOCAL_THETA;
  const { layer_types = null } = windowedLayers(facts, 4);
  return { ...window(facts), layer_types, rope_parameters: { sliding_attention: { rope_theta: theta } } };
}

/** EXAONE 4: where some layers have a window, those without one have no RoPE; llama.cpp assumes every fourth. */
function exaoneConfig(facts: ConfigFacts): JsonObject {
  if (windowOf(facts.metadata) === null) return { sliding_window: null };
  return { ...window(facts), ...windowedLayers(facts, 4) };
}

const SHARED = "{arch}.expert_shared_feed_forward_length";

/** Mixture of experts without a shared expert. */
function experts(facts: ConfigFacts): JsonObject {
  const shared = facts.metadata.number(SHARED) ?? 0;
  if (shared > 0)
    throw new UnsupportedError(
      `${facts.metadata.file}: metadata ${facts.metadata.fullKey(SHARED)} ${shared} is not supported`,
    );
  return routedExperts(facts);
}

/** Number of experts of a layer and of a token. Their size is that of the MLP unless metadata has another. */
function routedExperts({ metadata }: ConfigFacts): JsonObject {
  const size = metadata.size("{arch}.expert_feed_forward_length") ?? metadata.size("{arch}.feed_forward_length");
  return {
    num_experts: metadata.size("{arch}.expert_count"),
    num_experts_per_tok: metadata.size("{arch}.expert_used_count"),
    ...(size !== null && { moe_intermediate_size: size, intermediate_size: size }),
  };
}

/** LFM2 with experts after its first layers, gated by a sigmoid, which llama.cpp encodes as a number. */
function lfm2MoeConfig(facts: ConfigFacts): JsonObject {
  const { metadata, tensors } = facts;
  const gating = metadata.number("{arch}.expert_gating_func");
  if (gating !== SIGMOID)
    throw new UnsupportedError(
      `${metadata.file}: metadata ${metadata.fullKey("{arch}.expert_gating_func")} ${gating} is not supported, only ${SIGMOID}, sigmoid`,
    );
  const { intermediate_size: _, ...routed } = experts(facts);
  return {
    ...lfm2Config(facts),
    ...routed,
    num_dense_layers: metadata.number("{arch}.leading_dense_block_count") ?? 0,
    use_expert_bias: tensors.names.some((name) => /^blk\.\d+\.exp_probs_b\.bias$/.test(name)),
  };
}

/** Ministral 3: YaRN without its factor on attention scores, and queries scaled up with their position. */
function ministralConfig({ metadata }: ConfigFacts): JsonObject {
  const multiplier = metadata.number("{arch}.rope.scaling.yarn_log_multiplier") ?? 1;
  const length = metadata.size("{arch}.rope.scaling.original_context_length");
  const grown = metadata.size("{arch}.attention.temperature_length") ?? length;
  if (multiplier !== 1 || grown !== length)
    throw new UnsupportedError(
      `${metadata.file}: metadata ${metadata.fullKey("{arch}.rope.scaling.yarn_log_multiplier")} other than 1, or ${metadata.fullKey("{arch}.attention.temperature_length")} other than the original context, is not supported`,
    );
  return {
    rope_scaling: {
      rope_type: metadata.string("{arch}.rope.scaling.type") === "yarn" ? "yarn" : "default",
      factor: metadata.positive("{arch}.rope.scaling.factor") ?? 1,
      ...(length !== null && { original_max_position_embeddings: length }),
      beta_fast: metadata.positive("{arch}.rope.scaling.yarn_beta_fast") ?? 32,
      beta_slow: metadata.positive("{arch}.rope.scaling.yarn_beta_slow") ?? 1,
      attention_factor: 1,
      llama_4_scaling_beta: metadata.number("{arch}.attention.temperature_scale") ?? 0,
    },
  };
}

/** BitNet: ternary weights stored as floats; separate scale tensors are not supported. */
function bitnetConfig({ metadata, tensors }: ConfigFacts): JsonObject {
  const scale = tensors.names.find((name) => /^blk\.\d+\.\w+\.scale$/.test(name));
  if (scale !== undefined)
    throw new UnsupportedError(
      `${metadata.file}: tensor ${scale} is not supported, only weights that hold their scale`,
    );
  return { hidden_act: metadata.string("{arch}.hidden_activation") ?? "silu", attention_bias: false };
}

/** Granite's multipliers, 1 where a file has none. */
function graniteScales({ metadata, headDim }: ConfigFacts): JsonObject {
  return {
    attention_multiplier: metadata.positive("{arch}.attention.scale") ?? headDim ** -0.5,
    embedding_multiplier: metadata.positive("{arch}.embedding_scale") ?? 1,
    residual_multiplier: metadata.positive("{arch}.residual_scale") ?? 1,
    logits_scaling: metadata.positive("{arch}.logit_scale") ?? 1,
  };
}

/** llama.cpp's number for sigmoid gating of experts. */
const SIGMOID = 2;

const plain = { interleaved: false, normOffset: 0, names: {} } as const;
/** Norms only after attention and MLP, not before. */
const postNorms = {
  post_attention_norm: "post_attention_layernorm",
  post_ffw_norm: "post_feedforward_layernorm",
};
const sandwich = {
  attn_norm: "input_layernorm",
  post_attention_norm: "post_attention_layernorm",
  ffn_norm: "pre_feedforward_layernorm",
  post_ffw_norm: "post_feedforward_layernorm",
};

const gemma4Assistant: GgufArchitecture = {
  ...{ ...plain, name: "Gemma4AssistantForCausalLM", hasOwnSizes: true, ropeTensors: true },
  names: { ...sandwich, ...assistantNames },
  ...{ config: assistantText, wholeConfig: assistantConfig },
};

export const ggufArchitectures: Readonly<Record<string, GgufArchitecture>> = {
  llama: {
    ...plain,
    name: "LlamaForCausalLM",
    interleaved: true,
    ropeTensors: true,
    config: (facts) => ({ attention_bias: hasBias(facts, "attn_q"), mlp_bias: hasBias(facts, "ffn_gate") }),
  },
  qwen2: { ...plain, name: "Qwen2ForCausalLM", config: () => ({ use_sliding_window: false }) },
  qwen3: {
    ...plain,
    name: "Qwen3ForCausalLM",
    config: (facts) => ({ use_sliding_window: false, attention_bias: hasBias(facts, "attn_q") }),
  },
  // llama.cpp computes expert weights from scores in a fixed way and reads none of the config's fields for it.
  qwen3moe: {
    ...plain,
    name: "Qwen3MoeForCausalLM",
    hasExperts: true,
    config: (facts) => ({ ...experts(facts), norm_topk_prob: true, attention_bias: hasBias(facts, "attn_q") }),
  },
  olmoe: {
    ...plain,
    name: "OlmoeForCausalLM",
    hasExperts: true,
    config: (facts) => ({
      ...experts(facts),
      norm_topk_prob: false,
      clip_qkv: facts.metadata.positive("{arch}.attention.clamp_kqv"),
    }),
  },
  granitemoe: {
    ...plain,
    name: "GraniteMoeForCausalLM",
    interleaved: true,
    hasExperts: true,
    names: expertParts("block_sparse_moe", "router.layer"),
    config: (facts) => ({ ...experts(facts), ...graniteScales(facts) }),
  },
  "gpt-oss": {
    ...plain,
    name: "GptOssForCausalLM",
    hasExperts: true,
    names: {
      ...expertParts("mlp", "router"),
      post_attention_norm: "post_attention_layernorm",
      "attn_sinks.weight": "self_attn.sinks",
    },
    config: (facts) => ({ ...experts(facts), ...window(facts), attention_bias: hasBias(facts, "attn_q") }),
  },
  gemma: { ...plain, name: "GemmaForCausalLM", normOffset: 1, config: () => ({}) },
  gemma2: {
    ...plain,
    name: "Gemma2ForCausalLM",
    normOffset: 1,
    names: sandwich,
    config: (facts) => ({
      ...gemmaScale(facts, 46),
      ...gemma2Layers(facts),
      sliding_window: windowOf(facts.metadata) ?? 4096,
      attn_logit_softcapping: facts.metadata.number("{arch}.attn_logit_softcapping") ?? 50,
      final_logit_softcapping: facts.metadata.number("{arch}.final_logit_softcapping") ?? 30,
    }),
  },
  gemma3: {
    ...plain,
    name: "Gemma3ForCausalLM",
    normOffset: 1,
    names: sandwich,
    config: (facts) => ({
      ...gemmaScale(facts, 62),
      ...window(facts),
      ...gemma3Layers(facts),
      rope_local_base_freq: facts.metadata.positive(LOCAL_BASE) ?? LOCAL_THETA,
      final_logit_softcapping: facts.metadata.number("{arch}.final_logit_softcapping"),
    }),
  },
  gemma4: {
    ...plain,
    name: "Gemma4ForCausalLM",
    names: { ...sandwich, ...gemma4Names },
    hasExperts: true,
    hasOwnSizes: true,
    ropeTensors: true,
    config: gemma4Config,
  },
  "gemma4-assistant": gemma4Assistant,
  gemma4_assistant: gemma4Assistant,
  gemma4_mtp: gemma4Assistant,
  phi3: {
    ...plain,
    name: "Phi3ForCausalLM",
    partialRotary: true,
    ropeTensors: true,
    names: { ffn_up: "mlp.gate_up_proj" },
    config: (facts) => ({
      ...window(facts),
      original_max_position_embeddings: facts.metadata.size("{arch}.rope.scaling.original_context_length") ?? 4096,
    }),
  },
  granite: {
    ...plain,
    name: "GraniteForCausalLM",
    interleaved: true,
    config: (facts) => ({
      ...graniteScales(facts),
      attention_bias: hasBias(facts, "attn_q"),
      mlp_bias: hasBias(facts, "ffn_gate"),
    }),
  },
  granitehybrid: {
    ...plain,
    name: "GraniteMoeHybridForCausalLM",
    interleaved: true,
    isHybrid: true,
    names: { ...mambaNames, ...sharedMlpNames("") },
    halves: { "shared_mlp.input_linear": ["ffn_gate", "ffn_up"] },
    tensors: withMamba,
    config: (facts) => ({ ...graniteHybridConfig(facts), ...graniteScales(facts) }),
  },
  bitnet: {
    ...plain,
    name: "BitNetForCausalLM",
    names: { attn_sub_norm: "self_attn.attn_sub_norm", ffn_sub_norm: "mlp.ffn_sub_norm" },
    config: bitnetConfig,
  },
  smollm3: {
    ...plain,
    name: "SmolLM3ForCausalLM",
    interleaved: true,
    ropeTensors: true,
    config: (facts) => ({
      no_rope_layer_interval: 4,
      use_sliding_window: false,
      attention_bias: hasBias(facts, "attn_q"),
      mlp_bias: hasBias(facts, "ffn_gate"),
    }),
  },
  olmo2: {
    ...plain,
    name: "Olmo2ForCausalLM",
    nameOf: (metadata) => (windowOf(metadata) === null ? "Olmo2ForCausalLM" : "Olmo3ForCausalLM"),
    names: postNorms,
    config: olmoConfig,
  },
  ernie4_5: {
    ...plain,
    name: "Ernie4_5ForCausalLM",
    config: (facts) => ({ use_bias: hasBias(facts, "attn_q") }),
  },
  "hunyuan-dense": {
    ...plain,
    name: "HunYuanDenseV1ForCausalLM",
    names: { attn_q_norm: "self_attn.query_layernorm", attn_k_norm: "self_attn.key_layernorm" },
    config: (facts) => ({ attention_bias: hasBias(facts, "attn_q") }),
  },
  exaone4: {
    ...plain,
    name: "Exaone4ForCausalLM",
    names: postNorms,
    ropeTensors: true,
    config: exaoneConfig,
  },
  glm4: {
    ...plain,
    name: "Glm4ForCausalLM",
    partialRotary: true,
    names: {
      post_attention_norm: "post_self_attn_layernorm",
      ffn_up: "mlp.gate_up_proj",
      post_ffw_norm: "post_mlp_layernorm",
    },
    config: (facts) => ({ attention_bias: hasBias(facts, "attn_q") }),
  },
  mistral3: { ...plain, name: "Ministral3ForCausalLM", interleaved: true, config: ministralConfig },
  lfm2: {
    ...plain,
    name: "Lfm2ForCausalLM",
    names: lfm2Names,
    isHybrid: true,
    tensors: withTaps,
    config: lfm2Config,
  },
  lfm2moe: {
    ...plain,
    name: "Lfm2MoeForCausalLM",
    names: {
      ...lfm2Names,
      ...expertParts("feed_forward"),
      "exp_probs_b.bias": "feed_forward.expert_bias",
    },
    isHybrid: true,
    hasExperts: true,
    tensors: withTaps,
    config: lfm2MoeConfig,
  },
  qwen35: {
    ...plain,
    name: "Qwen3_5ForCausalLM",
    names: qwen35Names,
    normOffset: 1,
    isHybrid: true,
    partialRotary: true,
    tensors: withDeltaHeads,
    config: (facts) => ({ ...qwen35Config(facts), attention_bias: hasBias(facts, "attn_k") }),
  },
  qwen35moe: {
    ...plain,
    name: "Qwen3_5MoeForCausalLM",
    names: { ...qwen35Names, ...expertParts("mlp"), ...sharedParts("mlp.shared_expert") },
    normOffset: 1,
    isHybrid: true,
    hasExperts: true,
    partialRotary: true,
    tensors: (tensors, metadata) => withSharedGate(withDeltaHeads(tensors, metadata)),
    config: (facts) => ({
      ...qwen35Config(facts),
      ...routedExperts(facts),
      shared_expert_intermediate_size: facts.metadata.size(SHARED) ?? facts.metadata.size("{arch}.feed_forward_length"),
      attention_bias: hasBias(facts, "attn_k"),
    }),
  },
};

/** Mixtral: files of Llama's architecture with experts. */
const mixtral: GgufArchitecture = {
  ...plain,
  name: "MixtralForCausalLM",
  interleaved: true,
  hasExperts: true,
  names: expertParts("block_sparse_moe"),
  config: experts,
};

/** Granite hybrids with experts, and a shared MLP beside them. */
const graniteHybridExperts: GgufArchitecture = {
  ...ggufArchitectures.granitehybrid!,
  hasExperts: true,
  names: { ...mambaNames, ...sharedMlpNames("_shexp"), ...expertParts("block_sparse_moe", "router.layer") },
  halves: { "shared_mlp.input_linear": ["ffn_gate_shexp", "ffn_up_shexp"] },
  config: (facts) => ({ ...routedExperts(facts), ...graniteHybridConfig(facts), ...graniteScales(facts) }),
};

/** GGUF's architecture for a class of transformers, by its key; null for a class without one. */
export function ggufArchitectureOf(
  className: string,
  hasExperts = false,
): { readonly key: string; readonly files: GgufArchitecture } | null {
  if (className === mixtral.name) return { key: "llama", files: mixtral };
  if (className === graniteHybridExperts.name && hasExperts)
    return { key: "granitehybrid", files: graniteHybridExperts };
  const named = className === "MistralForCausalLM" ? "LlamaForCausalLM" : className;
  const [key] = Object.entries(ggufArchitectures).find(([, { name }]) => name === named) ?? [];
  return key === undefined ? null : { key, files: ggufArchitectures[key]! };
}

/** The architecture of a file. UnsupportedError lists the supported ones. */
export function architectureOf(metadata: GgufMetadata): GgufArchitecture {
  const { file, architecture } = metadata;
  const found = Object.hasOwn(ggufArchitectures, architecture) ? ggufArchitectures[architecture] : undefined;
  const hasExperts = (metadata.number("{arch}.expert_count") ?? 0) > 0;
  if (found === ggufArchitectures.llama && hasExperts) return mixtral;
  if (found === ggufArchitectures.granitehybrid && hasExperts) return graniteHybridExperts;
  if (found) return found;
  const known = Object.keys(ggufArchitectures).join(", ");
  throw new UnsupportedError(`${file}: GGUF architecture "${architecture}" is not supported, only ${known}`);
}
