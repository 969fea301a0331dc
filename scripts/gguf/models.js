/**
 * Part of `npm run test:gguf`: tiny models of random weights are written as GGUF files, and llama.cpp's distributions of the
 * next token along a text are compared with ours for the same file.
 */
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { writeSafetensors } from "../../dist/formats/safetensors-writer.js";
import { loadCheckpoint, loadCompiled, saveGguf } from "../../dist/index.js";
import { buildDecoder } from "../../dist/model/architectures.js";
import { createRandom } from "../../dist/text/random.js";

/** Most that logits may differ, less the largest one: llama.cpp keeps keys and values in 16 bits. */
const MARGIN = 0.05;
const LENGTH = 40;

const base = {
  ...{ hidden_size: 128, intermediate_size: 256, num_hidden_layers: 4, vocab_size: 2080, tie_word_embeddings: false },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 32, max_position_embeddings: 256, rms_norm_eps: 1e-5 },
  ...{ rope_theta: 10000, bos_token_id: 1, eos_token_id: 2 },
};
const delta = {
  ...{ linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 64, linear_value_head_dim: 64 },
  ...{ partial_rotary_factor: 0.25, linear_conv_kernel_dim: 4 },
};
const experts = { num_experts_per_tok: 2, moe_intermediate_size: 64 };

const mamba = {
  ...{ layer_types: ["mamba", "mamba", "attention", "mamba"], mamba_n_heads: 8, mamba_d_head: 32, mamba_n_groups: 2 },
  ...{ mamba_d_state: 32, mamba_d_conv: 4, mamba_expand: 2, tie_word_embeddings: true },
};

/** Configs by what files call the architecture. */
const configs = {
  llama: { architectures: ["LlamaForCausalLM"] },
  lfm2: {
    ...{ architectures: ["Lfm2ForCausalLM"], conv_L_cache: 3, norm_eps: 1e-5, block_auto_adjust_ff_dim: false },
    layer_types: ["conv", "conv", "full_attention", "conv"],
    tie_word_embeddings: true,
  },
  qwen35: { architectures: ["Qwen3_5ForCausalLM"], ...delta, full_attention_interval: 4 },
  qwen35moe: {
    ...{ architectures: ["Qwen3_5MoeForCausalLM"], ...delta, full_attention_interval: 4, ...experts, num_experts: 8 },
    shared_expert_intermediate_size: 96,
  },
  lfm2moe: {
    ...{ architectures: ["Lfm2MoeForCausalLM"], conv_L_cache: 3, norm_eps: 1e-5, num_dense_layers: 1, ...experts },
    ...{ layer_types: ["conv", "conv", "full_attention", "conv"], num_experts: 8, tie_word_embeddings: true },
  },
  mistral3: {
    architectures: ["Ministral3ForCausalLM"],
    rope_parameters: {
      ...{ rope_type: "yarn", rope_theta: 1e6, factor: 4, original_max_position_embeddings: 16 },
      ...{ mscale: 1, mscale_all_dim: 1, llama_4_scaling_beta: 0.1, beta_fast: 32, beta_slow: 1 },
    },
  },
  qwen3moe: { architectures: ["Qwen3MoeForCausalLM"], ...experts, num_experts: 8, norm_topk_prob: true },
  olmoe: { architectures: ["OlmoeForCausalLM"], ...experts, num_experts: 8, num_key_value_heads: 4 },
  mixtral: { architectures: ["MixtralForCausalLM"], ...experts, num_local_experts: 8 },
  granitehybrid: {
    ...{
      architectures: ["GraniteMoeHybridForCausalLM"],
      num_local_experts: 0,
      shared_intermediate_size: 256,
      ...mamba,
    },
    ...{ attention_multiplier: 0.2, embedding_multiplier: 6, residual_multiplier: 0.4, logits_scaling: 4 },
  },
  granitehybridmoe: {
    ...{ architectures: ["GraniteMoeHybridForCausalLM"], ...experts, num_local_experts: 8, intermediate_size: 64 },
    ...{ ...mamba, shared_intermediate_size: 96, mamba_n_groups: 1, residual_multiplier: 0.4 },
  },
  gemma4: {
    ...{ architectures: ["Gemma4ForCausalLM"], num_hidden_layers: 6, hidden_size_per_layer_input: 32 },
    layer_types: Array.from({ length: 6 }, (_, i) => (i % 3 === 2 ? "full_attention" : "sliding_attention")),
    ...{ sliding_window: 16, global_head_dim: 64, num_kv_shared_layers: 3, use_double_wide_mlp: true },
    ...{ vocab_size_per_layer_input: 2080, final_logit_softcapping: 30, tie_word_embeddings: true },
  },
  gemma4keys: {
    ...{ architectures: ["Gemma4ForCausalLM"], hidden_size_per_layer_input: 0, tie_word_embeddings: true },
    layer_types: Array.from({ length: 4 }, (_, i) => (i % 2 === 1 ? "full_attention" : "sliding_attention")),
    ...{ sliding_window: 16, global_head_dim: 64, attention_k_eq_v: true, num_global_key_value_heads: 1 },
  },
  gemma4moe: {
    ...{ architectures: ["Gemma4ForCausalLM"], hidden_size_per_layer_input: 0, tie_word_embeddings: true },
    layer_types: Array.from({ length: 4 }, (_, i) => (i % 2 === 1 ? "full_attention" : "sliding_attention")),
    ...{ sliding_window: 16, global_head_dim: 64, attention_k_eq_v: true, num_global_key_value_heads: 1 },
    ...{ enable_moe_block: true, num_experts: 8, top_k_experts: 2, moe_intermediate_size: 64 },
  },
  bitnet: { architectures: ["BitNetForCausalLM"], hidden_act: "silu", tie_word_embeddings: true },
  granitemoe: {
    ...{ architectures: ["GraniteMoeForCausalLM"], ...experts, num_local_experts: 8, attention_multiplier: 0.2 },
    ...{ embedding_multiplier: 6, residual_multiplier: 0.4, logits_scaling: 4 },
  },
};

/** A checkpoint folder of random weights that differ from each other as trained ones do. @param {string} folder @param {object} config @param {string} tokenizer */
async function writeCheckpoint(folder, config, tokenizer) {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  copyFileSync(tokenizer, join(folder, "tokenizer.json"));
  const random = createRandom(5);
  const noise = (/** @type {number} */ count, /** @type {number} */ size, middle = 0) =>
    Float32Array.from({ length: count }, () => middle + size * (2 * random.uniform() - 1));
  const entries = buildDecoder("config.json", config)
    .slots.filter(({ tiedTo }) => tiedTo === null)
    .map(({ name, shape }) => {
      const count = shape.reduce((product, size) => product * size, 1);
      const isNorm = /norm(_\d)?\.weight$|router\.\w*scale$/.test(name);
      // Scores are products of what these norms give, as they are: such sizes leave weight to more than one position.
      const isScore = config.architectures[0].startsWith("Gemma4") && /\.[qk]_norm/.test(name);
      const data = isNorm
        ? noise(count, isScore ? 0.1 : 0.3, isScore ? 0.3 : 1)
        : noise(count, shape.length > 1 ? 2.5 * shape.at(-1) ** -0.5 : 0.5);
      return { name, shape, dtype: /** @type {const} */ ("f32"), data: async () => data };
    });
  await writeSafetensors(join(folder, "model.safetensors"), entries);
}

/** Logits behind each of `ids` less the largest, of the likeliest tokens, by llama.cpp. @param {string} path @param {number[]} ids */
async function logitsOfLlama(llama, path, ids) {
  const model = await llama.loadModel({ modelPath: path });
  const context = await model.createContext({ contextSize: 256, threads: 2 });
  const options = { generateNext: { probabilities: true, options: { temperature: 1 } } };
  const found = await context.getSequence().controlledEvaluate(ids.map((id) => [id, options]));
  await model.dispose();
  return found.map(({ next }) => {
    const largest = Math.max(...next.probabilities.values());
    return new Map([...next.probabilities].map(([id, probability]) => [id, Math.log(probability / largest)]));
  });
}

/** Logits of all tokens by our own float kernels. @param {string} path @param {number[]} ids */
async function logitsHere(path, ids) {
  const model = await loadCheckpoint(path);
  const llm = await loadCompiled(model, { contextLength: 256 });
  const decoder = llm.createDecoder();
  const all = [];
  for (const id of ids) {
    const logits = all.length === 0 ? await decoder.prefill([id]) : await decoder.step(id);
    const largest = logits.reduce((most, value) => Math.max(most, value));
    all.push(logits.map((value) => value - largest));
  }
  await llm.dispose();
  await model.close();
  return all;
}

/**
 * The largest difference behind half of the tokens: where two experts are as good as each other, roundings choose.
 * @param {Float32Array[]} found @param {Map<number, number>[]} expected
 */
function distance(found, expected) {
  const worst = expected.map((logits, i) =>
    Math.max(...[...logits].map(([id, value]) => Math.abs(found[i][id] - value))),
  );
  return worst.toSorted((a, b) => a - b)[worst.length >> 1];
}

/**
 * Number of models for which llama.cpp's distributions differ from ours.
 * @param {string} root @param {string} folder @param {readonly string[]} [names]
 */
export async function compareModels(llama, root, folder, names = Object.keys(configs)) {
  const tokenizer = join(root, "models", "shakespeare", "tokenizer.json");
  const random = createRandom(9);
  const ids = Array.from({ length: LENGTH }, () => 3 + Math.floor(random.uniform() * 400));
  let failures = 0;
  for (const name of names) {
    const source = join(folder, name);
    await writeCheckpoint(source, { ...base, ...configs[name] }, tokenizer);
    const path = join(folder, `${name}.gguf`);
    const model = await loadCheckpoint(source);
    await saveGguf(model, path);
    await model.close();
    const most = distance(await logitsHere(path, ids), await logitsOfLlama(llama, path, ids));
    const agrees = most <= MARGIN;
    if (!agrees) failures++;
    console.log(`${name}: ${agrees ? "" : "WRONG: "}logits differ by ${most.toFixed(4)}`);
  }
  return failures;
}
