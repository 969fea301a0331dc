/** Checkpoint folders of some kilobytes of decoders whose layers are not alike, of random weights with the byte-level test tokenizer. */
import { buildDecoder } from "../../src/model/architectures.ts";
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

/** Writes the folder of a small Gemma 4 assistant that drafts for `hybridConfigs.gemma4`. */
export async function writeAssistantCheckpoint(folder: string, changes: object = {}): Promise<void> {
  const { gemma4 } = hybridConfigs;
  const text = {
    ...{
      ...gemma4,
      hidden_size: 32,
      intermediate_size: 32,
      hidden_size_per_layer_input: 0,
      use_double_wide_mlp: false,
    },
    ...{ num_hidden_layers: 2, num_kv_shared_layers: 2, layer_types: ["sliding_attention", "full_attention"] },
  };
  const config = {
    architectures: ["Gemma4AssistantForCausalLM"],
    model_type: "gemma4_assistant",
    backbone_hidden_size: gemma4.hidden_size,
    text_config: text,
    ...changes,
  };
  const { slots } = buildDecoder("config.json", {
    ...gemma4,
    assistant_config: { ...config, backbone_hidden_size: gemma4.hidden_size },
  });
  const own = slots.filter(({ name }) => name.startsWith("assistant."));
  const shapes = own.map(({ name, shape }) => [name.replace("assistant.", ""), shape] as const);
  await writeTinyCheckpoint(folder, { config, shapes: new Map(shapes) });
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
