/** GGUF files that were written are read back: the same weights, the same logits, the same tokens. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { Random } from "../../test/support/random.ts";
import { tinyConfig, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { assetsOf } from "../checkpoint/assets.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import type { Model } from "../checkpoint/model.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { weightOrigins } from "../checkpoint/weight-origins.ts";
import { blockFormats, dequantizeBlocks } from "../formats/gguf/blocks.ts";
import { blockTypeFor, encodeBlocks } from "../formats/gguf/encode-blocks.ts";
import { buildDecoder } from "../model/architectures.ts";
import { int8DynamicActivationIntxWeight, intxWeightOnly } from "../quantize/config.ts";
import { quantizeWeights } from "../quantize/mse.ts";
import { dequantize } from "../quantized.ts";
import { toFloat32 } from "../tensor.ts";
import { readAssets } from "../text/model-assets.ts";
import { loadCompiled } from "./load-compiled.ts";
import { saveGguf } from "./save-gguf.ts";

const folder = await temporaryFolder();
let count = 0;

async function logits(model: Model): Promise<Float32Array> {
  const llm = await loadCompiled(model);
  return llm.createDecoder().prefill([1, 5, 9, 2]);
}

describe("blocks", () => {
  it.each([
    [{ bits: 4, mappingType: "symmetric" }, "Q4_0"],
    [{ bits: 2, mappingType: "symmetric" }, "Q4_0"],
    [{ bits: 1, mappingType: "symmetric" }, "Q4_0"],
    [{ bits: 8, mappingType: "symmetric_no_clipping_err" }, "Q8_0"],
    [{ bits: 5, mappingType: "symmetric", groupSize: 64 }, "Q5_0"],
    [{ bits: 6, mappingType: "symmetric" }, "Q8_0"],
    [{ bits: 3, mappingType: "asymmetric" }, "Q4_0"],
    [{ bits: 4, mappingType: "asymmetric" }, "Q5_0"],
    [{ bits: 7, mappingType: "asymmetric" }, "Q8_0"],
    [{ bits: 4, mappingType: "codebook", algorithm: "mse" }, "IQ4_NL"],
    [{ bits: 4, mappingType: "codebook", algorithm: "mse", groupSize: 64 }, "IQ4_NL"],
  ] as const)("%o is %s", (options, name) => {
    const [n, k] = [7, 128];
    const config = intxWeightOnly({ groupSize: 32, ...options, scaleDType: "f16" });
    const weights = quantizeWeights(new Random(1).floats(n * k), { ...config, n, k });
    const type = blockTypeFor(weights, weights.levels);
    if (typeof type === "string") throw new Error(type);
    expect(type.name).toBe(name);
    const values = new Float32Array(n * k);
    dequantizeBlocks(blockFormats.find((format) => format.id === type.id)!, encodeBlocks(type, weights), values);
    expect(values).toEqual(dequantize(weights));
  });

  it.each([
    [{ groupSize: 48 }, /groups of 48/],
    [{ k: 40, groupSize: 40 }, /rows of 40/],
    [{ scaleDType: "f32" }, /scales of blocks are f16/],
    [{ scaleDType: "i8" }, /scales of blocks are f16, not i8/],
    [{ bits: 3, hasLevels: true }, /that of IQ4_NL is written/],
    [
      { bits: 4, hasLevels: true, levels: Int8Array.from({ length: 16 }, (_, i) => i - 8) },
      /that of IQ4_NL is written/,
    ],
    [{ bits: 8, hasZeros: true }, /at most 7 bits, not 8/],
  ] as const)("%o are none", (change, reason) => {
    const spec = { bits: 4, n: 2, k: 96, groupSize: 32, hasZeros: false, hasLevels: false, scaleDType: "f16" } as const;
    expect(blockTypeFor({ ...spec, ...change }, "levels" in change ? change.levels : null)).toMatch(reason);
  });
});

const deltaHeads = deltaSizes();
const topK = { num_experts_per_tok: 2, tie_word_embeddings: false };
const sharedExpert = { num_experts: 4, ...topK, moe_intermediate_size: 32, shared_expert_intermediate_size: 64 };
const sizes = { hidden_size: 64, intermediate_size: 96, num_attention_heads: 4, num_key_value_heads: 2 };

describe.each([
  ["Llama", { rope_scaling: llama3() }],
  ["Llama", { rope_theta: 5e5, tie_word_embeddings: true, attention_bias: true }],
  ["Mistral", { sliding_window: null, max_position_embeddings: 64 }],
  ["Qwen2", {}],
  ["Qwen3", { head_dim: 16 }],
  ["Granite", { attention_multiplier: 0.2, embedding_multiplier: 6, residual_multiplier: 0.4, logits_scaling: 4 }],
  ["SmolLM3", { num_hidden_layers: 4 }],
  ["Olmo2", {}],
  ["Ernie4_5", { head_dim: 16 }],
  ["HunYuanDenseV1", { head_dim: 16 }],
  ["Glm4", { head_dim: 16, partial_rotary_factor: 0.5 }],
  ["Exaone4", { sliding_window: null }],
  ["Lfm2", hybrid("conv", { norm_eps: 1e-5, block_auto_adjust_ff_dim: false, conv_L_cache: 3 })],
  ["Qwen3_5", hybrid("linear_attention", { head_dim: 16, ...deltaHeads })],
  ["Qwen3_5", { head_dim: 16, ...deltaHeads, full_attention_interval: 2 }],
  ["Qwen3Moe", { head_dim: 16, num_experts: 4, norm_topk_prob: true, moe_intermediate_size: 32, ...topK }],
  ["Qwen3_5Moe", { head_dim: 16, ...deltaHeads, full_attention_interval: 2, ...sharedExpert }],
  ["Lfm2Moe", hybrid("conv", { norm_eps: 1e-5, conv_L_cache: 3, num_dense_layers: 1, num_experts: 4, ...topK })],
  ["Ministral3", { head_dim: 16, rope_parameters: yarn() }],
  ["Olmoe", { num_key_value_heads: 4, num_experts: 4, ...topK }],
  ["Mixtral", { num_local_experts: 4, ...topK }],
  ["GraniteMoe", { num_local_experts: 4, ...topK, attention_multiplier: 0.2, logits_scaling: 4 }],
  ["GraniteMoeHybrid", { ...mamba(), num_local_experts: 0 }],
  ["GraniteMoeHybrid", { ...mamba(), position_embedding_type: "rope", num_local_experts: 4, ...topK }],
  ["BitNet", { hidden_act: "silu", tie_word_embeddings: true }],
  ["Gemma4", { ...gemma4(), num_kv_shared_layers: 2, use_double_wide_mlp: true, hidden_size_per_layer_input: 32 }],
  ["Gemma4", { ...gemma4(), hidden_size_per_layer_input: 0, attention_k_eq_v: true, num_global_key_value_heads: 1 }],
  ["Gemma4", { ...gemma4(), hidden_size_per_layer_input: 0, ...besides() }],
  ["Gemma2", { head_dim: 16, query_pre_attn_scalar: 16, sliding_window: 8, tie_word_embeddings: true }],
  ["Gemma3", { head_dim: 16, query_pre_attn_scalar: 16, sliding_window: 8, tie_word_embeddings: true }],
] as const)("%s with %o", (name, fields) => {
  const architecture = `${name}ForCausalLM`;

  it.each([
    [8, "Q8_0"],
    [4, "Q4_0"],
  ] as const)("of %i bits is read back as %s, bit for bit", async (bits, stored) => {
    const source = join(folder, `${++count}`);
    const config = { ...tinyConfig, tie_word_embeddings: false, ...sizes, architectures: [architecture], ...fields };
    const { slots } = buildDecoder("tiny", config);
    const shapes = new Map(slots.filter(({ tiedTo }) => tiedTo === null).map(({ name, shape }) => [name, shape]));
    await writeTinyCheckpoint(source, { config, shapes });
    const model = await loadCheckpoint(source);
    quantize(model, [int8DynamicActivationIntxWeight({ bits, groupSize: 32, scaleDType: "f16" })]);
    const path = join(folder, `${count}.gguf`);
    await saveGguf(model, path);
    const copy = await loadCheckpoint(path);
    quantize(copy, [int8DynamicActivationIntxWeight({ bits, groupSize: 32, scaleDType: "f16" })]);
    const kept = weightOrigins(copy).filter(({ treatment }) => treatment === "kept as stored");
    expect(new Set(kept.map((origin) => origin.stored))).toEqual(new Set([stored]));
    expect(kept.length).toBeGreaterThan(10);
    const [a, b] = [await logits(model), await logits(copy)];
    for (const [i, value] of a.entries()) expect(Math.abs(value - b[i]!)).toBeLessThan(1e-4);
    for (const opened of [model, copy]) await opened.close();
  });
});

describe("a type of all matrices", () => {
  const wide = { hidden_size: 256, intermediate_size: 288, num_attention_heads: 4, num_key_value_heads: 2 };

  it.each([
    ["Q4_K", false],
    ["Q5_K", false],
    ["Q6_K", true],
  ] as const)("%s is near the floats, and kept as stored when it is read", async (blockType, tied) => {
    const source = join(folder, `${++count}`);
    const config = { ...tinyConfig, ...wide, tie_word_embeddings: tied, architectures: ["LlamaForCausalLM"] };
    const { slots } = buildDecoder("tiny", config);
    const shapes = new Map(slots.filter(({ tiedTo }) => tiedTo === null).map(({ name, shape }) => [name, shape]));
    await writeTinyCheckpoint(source, { config, shapes });
    const model = await loadCheckpoint(source);
    const path = join(folder, `${count}.gguf`);
    await saveGguf(model, path, { blockType });
    const copy = await loadCheckpoint(path);
    const types = new Map(weightOrigins(copy).map(({ name, stored }) => [name, stored]));
    expect(types.get("model.layers.0.self_attn.q_proj.weight")).toBe(blockType);
    expect(types.get("model.embed_tokens.weight")).toBe(tied ? "Q6_K" : blockType);
    expect(types.get("model.layers.0.mlp.down_proj.weight")).toBe("Q8_0");
    if (!tied) expect(types.get("lm_head.weight")).toBe("Q6_K");
    for (const { name, role, tiedTo } of model.decoder.slots) {
      if (role === "vector" || tiedTo !== null) continue;
      const [a, b] = [model, copy].map(({ checkpoint }) => checkpoint.tensors.read(name));
      const [values, found] = [toFloat32(await a!), toFloat32(await b!)];
      const distance = Math.hypot(...found.map((value, i) => value - values[i]!)) / Math.hypot(...values);
      expect(distance).toBeLessThan(blockType === "Q4_K" ? 0.08 : 0.04);
    }
    for (const opened of [model, copy]) await opened.close();
  });

  it("is refused where weights are quantized, and for another name", async () => {
    const source = join(folder, `${++count}`);
    await writeTinyCheckpoint(source);
    const model = await loadCheckpoint(source);
    const path = join(folder, "none.gguf");
    await expect(saveGguf(model, path, { blockType: "Q3_K" as never })).rejects.toThrow(/expected Q4_K, Q5_K, Q6_K/);
    quantize(model, [int8DynamicActivationIntxWeight({ bits: 4 })]);
    await expect(saveGguf(model, path, { blockType: "Q4_K" })).rejects.toThrow(/has a configuration; leave one out/);
    await model.close();
  });
});

it("keeps tokens that stand only in tokenizer_config.json, but for those beyond the vocabulary", async () => {
  const source = join(folder, `${++count}`);
  await writeTinyCheckpoint(source, { config: { vocab_size: 284 } });
  const tool = {
    content: "<tool>",
    lstrip: false,
    rstrip: false,
    normalized: false,
    single_word: false,
    special: false,
  };
  const config = { added_tokens_decoder: { 282: tool }, extra_special_tokens: ["<more>", "<beyond>"] };
  await writeFile(join(source, "tokenizer_config.json"), JSON.stringify(config));
  const model = await loadCheckpoint(source);
  const path = join(folder, `${count}.gguf`);
  await saveGguf(model, path);
  const copy = await loadCheckpoint(path);
  const { tokenizer } = readAssets(assetsOf(copy.checkpoint), "x");
  const ids = tokenizer!.encode("a<tool><more><beyond>", { addSpecialTokens: false });
  expect(ids.slice(0, 3)).toEqual([97, 282, 283]);
  expect(tokenizer!.decode(ids, { skipSpecialTokens: true })).toBe("a<tool><beyond>");
  for (const opened of [model, copy]) await opened.close();
});

it("keeps tokens, special tokens and the template", async () => {
  const source = join(folder, `${++count}`);
  await writeTinyCheckpoint(source);
  const model = await loadCheckpoint(source);
  const path = join(folder, `${count}.gguf`);
  await saveGguf(model, path);
  const copy = await loadCheckpoint(path);
  const [before, after] = [model, copy].map(({ checkpoint }) => readAssets(assetsOf(checkpoint), "x"));
  for (const text of ["Once upon a time", " two  spaces\n", "äöü 漢字"])
    expect(after!.tokenizer!.encode(text)).toEqual(before!.tokenizer!.encode(text));
  expect(copy.checkpoint.chatTemplate).toBe(model.checkpoint.chatTemplate);
  for (const opened of [model, copy]) await opened.close();
});

it.each([
  [
    "LFM3",
    { architectures: ["Lfm3ForCausalLM"], layer_types: ["conv", "full_attention"] },
    /Lfm3ForCausalLM is not written to GGUF, only LlamaForCausalLM/,
  ],
  [
    "windows of EXAONE",
    { architectures: ["Exaone4ForCausalLM"], sliding_window: 8 },
    /llama.cpp does not see windows of EXAONE 4.0/,
  ],
  [
    "BitNet's gates",
    { architectures: ["BitNetForCausalLM"], hidden_act: "relu2", tie_word_embeddings: true },
    /llama.cpp's BitNet has gates of SiLU, not squaredRelu: not written to GGUF/,
  ],
  [
    "BitNet's head",
    { architectures: ["BitNetForCausalLM"], hidden_act: "silu", tie_word_embeddings: false },
    /llama.cpp's BitNet has no head of its own: not written to GGUF/,
  ],
  [
    "rope",
    { rope_scaling: { rope_type: "yarn", factor: 4, original_max_position_embeddings: 16 } },
    /cannot say the ropes of this model/,
  ],
])("refuses what a file cannot say: %s", async (_, config, message) => {
  const source = join(folder, `${++count}`);
  const { slots } = buildDecoder("tiny", { ...tinyConfig, ...config });
  const shapes = new Map(slots.filter(({ tiedTo }) => tiedTo === null).map(({ name, shape }) => [name, shape]));
  await writeTinyCheckpoint(source, { config, shapes });
  const model = await loadCheckpoint(source);
  await expect(saveGguf(model, join(folder, "none.gguf"))).rejects.toThrow(message);
  await model.close();
});

function yarn() {
  const growth = { original_max_position_embeddings: 16, llama_4_scaling_beta: 0.1 };
  return { rope_type: "yarn", rope_theta: 1e6, factor: 4, mscale: 1, mscale_all_dim: 1, ...growth };
}

/** Heads of gated DeltaNet; columns of value heads are groups of 32. */
function deltaSizes() {
  const dims = { linear_key_head_dim: 32, linear_value_head_dim: 32 };
  return { linear_num_key_heads: 2, linear_num_value_heads: 4, ...dims };
}

/** Layers of which the last of three is attention; attention behind it in turn is not told by an interval. */
function hybrid(kind: string, fields: object) {
  const types = [kind, "full_attention", kind, kind, "full_attention"];
  return { num_hidden_layers: types.length, layer_types: types, ...fields };
}

function mamba() {
  const sizes = { mamba_n_heads: 4, mamba_n_groups: 2, mamba_d_state: 16, shared_intermediate_size: 128 };
  return { ...hybrid("mamba", sizes), attention_multiplier: 0.2, residual_multiplier: 0.4, logits_scaling: 4 };
}

/** Heads, and at times MLPs and heads of keys, of other sizes in some layers. */
function gemma4() {
  const sizes = { head_dim: 16, global_head_dim: 32, sliding_window: 8, vocab_size_per_layer_input: 64 };
  return { ...hybrid("sliding_attention", sizes), final_logit_softcapping: null, tie_word_embeddings: true };
}

/** Experts beside the MLPs of Gemma 4. */
function besides() {
  return { enable_moe_block: true, num_experts: 4, top_k_experts: 2, moe_intermediate_size: 32 };
}

function llama3() {
  return {
    rope_type: "llama3",
    ...{ factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 32 },
  };
}
