/** Config of Gemma 4's GGUF files: sizes of heads, windows, RoPE and MLPs by layer, and per-layer embeddings. */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import type { JsonObject } from "../json.ts";
import type { ConfigFacts } from "./config-facts.ts";
import { expertParts } from "./expert-parts.ts";
import type { GgufMetadata } from "./metadata.ts";
import type { GgufTensors } from "./tensors.ts";

const PATTERN = "{arch}.attention.sliding_window_pattern";
const KV_HEADS = "{arch}.attention.head_count_kv";
const FEED_FORWARD = "{arch}.feed_forward_length";
const SHARED = "{arch}.attention.shared_kv_layers";
const HEADS_MAX = 1 << 16;

/** Names of tensors that Gemma 3 does not have; those that are no weight of a module are listed with their ending. */
export const gemma4Names: Readonly<Record<string, string>> = {
  per_layer_token_embd: "model.embed_tokens_per_layer",
  per_layer_model_proj: "model.per_layer_model_projection",
  per_layer_proj_norm: "model.per_layer_projection_norm",
  inp_gate: "per_layer_input_gate",
  proj: "per_layer_projection",
  post_norm: "post_per_layer_input_norm",
  "layer_output_scale.weight": "layer_scalar",
  // Experts beside the gated MLP; gate and up matrices are one stack or two.
  ...expertParts("", "router.proj"),
  "ffn_gate_up_exps.weight": "experts.gate_up_proj",
  "ffn_gate_inp.scale": "router.scale",
  "ffn_down_exps.scale": "router.per_expert_scale",
  pre_ffw_norm_2: "pre_feedforward_layernorm_2",
  post_ffw_norm_1: "post_feedforward_layernorm_1",
  post_ffw_norm_2: "post_feedforward_layernorm_2",
};

/** Value of the first layer, for a size that may be given by layer. */
export function firstSize(metadata: GgufMetadata, key: string, most?: number): number | null {
  if (!metadata.isList(key)) return metadata.size(key, most);
  const [first] = metadata.numbers(key)!;
  if (!Number.isInteger(first) || first! < 1 || first! > (most ?? HEADS_MAX))
    throw new InvalidFileError(metadata.file, `metadata ${metadata.fullKey(key)}: expected sizes but found ${first}`);
  return first!;
}

/** Values of a key by layer, from a list or a single number. */
function byLayer({ metadata, layers }: ConfigFacts, key: string): readonly number[] {
  if (!metadata.isList(key)) return Array.from({ length: layers }, () => metadata.size(key) ?? 0);
  const values = metadata.numbers(key)!;
  if (values.length >= layers) return values.slice(0, layers);
  throw new InvalidFileError(
    metadata.file,
    `metadata ${metadata.fullKey(key)}: expected an entry for each of ${layers} layers but found ${values.length}`,
  );
}

/** The size that these layers share. */
function sizeOf(facts: ConfigFacts, key: string, isOne: (layer: number) => boolean): number {
  const sizes = new Set(byLayer(facts, key).filter((_, layer) => isOne(layer)));
  const [size] = sizes;
  if (sizes.size === 1 && Number.isInteger(size) && size! >= 1 && size! <= HEADS_MAX) return size!;
  const { file } = facts.metadata;
  throw new UnsupportedError(`${file}: metadata ${facts.metadata.fullKey(key)} [${[...sizes]}] is not supported`);
}

/** Fraction of a full-attention head that RoPE rotates: the frequency divisors of the rest are practically infinite. */
function rotatedPart({ metadata, scaling }: ConfigFacts): number {
  const divisors = scaling?.rope_type === "longrope" ? (scaling.short_factor as readonly number[]) : [];
  const rotated = divisors.lastIndexOf(1) + 1;
  const isPart = divisors.every((divisor, i) => (i < rotated ? divisor === 1 : divisor >= 1e20));
  if (divisors.length > 0 && rotated > 0 && isPart) return rotated / divisors.length;
  throw new UnsupportedError(
    `${metadata.file}: expected a tensor rope_freqs.weight of ones and, behind them, numbers of at least 1e20`,
  );
}

/**
 * Whether MLPs of layers with shared keys and values are twice as wide. UnsupportedError where only some are, or other layers
 * are.
 */
function isDoubled(facts: ConfigFacts, shared: number): boolean {
  const widths = byLayer(facts, FEED_FORWARD);
  const [first] = widths as [number];
  const doubled = shared > 0 && widths.at(-1) === 2 * first;
  if (widths.every((width, i) => width === (doubled && i >= facts.layers - shared ? 2 * first : first))) return doubled;
  const { metadata } = facts;
  throw new UnsupportedError(
    `${metadata.file}: metadata ${metadata.fullKey(FEED_FORWARD)} [${widths}] is not supported`,
  );
}

/** Config fields of experts beside the gated MLPs, if there are any. */
function besides({ metadata }: ConfigFacts): JsonObject {
  if ((metadata.number("{arch}.expert_count") ?? 0) === 0) return {};
  return {
    enable_moe_block: true,
    num_experts: metadata.size("{arch}.expert_count"),
    top_k_experts: metadata.size("{arch}.expert_used_count"),
    moe_intermediate_size: metadata.size("{arch}.expert_feed_forward_length"),
  };
}

/** What files of the model and of its assistants say of layers. */
function layersConfig(facts: ConfigFacts): JsonObject {
  const { metadata, tensors, layers, headDim } = facts;
  const flags = metadata.flags(PATTERN);
  const isFull = (layer: number) => layer === layers - 1 || !flags[layer];
  const first = Array.from({ length: layers }, (_, i) => i).find(isFull)!;
  const shared = metadata.number(SHARED) ?? 0;
  const swaDim = metadata.size("{arch}.attention.key_length_swa", HEADS_MAX) ?? headDim;
  const sizes = (head_dim: number, isOne: (layer: number) => boolean) => ({
    head_dim,
    num_key_value_heads: sizeOf(facts, KV_HEADS, isOne),
  });
  const hasWindows = flags.slice(0, layers - 1).some(Boolean);
  return {
    layer_types: Array.from({ length: layers }, (_, i) => (isFull(i) ? "full_attention" : "sliding_attention")),
    sliding_window: metadata.size("{arch}.attention.sliding_window"),
    head_dim: swaDim,
    per_layer_config: {
      full_attention: sizes(headDim, isFull),
      ...(hasWindows && { sliding_attention: sizes(swaDim, (layer) => !isFull(layer)) }),
    },
    attention_k_eq_v: !tensors.has(`blk.${first}.attn_v.weight`),
    num_kv_shared_layers: shared,
    use_double_wide_mlp: isDoubled(facts, shared),
    rope_scaling: null,
    hidden_activation: "gelu_pytorch_tanh",
  };
}

export function gemma4Config(facts: ConfigFacts): JsonObject {
  const { metadata, tensors } = facts;
  const perLayer = metadata.number("{arch}.embedding_length_per_layer_input") ?? 0;
  const base = (key: string) => metadata.positive(`{arch}.rope.${key}`);
  return {
    ...layersConfig(facts),
    ...besides(facts),
    hidden_size_per_layer_input: perLayer,
    ...(perLayer > 0 && { vocab_size_per_layer_input: tensors.info("per_layer_token_embd.weight").shape[0]! }),
    rope_parameters: {
      full_attention: {
        ...{ rope_type: "proportional", rope_theta: base("freq_base") ?? 1e6 },
        partial_rotary_factor: rotatedPart(facts),
      },
      sliding_attention: { rope_type: "default", rope_theta: base("freq_base_swa") ?? 1e4 },
    },
    final_logit_softcapping: metadata.number("{arch}.final_logit_softcapping") ?? 30,
  };
}

/** Modules of an assistant beside its layers, whose names came in three spellings. */
export const assistantNames: Readonly<Record<string, string>> = {
  ...gemma4Names,
  ...Object.fromEntries(
    ["nextn.", "mtp.", "mtp_"].flatMap((prefix) => [
      [`${prefix}pre_${prefix === "mtp_" ? "proj" : "projection"}`, "pre_projection"],
      [`${prefix}post_${prefix === "mtp_" ? "proj" : "projection"}`, "post_projection"],
      [`${prefix}centroids`, "masked_embedding.centroids"],
      [`${prefix}token_ordering.weight`, "masked_embedding.token_ordering"],
    ]),
  ),
};

/** The rope is that of the model, whose keys the layers read. */
export const assistantText = layersConfig;

/** Name of an assistant's tensor, in any spelling; undefined without one. */
function assistantTensor({ names }: GgufTensors, module: string): string | undefined {
  return names.find(
    (name) => assistantNames[name] === module || assistantNames[name.replace(/\.weight$/, "")] === module,
  );
}

/** The config of an assistant, from that of its layers: how wide the model is, one of its matrices says. */
export function assistantConfig(text: JsonObject, metadata: GgufMetadata, tensors: GgufTensors): JsonObject {
  const name = assistantTensor(tensors, "post_projection");
  if (name === undefined)
    throw new InvalidFileError(metadata.file, "expected a tensor nextn.post_projection.weight, which assistants have");
  const { architectures, ...layers } = text;
  const clusters = clustersConfig(metadata, tensors);
  return { architectures, backbone_hidden_size: tensors.info(name).shape[0]!, ...clusters, text_config: layers };
}

/** Clusters of an assistant's tokens, of which llama.cpp's own converter says nothing: their tensors tell of them. */
function clustersConfig(metadata: GgufMetadata, tensors: GgufTensors): JsonObject {
  const [centroids, ordering] = ["centroids", "token_ordering"].map((part) =>
    assistantTensor(tensors, `masked_embedding.${part}`),
  );
  const isClustered = metadata.boolean("{arch}.use_ordered_embeddings") ?? Boolean(centroids ?? ordering);
  if (!isClustered) return {};
  const topK = metadata.size("{arch}.centroid_top_k");
  return {
    use_ordered_embeddings: true,
    ...(centroids && { num_centroids: tensors.info(centroids).shape[0]! }),
    ...(topK && { centroid_intermediate_top_k: topK }),
  };
}
