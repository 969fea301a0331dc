/**
 * Gemma 4 (2026): Gemma 3 with heads of another size in full layers, a norm of values and a factor after each layer; the
 * smaller models have per-layer embeddings, and last layers that read the keys and values of others; in full layers of the
 * larger ones, values are the keys.
 */
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { ASSISTANT_CONFIG, Assistant, type TokenClusters } from "./assistant.ts";
import { Attention, type AttentionConfig } from "./attention.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { DenseBesideExperts } from "./dense-beside-experts.ts";
import { Experts } from "./experts.ts";
import { GatedMlp } from "./gated-mlp.ts";
import { normsAround } from "./gemma.ts";
import type { LayerConfig } from "./layer.ts";
import { PerLayerInput, PerLayerTable } from "./per-layer-input.ts";
import { type RopeConfig, ropeOf } from "./rope.ts";
import {
  activationOf,
  attentionBias,
  checkHeads,
  expertCounts,
  HEAD_MAX,
  HEADS_MAX,
  readStack,
  type StackConfig,
  type TransformerConfig,
} from "./transformer-config.ts";

const layerTypes = ["full_attention", "sliding_attention"] as const;
type LayerType = (typeof layerTypes)[number];

/** Type of each layer: five windowed ones to a full one where the config says none; the last is always full. */
function typesOf(config: ConfigReader, depth: number): readonly LayerType[] {
  const said = config.choices("layer_types", depth, layerTypes);
  return Array.from({ length: depth }, (_, i) => {
    if (i === depth - 1) return "full_attention";
    return said?.[i] ?? ((i + 1) % 6 === 0 ? "full_attention" : "sliding_attention");
  });
}

type HeadSizes = Pick<AttentionConfig, "headDim" | "kvHeads">;

/** Sizes of a layer's heads from `per_layer_config`, by its number or type. UnsupportedError for other fields there. */
function overridden(config: ConfigReader, layer: number, type: LayerType, base: HeadSizes): HeadSizes {
  const all = config.object("per_layer_config");
  const own = all.object(all.has(String(layer)) ? String(layer) : type);
  const other = Object.keys(own.fields).find((field) => field !== "head_dim" && field !== "num_key_value_heads");
  if (other)
    throw new UnsupportedError(`${own.file}: ${other} is not supported, only head_dim and num_key_value_heads`);
  return {
    headDim: own.size("head_dim", base.headDim, HEAD_MAX),
    kvHeads: own.size("num_key_value_heads", base.kvHeads, HEADS_MAX),
  };
}

/** Sizes of each layer's heads: from `per_layer_config` (transformers 5), else from `global_head_dim` for full layers. */
function headSizes(config: ConfigReader, types: readonly LayerType[], base: HeadSizes): readonly HeadSizes[] {
  if (config.has("per_layer_config")) return types.map((type, i) => overridden(config, i, type, base));
  const keysAreValues = config.boolean("attention_k_eq_v", false);
  const kvHeads = keysAreValues ? config.sizeOrNull("num_global_key_value_heads", null, HEADS_MAX) : null;
  const full = { headDim: config.size("global_head_dim", 512, HEAD_MAX), kvHeads: kvHeads ?? base.kvHeads };
  return types.map((type) => (type === "full_attention" ? full : base));
}

/** For each layer, the index of the layer whose keys and values it reads; null for its own. */
function sharedWith(config: ConfigReader, types: readonly LayerType[]): readonly (number | null)[] {
  const shared = config.count("num_kv_shared_layers", 0);
  const first = types.length - shared;
  return types.map((type, i) => {
    if (i < first) return null;
    const owner = types.slice(0, Math.max(0, first)).lastIndexOf(type);
    if (owner < 0)
      throw new InvalidFileError(
        config.file,
        `num_kv_shared_layers: ${shared} leaves no layer of ${type} whose keys and values layer ${i} can share`,
      );
    return owner;
  });
}

const defaultRopes = {
  sliding_attention: { rope_type: "default", rope_theta: 10000 },
  full_attention: { rope_type: "proportional", partial_rotary_factor: 0.25, rope_theta: 1e6 },
};

/** A RoPE for each layer type and head size, by the names that layers use. */
function ropesOf(config: ConfigReader, types: readonly LayerType[], sizes: readonly HeadSizes[]) {
  const parameters = config.withDefaults({ rope_parameters: defaultRopes }).object("rope_parameters");
  const names = types.map((type, i) => `${type}_${sizes[i]!.headDim}`);
  const ropes: Record<string, RopeConfig> = {};
  for (const [i, name] of names.entries())
    ropes[name] ??= ropeOf(config, parameters.object(types[i]!), { headDim: sizes[i]!.headDim });
  return { names, ropes };
}

/** UnsupportedError for bidirectional attention over text; "vision", for images only, is accepted. */
function withoutDirections(config: ConfigReader): ConfigReader {
  const field = "use_bidirectional_attention";
  if (config.has(field)) config.oneOf(field, ["vision"]);
  return config.without(field);
}

/** A layer's attention: unscaled scores, and norms of queries, keys and values. */
function attentionOf(
  { attention }: StackConfig,
  config: ConfigReader,
  layer: { readonly type: LayerType; readonly sizes: HeadSizes; readonly rope: string; readonly shared: number | null },
): Attention {
  const { type, sizes, rope, shared } = layer;
  const isFull = type === "full_attention";
  return new Attention({
    ...attention,
    ...sizes,
    rope,
    scale: 1,
    window: isFull ? 0 : config.size("sliding_window", 512),
    queryKeyNorm: "head",
    isValueNormed: true,
    ...(isFull && config.boolean("attention_k_eq_v", false) ? { valuesAreKeys: true } : {}),
    ...(shared === null ? {} : { sharedWith: shared }),
    biases: attentionBias(config),
  });
}

/** A layer's MLP, with experts in parallel where the config says so, and its norms. */
function mlpOf(config: ConfigReader, dense: GatedMlp): Pick<LayerConfig, "mlp" | "norms"> {
  if (!config.boolean("enable_moe_block", false)) return { mlp: dense, norms: normsAround };
  const { hidden, activation } = dense.config;
  const experts = new Experts({
    hidden,
    intermediate: config.size("moe_intermediate_size"),
    ...expertCounts(config, {}, "top_k_experts"),
    gate: activation,
    routerVectors: { factors: "router.per_expert_scale" },
    names: { router: "router.proj" },
  });
  return { mlp: new DenseBesideExperts({ hidden, dense, experts }), norms: { ...normsAround, beforeMlp: null } };
}

/** Sizes of the model that an assistant drafts for. */
interface Target {
  readonly hidden: number;
  readonly vocabulary: number;
  readonly types: readonly LayerType[];
  readonly sizes: readonly HeadSizes[];
  readonly layers: readonly LayerConfig[];
}

/** InvalidFileError where an assistant belongs to another model. */
function checkTarget(config: ConfigReader, text: ConfigReader, { hidden, vocabulary }: Target): void {
  const own = [
    ["backbone_hidden_size", config.size("backbone_hidden_size", 1536), hidden],
    ["vocab_size", text.size("vocab_size", textDefaults.vocab_size), vocabulary],
  ] as const;
  for (const [field, found, expected] of own)
    if (found !== expected)
      throw new InvalidFileError(config.file, `${field}: expected ${expected}, as in the model, but found ${found}`);
}

/** Clusters of an assistant's tokens; null where its head has none. InvalidFileError for clusters of different sizes. */
function clustersOf(config: ConfigReader, vocabulary: number): TokenClusters | null {
  if (!config.boolean("use_ordered_embeddings", false)) return null;
  const count = config.size("num_centroids", 2048);
  const topK = config.size("centroid_intermediate_top_k", 32);
  const refuse = (field: string, expected: string, found: number) => {
    throw new InvalidFileError(config.file, `${field}: expected ${expected} but found ${found}`);
  };
  if (vocabulary % count !== 0) refuse("num_centroids", `a divisor of vocab_size, ${vocabulary},`, count);
  if (topK > count) refuse("centroid_intermediate_top_k", `at most num_centroids, ${count},`, topK);
  return { count, topK };
}

/** Builds a config's assistant: its layers read the keys and values of the last layer of their type with its own. */
function assistantOf(config: ConfigReader, target: Target): Assistant {
  const text = withoutDirections(config.object("text_config")).withDefaults(textDefaults);
  checkTarget(config, text, target);
  const plain = text.without("hidden_act", "rope_parameters", "rope_scaling", "per_layer_config");
  const stack = readStack(plain, { tied: true, headDim: 256, kvHeads: 4, contextLength: 131072 });
  const types = typesOf(text, stack.depth);
  const sizes = headSizes(text, types, stack.attention);
  const activation = activationOf(text, "hidden_activation", "gelu_pytorch_tanh");
  const layers = types.map((type, i): LayerConfig => {
    const shared = target.types.findLastIndex((other, j) => other === type && target.layers[j]!.mixer.cache === "own");
    const owner = target.layers[shared]?.mixer;
    const { headDim, kvHeads } = sizes[i]!;
    if (!(owner instanceof Attention) || owner.config.headDim !== headDim || owner.config.kvHeads !== kvHeads)
      throw new InvalidFileError(
        text.file,
        `layer ${i}: the model has no layer of ${type} with ${kvHeads} heads of keys of ${headDim} elements`,
      );
    const { window, rope } = owner.config;
    const own = attentionOf(stack, text, { type, sizes: sizes[i]!, rope: rope!, shared });
    // The window is 1 shorter, since the token at the next position is not stored yet.
    const seen = window === 0 ? 0 : Math.max(1, window - 1);
    return {
      mixer: new Attention({ ...own.config, window: seen, valuesAreKeys: false }),
      mlp: new GatedMlp({ ...stack.mlp, activation }),
      norms: normsAround,
      factor: "layer_scalar",
    };
  });
  const { vocabulary } = target;
  const clusters = clustersOf(config, vocabulary);
  return new Assistant({ hidden: stack.hidden, backbone: target.hidden, vocabulary, layers, clusters });
}

function readLayers(given: ConfigReader, perLayerSize: number): TransformerConfig {
  const config = withoutDirections(given);
  const plain = config.without("hidden_act", "rope_parameters", "rope_scaling", "per_layer_config");
  const {
    depth,
    attention,
    mlp,
    norms: _,
    ...base
  } = readStack(plain, {
    ...{ tied: true, headDim: 256, kvHeads: 4, contextLength: 131072 },
  });
  const types = typesOf(config, depth);
  const sizes = headSizes(config, types, attention);
  for (const size of sizes) checkHeads(config.file, { ...attention, ...size });
  const { names, ropes } = ropesOf(config, types, sizes);
  const owners = sharedWith(config, types);
  const activation = activationOf(config, "hidden_activation", "gelu_pytorch_tanh");
  const isDoubled = config.boolean("use_double_wide_mlp", false);
  const { hidden, vocabulary } = base;
  const table =
    perLayerSize === 0
      ? null
      : new PerLayerTable({
          ...{ hidden, depth, activation, size: perLayerSize },
          vocabulary: config.size("vocab_size_per_layer_input", vocabulary),
        });
  const layers = types.map((type, i): LayerConfig => {
    const shared = owners[i]!;
    if (shared !== null && JSON.stringify(sizes[shared]) !== JSON.stringify(sizes[i]))
      throw new InvalidFileError(
        config.file,
        `per_layer_config: layer ${i} shares keys of layer ${shared} of other sizes`,
      );
    const intermediate = mlp.intermediate * (isDoubled && shared !== null ? 2 : 1);
    const facts = { type, sizes: sizes[i]!, rope: names[i]!, shared };
    return {
      mixer: attentionOf({ ...base, depth, attention, mlp, norms: normsAround }, config, facts),
      ...mlpOf(config, new GatedMlp({ ...mlp, activation, intermediate })),
      ...(table ? { adapter: new PerLayerInput(table, i) } : {}),
      factor: "layer_scalar",
    };
  });
  const target = { hidden, vocabulary, types, sizes, layers };
  return {
    ...{ ...base, layers, ropes },
    ...(config.has(ASSISTANT_CONFIG) ? { drafter: assistantOf(config.object(ASSISTANT_CONFIG), target) } : {}),
    ...(table ? { table } : {}),
    ...placeholdersOf(config, vocabulary),
    scales: { ...base.scales, embedding: hidden ** 0.5 },
    logitSoftcap: config.numberOrNull("final_logit_softcapping", null) ?? 0,
  };
}

/** Ids of placeholder tokens for images and sound in multimodal models; transformers gives them the padding's embedding. */
const wholeFields = { image_token_id: 258880, video_token_id: 258884, audio_token_id: 258881 };

function placeholdersOf(config: ConfigReader, vocabulary: number) {
  const said = Object.keys(wholeFields).flatMap((field) => config.numberOrNull(field, null) ?? []);
  const ids = said.filter((id) => id < vocabulary);
  if (ids.length === 0) return {};
  const as = config.count("pad_token_id", 0);
  if (as >= vocabulary)
    throw new InvalidFileError(config.file, `pad_token_id: expected less than ${vocabulary} but found ${as}`);
  return { placeholders: { ids, as } };
}

const textDefaults = {
  vocab_size: 262144,
  hidden_size: 2304,
  intermediate_size: 9216,
  num_hidden_layers: 30,
  num_attention_heads: 8,
};

export const gemma4: Architecture = {
  name: "Gemma4ForCausalLM",
  modelType: "gemma4_text",
  textTypes: { gemma4_text: textDefaults },
  wholeFields,
  read(config) {
    return readLayers(config, config.count("hidden_size_per_layer_input", 256));
  },
};

/** The decoder of models that read images without a vision tower: no per-layer embeddings. */
export const gemma4Unified: Architecture = {
  name: "Gemma4UnifiedForCausalLM",
  modelType: "gemma4_unified_text",
  textTypes: { gemma4_unified_text: textDefaults },
  wholeFields,
  read(config) {
    const own = config.withDefaults({ sliding_window: 1024, max_position_embeddings: 262144 });
    return readLayers(own, 0);
  },
};
