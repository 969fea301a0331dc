/**
 * A GGUF file's metadata as the config.json of the model that it was made from, as far as a decoder needs it. What files
 * do not say is what llama.cpp assumes.
 */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import type { JsonObject } from "../json.ts";
import type { OpenTensors } from "../tensor-source.ts";
import { expertParts } from "./expert-parts.ts";
import type { GgufMetadata } from "./metadata.ts";
import {
  attentionSize,
  lfm2Config,
  lfm2Names,
  qwen35Config,
  qwen35Names,
  withDeltaHeads,
  withTaps,
} from "./recurrent.ts";
import { type RopeFacts, ropeScaling } from "./rope.ts";
import type { GgufTensors } from "./tensors.ts";

/** What differs from Llama in files of one architecture. */
export interface GgufArchitecture {
  /** Class name of transformers. */
  readonly name: string;
  /** Class name where files say it by something else. */
  nameOf?(metadata: GgufMetadata): string;
  /** Whether rows of queries and keys are stored for rotation of neighbours instead of halves. */
  readonly interleaved: boolean;
  /** Added to the weights of norms when the file was made. */
  readonly normOffset: number;
  /** Names of tensors that differ from Llama's. */
  readonly names: Readonly<Record<string, string>>;
  /** Whether heads may be rotated in part. */
  readonly partialRotary?: boolean;
  /** Whether files have a mixture of experts in layers. */
  readonly hasExperts?: boolean;
  /** Whether files may hold factors of frequencies as tensors. */
  readonly ropeTensors?: boolean;
  /** Whether only some layers have attention: others have 0 where files say a size for each layer. */
  readonly isHybrid?: boolean;
  /** What tensors stand for, where that is not what they are under their names. */
  readonly tensors?: (tensors: OpenTensors, metadata: GgufMetadata) => OpenTensors;
  config(facts: Facts): JsonObject;
}

interface Facts {
  readonly metadata: GgufMetadata;
  readonly tensors: GgufTensors;
  readonly layers: number;
  readonly headDim: number;
}

const LOCAL_THETA = 10000;
const EPS = "{arch}.attention.layer_norm_rms_epsilon";
const WINDOW = "{arch}.attention.sliding_window";
const PATTERN = "{arch}.attention.sliding_window_pattern";
const LOCAL_BASE = "{arch}.rope.freq_base_swa";
/** Far beyond any model; keeps products of dimensions exact. */
const SIZE_MAX = 1 << 30;
/** What llama.cpp has room for. */
const LAYERS_MAX = 512;
const HEADS_MAX = 1 << 16;
const HEAD_MAX = 1 << 16;

/** The window under the name that configs give it; null is none. */
const window = ({ metadata }: Facts) => ({ sliding_window: windowOf(metadata) });
/** 0 is none. */
const windowOf = (metadata: GgufMetadata) => (metadata.number(WINDOW) === 0 ? null : metadata.size(WINDOW));
const hasBias = ({ tensors }: Facts, module: string) => tensors.has(`blk.0.${module}.bias`);

/** Models of 27 billion parameters are told by their layers; the others scale scores by the head's size. */
function gemmaScale({ metadata, layers, headDim }: Facts, largest: number): JsonObject {
  const hidden = metadata.size("{arch}.embedding_length")!;
  const heads = metadata.sameSize("{arch}.attention.head_count")!;
  return {
    query_pre_attn_scalar: layers === largest ? hidden / heads : headDim,
    hidden_activation: "gelu_pytorch_tanh",
  };
}

/** Which layers have a window: of a list as it says, else all but each last of `period`. */
function windowedLayers({ metadata, layers }: Facts, period: number): JsonObject {
  if (!metadata.isList(PATTERN)) return { sliding_window_pattern: metadata.size(PATTERN) ?? period };
  const flags = metadata.flags(PATTERN);
  if (flags.length < layers)
    throw new InvalidFileError(
      metadata.file,
      `metadata ${metadata.fullKey(PATTERN)}: expected an entry for each of ${layers} layers but found ${flags.length}`,
    );
  return { layer_types: flags.slice(0, layers).map((flag) => (flag ? "sliding_attention" : "full_attention")) };
}

/** Layers in turn, of which the first has a window. */
function gemma2Layers(facts: Facts): JsonObject {
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

/** Without a window, all layers are alike. */
function gemma3Layers(facts: Facts): JsonObject {
  if (windowOf(facts.metadata) !== null) return windowedLayers(facts, 6);
  return { layer_types: Array.from({ length: facts.layers }, () => "full_attention") };
}

/** OLMo 2, and Olmo 3 where there is a window: windowed layers then have the rope without its scaling. */
function olmoConfig(facts: Facts): JsonObject {
  const { metadata } = facts;
  if (windowOf(metadata) === null) return {};
  const theta = metadata.positive("{arch}.rope.freq_base") ?? LOCAL_THETA;
  const { layer_types = null } = windowedLayers(facts, 4);
  return { ...window(facts), layer_types, rope_parameters: { sliding_attention: { rope_theta: theta } } };
}

/** Layers without a window have no rope where others have one, as llama.cpp assumes of four layers in turn. */
function exaoneConfig(facts: Facts): JsonObject {
  if (windowOf(facts.metadata) === null) return { sliding_window: null };
  return { ...window(facts), ...windowedLayers(facts, 4) };
}

/** Experts of a layer, and of a token; their size is that of the MLP where nothing else says it. */
function experts({ metadata }: Facts): JsonObject {
  const size = metadata.size("{arch}.expert_feed_forward_length") ?? metadata.size("{arch}.feed_forward_length");
  const shared = metadata.number("{arch}.expert_shared_feed_forward_length") ?? 0;
  if (shared > 0)
    throw new UnsupportedError(
      `${metadata.file}: metadata ${metadata.fullKey("{arch}.expert_shared_feed_forward_length")} ${shared} is not supported`,
    );
  return {
    num_experts: metadata.size("{arch}.expert_count"),
    num_experts_per_tok: metadata.size("{arch}.expert_used_count"),
    ...(size !== null && { moe_intermediate_size: size, intermediate_size: size }),
  };
}

/** Factors of Granite, 1 where a file says none. */
function graniteScales({ metadata, headDim }: Facts): JsonObject {
  return {
    attention_multiplier: metadata.positive("{arch}.attention.scale") ?? headDim ** -0.5,
    embedding_multiplier: metadata.positive("{arch}.embedding_scale") ?? 1,
    residual_multiplier: metadata.positive("{arch}.residual_scale") ?? 1,
    logits_scaling: metadata.positive("{arch}.logit_scale") ?? 1,
  };
}

const plain = { interleaved: false, normOffset: 0, names: {} } as const;
/** Norms behind attention and MLP alone. */
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
  // Weights of experts are what llama.cpp makes of scores: it reads none of the configs' fields for that.
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
  lfm2: {
    ...plain,
    name: "Lfm2ForCausalLM",
    names: lfm2Names,
    isHybrid: true,
    tensors: withTaps,
    config: lfm2Config,
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
};

/** Llama with experts. */
const mixtral: GgufArchitecture = {
  ...plain,
  name: "MixtralForCausalLM",
  interleaved: true,
  hasExperts: true,
  names: expertParts("block_sparse_moe"),
  config: experts,
};

/** What files call the models of a class, and what differs in them; null for a class without files. */
export function ggufArchitectureOf(
  className: string,
): { readonly key: string; readonly files: GgufArchitecture } | null {
  if (className === mixtral.name) return { key: "llama", files: mixtral };
  const named = className === "MistralForCausalLM" ? "LlamaForCausalLM" : className;
  const [key] = Object.entries(ggufArchitectures).find(([, { name }]) => name === named) ?? [];
  return key === undefined ? null : { key, files: ggufArchitectures[key]! };
}

/** The architecture of a file; UnsupportedError lists those that are. */
export function architectureOf(metadata: GgufMetadata): GgufArchitecture {
  const { file, architecture } = metadata;
  const found = Object.hasOwn(ggufArchitectures, architecture) ? ggufArchitectures[architecture] : undefined;
  if (found === ggufArchitectures.llama && (metadata.number("{arch}.expert_count") ?? 0) > 0) return mixtral;
  if (found) return found;
  const known = Object.keys(ggufArchitectures).join(", ");
  throw new UnsupportedError(`${file}: GGUF architecture "${architecture}" is not supported, only ${known}`);
}

/** Rows of the embedding, of which each piece of the tokenizer needs one. */
function vocabularySize(metadata: GgufMetadata, tensors: GgufTensors): number {
  const rows = tensors.info("token_embd.weight").shape[0] ?? 0;
  const pieces = metadata.strings("tokenizer.ggml.tokens")?.length ?? 0;
  if (pieces > rows)
    throw new InvalidFileError(
      metadata.file,
      `metadata tokenizer.ggml.tokens: expected at most ${rows} tokens, the rows of token_embd.weight, but found ${pieces}`,
    );
  return rows;
}

/** UnsupportedError for what files may say and no decoder here does. */
function checkServed(metadata: GgufMetadata, tensors: GgufTensors): void {
  const { hasExperts = false } = architectureOf(metadata);
  const experts = metadata.number("{arch}.expert_count") ?? 0;
  const found = tensors.names.find((name) =>
    /^blk\.\d+\.ffn_(gate_inp|(gate|up|down)_exps|(gate|up|down)\.\d+)\./.test(name),
  );
  if (!hasExperts && (experts > 0 || found))
    throw new UnsupportedError(
      `${metadata.file}: mixtures of experts of "${metadata.architecture}" are not supported (${experts > 0 ? `${metadata.fullKey("{arch}.expert_count")} ${experts}` : `tensor ${found}`})`,
    );
  if (metadata.boolean("{arch}.attention.causal") === false)
    throw new UnsupportedError(
      `${metadata.file}: attention in both directions is not supported, only causal attention`,
    );
}

/** Layers, which are no more than those that the file has tensors of. */
function layerCount(metadata: GgufMetadata, tensors: GgufTensors): number {
  const key = "{arch}.block_count";
  const count = metadata.size(key, LAYERS_MAX);
  const last = tensors.names.reduce((most, name) => Math.max(most, Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1)), -1);
  if (count === null || count > last + 1)
    throw new InvalidFileError(
      metadata.file,
      `metadata ${metadata.fullKey(key)}: expected ${last + 1}, the layers of its tensors, but found ${count ?? "none"}`,
    );
  return count;
}

/** The size of heads; UnsupportedError for sizes of some that differ, and for rotation of a part that is not served. */
function readHeads(metadata: GgufMetadata, { partialRotary = false }: GgufArchitecture, headDim: number): number {
  for (const part of ["attention.value_length", "attention.key_length_swa", "attention.value_length_swa"])
    if ((metadata.size(`{arch}.${part}`) ?? headDim) !== headDim)
      throw new UnsupportedError(
        `${metadata.file}: metadata ${metadata.fullKey(`{arch}.${part}`)} other than ${headDim}, the size of keys, is not supported`,
      );
  const [rotated = headDim, other = rotated] = ["dimension_count", "dimension_count_swa"].map(
    (name) => metadata.size(`{arch}.rope.${name}`) ?? undefined,
  );
  if ((rotated !== headDim && !partialRotary) || rotated > headDim || other !== rotated)
    throw new UnsupportedError(
      `${metadata.file}: metadata ${metadata.fullKey("{arch}.rope.dimension_count")} ${other === rotated ? rotated : `${rotated} and ${other}`} is not supported, only ${headDim}, the size of a head`,
    );
  return rotated;
}

/** The config; reads the few tensors that hold rope factors. */
export async function ggufConfig(metadata: GgufMetadata, tensors: GgufTensors): Promise<JsonObject> {
  const { file } = metadata;
  checkServed(metadata, tensors);
  const architecture = architectureOf(metadata);
  const required = (key: string, value: number | null): number => {
    if (value === null) throw new InvalidFileError(file, `expected metadata ${metadata.fullKey(key)}`);
    return value;
  };
  const sizeOf = architecture.isHybrid
    ? attentionSize
    : (_: GgufMetadata, key: string, most?: number) => metadata.sameSize(key, most);
  const size = (key: string, most = SIZE_MAX) => required(key, sizeOf(metadata, key, most));
  const vocabulary = vocabularySize(metadata, tensors);
  const heads = size("{arch}.attention.head_count", HEADS_MAX);
  const hidden = size("{arch}.embedding_length");
  const headDim = metadata.size("{arch}.attention.key_length", HEAD_MAX) ?? Math.floor(hidden / heads);
  if (headDim < 1 || headDim > HEAD_MAX)
    throw new InvalidFileError(
      file,
      `metadata ${metadata.fullKey("{arch}.attention.head_count")}: ${heads} heads of embeddings of ${hidden} have ${headDim} values`,
    );
  const facts: Facts = { metadata, tensors, headDim, layers: layerCount(metadata, tensors) };
  const contextLength = size("{arch}.context_length");
  const rotated = readHeads(metadata, architecture, headDim);
  return {
    architectures: [architecture.nameOf?.(metadata) ?? architecture.name],
    hidden_size: hidden,
    intermediate_size: size("{arch}.feed_forward_length"),
    num_hidden_layers: facts.layers,
    num_attention_heads: heads,
    num_key_value_heads: sizeOf(metadata, "{arch}.attention.head_count_kv", HEADS_MAX) ?? heads,
    head_dim: headDim,
    vocab_size: vocabulary,
    max_position_embeddings: contextLength,
    rms_norm_eps: required(EPS, metadata.positive(EPS)),
    tie_word_embeddings: !tensors.has("output.weight"),
    rope_theta: metadata.positive("{arch}.rope.freq_base") ?? LOCAL_THETA,
    partial_rotary_factor: rotated / headDim,
    rope_scaling: await scalingOf(architecture, { metadata, tensors, dimensions: rotated, contextLength }),
    ...architecture.config(facts),
  };
}

/** UnsupportedError for a scaling that the architecture has no place for. */
async function scalingOf({ name, ropeTensors = false }: GgufArchitecture, facts: RopeFacts) {
  const held = facts.tensors.names.find((tensor) => /^rope_(freqs|factors_(short|long))\./.test(tensor));
  if (held && !ropeTensors)
    throw new UnsupportedError(`${facts.metadata.file}: tensor ${held} is not supported in models of ${name}`);
  const scaling = await ropeScaling(facts);
  if (name === "Gemma3ForCausalLM" && scaling !== null && scaling.rope_type !== "linear")
    throw new UnsupportedError(`${facts.metadata.file}: rope scaling of Gemma 3 is not supported but linear`);
  return scaling;
}
