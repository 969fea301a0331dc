/**
 * Converts a GGUF file's metadata to the config.json of the original model, as far as a decoder needs it. Missing values get
 * llama.cpp's defaults.
 */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import type { JsonObject } from "../json.ts";
import { architectureOf, type GgufArchitecture, LOCAL_THETA } from "./architectures.ts";
import { firstSize } from "./gemma4.ts";
import type { GgufMetadata } from "./metadata.ts";
import { attentionSize } from "./recurrent.ts";
import { type RopeFacts, ropeScaling } from "./rope.ts";
import type { GgufTensors } from "./tensors.ts";

const EPS = "{arch}.attention.layer_norm_rms_epsilon";
/** Far beyond any model; products of dimensions stay exact. */
const SIZE_MAX = 1 << 30;
/** llama.cpp's limit of layers. */
const LAYERS_MAX = 512;
const HEADS_MAX = 1 << 16;
const HEAD_MAX = 1 << 16;

/** Vocabulary size: rows of the embedding, checked to be at least the number of the tokenizer's pieces. */
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

/** UnsupportedError for metadata that no decoder here supports. */
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

/** Number of layers, checked against the tensors. */
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

/** Checks the sizes of heads. UnsupportedError where they differ, or for unsupported partial rotation. */
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

/** Makes the config; reads the few tensors with RoPE factors. */
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
    : architecture.hasOwnSizes
      ? firstSize
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
  const layers = layerCount(metadata, tensors);
  const contextLength = size("{arch}.context_length");
  const rotated = architecture.hasOwnSizes ? headDim : readHeads(metadata, architecture, headDim);
  const scaling = await scalingOf(architecture, { metadata, tensors, dimensions: rotated, contextLength });
  return {
    architectures: [architecture.nameOf?.(metadata) ?? architecture.name],
    hidden_size: hidden,
    intermediate_size: size("{arch}.feed_forward_length"),
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: sizeOf(metadata, "{arch}.attention.head_count_kv", HEADS_MAX) ?? heads,
    head_dim: headDim,
    vocab_size: vocabulary,
    max_position_embeddings: contextLength,
    rms_norm_eps: required(EPS, metadata.positive(EPS)),
    tie_word_embeddings: !tensors.has("output.weight"),
    rope_theta: metadata.positive("{arch}.rope.freq_base") ?? LOCAL_THETA,
    partial_rotary_factor: rotated / headDim,
    rope_scaling: scaling,
    ...architecture.config({ metadata, tensors, headDim, layers, scaling }),
  };
}

/** RoPE scaling of a file. UnsupportedError where the architecture does not support it. */
async function scalingOf({ name, ropeTensors = false }: GgufArchitecture, facts: RopeFacts) {
  const held = facts.tensors.names.find((tensor) => /^rope_(freqs|factors_(short|long))\./.test(tensor));
  if (held && !ropeTensors)
    throw new UnsupportedError(`${facts.metadata.file}: tensor ${held} is not supported in models of ${name}`);
  const scaling = await ropeScaling(facts);
  if (name === "Gemma3ForCausalLM" && scaling !== null && scaling.rope_type !== "linear")
    throw new UnsupportedError(`${facts.metadata.file}: rope scaling of Gemma 3 is not supported but linear`);
  return scaling;
}
