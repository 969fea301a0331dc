/**
 * A GGUF file's metadata as the config.json of the model that it was made from, as far as a decoder needs it. What files
 * do not say is what llama.cpp assumes.
 */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import type { Tensor } from "../../tensor.ts";
import type { JsonObject } from "../json.ts";
import type { GgufMetadata } from "./metadata.ts";
import type { GgufTensors } from "./tensors.ts";

/** What differs from Llama in files of one architecture. */
interface GgufArchitecture {
  /** Class name of transformers. */
  readonly name: string;
  /** Whether rows of queries and keys are stored for rotation of neighbours instead of halves. */
  readonly interleaved: boolean;
  /** Added to the weights of norms when the file was made. */
  readonly normOffset: number;
  /** Names of tensors that differ from Llama's. */
  readonly names: Readonly<Record<string, string>>;
  config(facts: Facts): JsonObject;
}

interface Facts {
  readonly metadata: GgufMetadata;
  readonly tensors: GgufTensors;
  readonly layers: number;
  readonly headDim: number;
}

const LOCAL_THETA = 10000;

/** The window under the name that configs give it; null is none. */
const window = ({ metadata }: Facts) => ({ sliding_window: metadata.number("{arch}.attention.sliding_window") });
const hasBias = ({ tensors }: Facts, module: string) => tensors.has(`blk.0.${module}.bias`);

/** Models of 27 billion parameters are told by their layers; the others scale scores by the head's size. */
function gemmaScale({ metadata, layers, headDim }: Facts, largest: number): JsonObject {
  const hidden = metadata.number("{arch}.embedding_length")!;
  const heads = metadata.sameNumber("{arch}.attention.head_count")!;
  return {
    query_pre_attn_scalar: layers === largest ? hidden / heads : headDim,
    hidden_activation: "gelu_pytorch_tanh",
  };
}

const plain = { interleaved: false, normOffset: 0, names: {} } as const;
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
    config: (facts) => ({ attention_bias: hasBias(facts, "attn_q"), mlp_bias: hasBias(facts, "ffn_gate") }),
  },
  qwen2: { ...plain, name: "Qwen2ForCausalLM", config: () => ({ use_sliding_window: false }) },
  qwen3: {
    ...plain,
    name: "Qwen3ForCausalLM",
    config: (facts) => ({ use_sliding_window: false, attention_bias: hasBias(facts, "attn_q") }),
  },
  gemma: { ...plain, name: "GemmaForCausalLM", normOffset: 1, config: () => ({}) },
  gemma2: {
    ...plain,
    name: "Gemma2ForCausalLM",
    normOffset: 1,
    names: sandwich,
    config: (facts) => ({
      ...gemmaScale(facts, 46),
      sliding_window: facts.metadata.number("{arch}.attention.sliding_window") ?? 4096,
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
      sliding_window_pattern: facts.metadata.number("{arch}.attention.sliding_window_pattern") ?? 6,
      rope_local_base_freq: facts.metadata.number("{arch}.rope.freq_base_swa") ?? LOCAL_THETA,
      final_logit_softcapping: facts.metadata.number("{arch}.final_logit_softcapping"),
    }),
  },
  phi3: {
    ...plain,
    name: "Phi3ForCausalLM",
    names: { ffn_up: "mlp.gate_up_proj" },
    config: (facts) => ({
      ...window(facts),
      original_max_position_embeddings: facts.metadata.number("{arch}.rope.scaling.original_context_length") ?? 4096,
    }),
  },
};

/** The architecture of a file; UnsupportedError lists those that are. */
export function architectureOf({ file, architecture }: GgufMetadata): GgufArchitecture {
  const found = Object.hasOwn(ggufArchitectures, architecture) ? ggufArchitectures[architecture] : undefined;
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

/** The config; reads the few tensors that hold rope factors. */
export async function ggufConfig(metadata: GgufMetadata, tensors: GgufTensors): Promise<JsonObject> {
  const { file } = metadata;
  const architecture = architectureOf(metadata);
  const required = (key: string): number => {
    const value = metadata.sameNumber(key);
    if (value === null)
      throw new InvalidFileError(file, `expected metadata ${key.replace("{arch}", metadata.architecture)}`);
    return value;
  };
  const heads = required("{arch}.attention.head_count");
  const hidden = required("{arch}.embedding_length");
  const headDim = metadata.number("{arch}.attention.key_length") ?? Math.floor(hidden / heads);
  const facts: Facts = { metadata, tensors, headDim, layers: required("{arch}.block_count") };
  return {
    architectures: [architecture.name],
    hidden_size: hidden,
    intermediate_size: required("{arch}.feed_forward_length"),
    num_hidden_layers: facts.layers,
    num_attention_heads: heads,
    num_key_value_heads: metadata.sameNumber("{arch}.attention.head_count_kv") ?? heads,
    head_dim: headDim,
    vocab_size: vocabularySize(metadata, tensors),
    max_position_embeddings: required("{arch}.context_length"),
    rms_norm_eps: required("{arch}.attention.layer_norm_rms_epsilon"),
    tie_word_embeddings: !tensors.has("output.weight"),
    rope_theta: metadata.number("{arch}.rope.freq_base") ?? LOCAL_THETA,
    partial_rotary_factor: (metadata.number("{arch}.rope.dimension_count") ?? headDim) / headDim,
    rope_scaling: await ropeScaling(metadata, tensors),
    ...architecture.config(facts),
  };
}

/** Factors of frequencies that a file holds as tensors, else the scaling that its metadata names; null for none. */
async function ropeScaling(metadata: GgufMetadata, tensors: GgufTensors): Promise<JsonObject | null> {
  const factors = async (name: string) => {
    const tensor: Tensor = await tensors.read(name);
    return [...(tensor.data as Float32Array)];
  };
  const original = metadata.number("{arch}.rope.scaling.original_context_length");
  if (tensors.has("rope_factors_short.weight"))
    return {
      rope_type: "longrope",
      short_factor: await factors("rope_factors_short.weight"),
      long_factor: await factors("rope_factors_long.weight"),
      attention_factor: metadata.number("{arch}.rope.scaling.attn_factor"),
    };
  if (tensors.has("rope_freqs.weight")) {
    const divisors = await factors("rope_freqs.weight");
    return {
      rope_type: "longrope",
      short_factor: divisors,
      long_factor: divisors,
      attention_factor: 1,
      original_max_position_embeddings: metadata.number("{arch}.context_length"),
    };
  }
  const type = metadata.string("{arch}.rope.scaling.type") ?? "none";
  const factor = metadata.number("{arch}.rope.scaling.factor");
  if (type === "none" || factor === null) return null;
  if (type !== "linear" && type !== "yarn")
    throw new UnsupportedError(`${metadata.file}: rope scaling "${type}" is not supported, only none, linear, yarn`);
  return { rope_type: type, factor, ...(original === null ? {} : { original_max_position_embeddings: original }) };
}
