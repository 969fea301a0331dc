/** Checkpoint folders of some kilobytes of decoders whose layers are not alike, of random weights with the byte-level test tokenizer. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { writeSafetensors } from "../../src/formats/safetensors-writer.ts";
import { openTensorFile } from "../../src/formats/shards.ts";
import { buildDecoder } from "../../src/model/architectures.ts";
import type { Tensor } from "../../src/tensor.ts";
import { Random } from "./random.ts";
import { type TinyOptions, tinyConfig, writeTinyCheckpoint } from "./tiny-checkpoint.ts";

const base = { ...tinyConfig, max_position_embeddings: 256, intermediate_size: 32 };

/** Configs by name. */
export const hybridConfigs = {
  lfm2: {
    ...base,
    architectures: ["Lfm2ForCausalLM"],
    block_auto_adjust_ff_dim: false,
    conv_L_cache: 3,
    num_hidden_layers: 3,
    layer_types: ["conv", "full_attention", "conv"],
  },
  lfm3: {
    ...base,
    architectures: ["Lfm3ForCausalLM"],
    conv_bias: true,
    conv_L_cache: 7,
    num_hidden_layers: 4,
    sliding_window: 24,
    layer_types: ["conv", "full_attention", "conv", "sliding_attention"],
  },
  gemma4: {
    ...base,
    architectures: ["Gemma4ForCausalLM"],
    num_hidden_layers: 5,
    layer_types: ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    sliding_window: 24,
    global_head_dim: 16,
    num_kv_shared_layers: 2,
    use_double_wide_mlp: true,
    hidden_size_per_layer_input: 32,
    vocab_size_per_layer_input: base.vocab_size,
    final_logit_softcapping: 30,
  },
  qwen3_5: {
    ...base,
    architectures: ["Qwen3_5ForCausalLM"],
    head_dim: 16,
    num_hidden_layers: 3,
    layer_types: ["linear_attention", "full_attention", "linear_attention"],
    linear_num_key_heads: 2,
    linear_num_value_heads: 4,
    linear_key_head_dim: 8,
    linear_value_head_dim: 8,
  },
  granite_h: {
    ...base,
    architectures: ["GraniteMoeHybridForCausalLM"],
    num_local_experts: 0,
    shared_intermediate_size: 32,
    num_hidden_layers: 3,
    layer_types: ["mamba", "attention", "mamba"],
    mamba_n_heads: 4,
    mamba_d_state: 8,
    attention_multiplier: 0.2,
  },
};

export type HybridName = keyof typeof hybridConfigs;
export const hybridNames = Object.keys(hybridConfigs) as readonly HybridName[];

/** Writes the folder of a config, some fields of which may be replaced. */
export function writeHybridCheckpoint(
  folder: string,
  name: HybridName,
  changes: object = {},
  edit?: TinyOptions["edit"],
): Promise<void> {
  return writeDecoderCheckpoint(folder, { ...hybridConfigs[name], ...changes }, edit);
}

/** Config of a small Gemma 4 assistant that drafts for `hybridConfigs.gemma4`. */
export const assistantConfig = {
  architectures: ["Gemma4AssistantForCausalLM"],
  model_type: "gemma4_assistant",
  backbone_hidden_size: hybridConfigs.gemma4.hidden_size,
  text_config: {
    ...{
      ...hybridConfigs.gemma4,
      hidden_size: 32,
      intermediate_size: 32,
      hidden_size_per_layer_input: 0,
      use_double_wide_mlp: false,
    },
    ...{ num_hidden_layers: 2, num_kv_shared_layers: 2, layer_types: ["sliding_attention", "full_attention"] },
  },
};

/** Writes the folder of such an assistant. */
export async function writeAssistantCheckpoint(folder: string, changes: object = {}): Promise<void> {
  const { gemma4 } = hybridConfigs;
  const config = { ...assistantConfig, ...changes };
  const { slots } = buildDecoder("config.json", {
    ...gemma4,
    assistant_config: { ...config, backbone_hidden_size: gemma4.hidden_size },
  });
  const own = slots.filter(({ name }) => name.startsWith("assistant."));
  const shapes = own.map(({ name, shape }) => [name.replace("assistant.", ""), shape] as const);
  await writeTinyCheckpoint(folder, { config, shapes: new Map(shapes) });
}

/** Tensors by name. */
export type NamedTensors = Map<string, Tensor>;

/**
 * Gives an assistant's folder clusters of tokens: centroids by chance, and an order in which tokens of all ids are mixed.
 * `edit` changes the tensors before they are written.
 */
export async function addClusters(
  folder: string,
  clusters: { readonly num_centroids: number; readonly centroid_intermediate_top_k: number },
  edit: (tensors: NamedTensors) => void = () => {},
): Promise<NamedTensors> {
  const path = join(folder, "model.safetensors");
  const file = await openTensorFile(path);
  const tensors: NamedTensors = new Map();
  for (const name of file.names) tensors.set(name, await file.read(name));
  await file.close();
  const [tokens = 0, hidden = 0] = tensors.get("model.embed_tokens.weight")!.shape;
  const random = new Random(8);
  const { num_centroids: count } = clusters;
  const keys = random.floats(tokens);
  const order = [...keys.keys()].sort((a, b) => keys[a]! - keys[b]!);
  const centroids = random.floats(count * hidden, 0.4);
  tensors.set("masked_embedding.centroids.weight", { dtype: "f32", shape: [count, hidden], data: centroids });
  tensors.set("masked_embedding.token_ordering", {
    dtype: "i64",
    shape: [tokens],
    data: BigInt64Array.from(order, BigInt),
  });
  edit(tensors);
  const entries = [...tensors].map(([name, { dtype, shape, data }]) => ({
    name,
    dtype,
    shape,
    data: async () => data,
  }));
  await writeSafetensors(path, entries);
  const config = join(folder, "config.json");
  const fields = JSON.parse(await readFile(config, "utf8"));
  await writeFile(config, JSON.stringify({ ...fields, ...clusters, use_ordered_embeddings: true }));
  return tensors;
}

/** Configs of mixtures of experts by name. */
export const mixtureConfigs = {
  qwen3_moe: {
    ...base,
    architectures: ["Qwen3MoeForCausalLM"],
    num_experts: 5,
    num_experts_per_tok: 2,
    moe_intermediate_size: 32,
    norm_topk_prob: true,
  },
  gpt_oss: {
    ...base,
    architectures: ["GptOssForCausalLM"],
    tie_word_embeddings: false,
    num_local_experts: 4,
    num_experts_per_tok: 2,
    sliding_window: 12,
    attention_bias: true,
  },
};

/** Writes the folder of any decoder's config, whose tensors have the values of their names. */
export async function writeDecoderCheckpoint(
  folder: string,
  config: Readonly<Record<string, unknown>>,
  edit?: TinyOptions["edit"],
): Promise<void> {
  const slots = buildDecoder("config.json", config).slots.filter(({ tiedTo }) => tiedTo === null);
  const shapes = new Map(slots.map(({ name, shape }) => [name, shape]));
  await writeTinyCheckpoint(folder, { config, shapes, ...(edit && { edit }) });
}
