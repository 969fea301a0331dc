/**
 * GGUF files of models with recurrent layers, as llama.cpp's converter writes them, read as the checkpoints that they were
 * made from: what it renames, moves and changes is done here once more, tensor by tensor.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { assetsOf } from "../src/checkpoint/assets.ts";
import { openTensorFile } from "../src/formats/shards.ts";
import { f16Table, f32ToF16 } from "../src/half.ts";
import { EagerModel, loadCheckpoint, saveGguf } from "../src/index.ts";
import { bytesOf, toFloat32 } from "../src/tensor.ts";
import { readAssets } from "../src/text/model-assets.ts";
import { distance } from "./support/distance.ts";
import { temporaryFolder } from "./support/folders.ts";
import { type GgufEntry, ggufFile, type Metadata } from "./support/gguf.ts";
import { type HybridName, hybridConfigs, writeHybridCheckpoint } from "./support/hybrid-checkpoint.ts";
import { expectSame } from "./support/same.ts";

const folder = await temporaryFolder();
const IDS = [5, 100, 20, 7, 250, 3, 3, 90];

/** The file's name of a tensor. */
const ggufNames: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens\./, "token_embd."],
  [/^model\.embedding_norm/, "token_embd_norm"],
  [/^model\.norm/, "output_norm"],
  [/^model\.embed_tokens_per_layer/, "per_layer_token_embd"],
  [/^model\.per_layer_model_projection/, "per_layer_model_proj"],
  [/^model\.per_layer_projection_norm/, "per_layer_proj_norm"],
  [/per_layer_input_gate/, "inp_gate"],
  [/per_layer_projection/, "proj"],
  [/post_per_layer_input_norm/, "post_norm"],
  [/pre_feedforward_layernorm/, "ffn_norm"],
  [/post_feedforward_layernorm/, "post_ffw_norm"],
  [/layer_scalar/, "layer_output_scale.weight"],
  [/^lm_head/, "output"],
  [/^model\.layers\.(\d+)\./, "blk.$1."],
  [/operator_norm|input_layernorm/, "attn_norm"],
  [/post_attention_layernorm/, "post_attention_norm"],
  [/self_attn\.([qk])_(?:layer)?norm/, "attn_$1_norm"],
  [/self_attn\.([qkv])_proj/, "attn_$1"],
  [/self_attn\.(o|out)_proj/, "attn_output"],
  [/mamba\.dt_bias/, "ssm_dt.bias"],
  [/mamba\.A_log/, "ssm_a"],
  [/mamba\.D/, "ssm_d"],
  [/mamba\.(in|out)_proj/, "ssm_$1"],
  [/mamba\.(conv1d|norm)/, "ssm_$1"],
  [/shared_mlp\.output_linear/, "ffn_down"],
  [/feed_forward\.w1|mlp\.gate_proj/, "ffn_gate"],
  [/feed_forward\.w2|mlp\.down_proj/, "ffn_down"],
  [/feed_forward\.w3|mlp\.up_proj/, "ffn_up"],
  [/(\d\.)conv\./, "$1shortconv."],
  [/linear_attn\.in_proj_qkv/, "attn_qkv"],
  [/linear_attn\.in_proj_z/, "attn_gate"],
  [/linear_attn\.in_proj_a/, "ssm_alpha"],
  [/linear_attn\.in_proj_b/, "ssm_beta"],
  [/linear_attn\.conv1d/, "ssm_conv1d"],
  [/linear_attn\.dt_bias/, "ssm_dt.bias"],
  [/linear_attn\.A_log/, "ssm_a"],
  [/linear_attn\.norm/, "ssm_norm"],
  [/linear_attn\.out_proj/, "ssm_out"],
];

const { linear_num_key_heads: K, linear_num_value_heads: V } = hybridConfigs.qwen3_5;
const R = V / K;

/** Value heads [K][R] as [R][K]: as _reorder_v_heads of llama.cpp's converter. */
function reordered(values: Float32Array, outer: number, size: number): Float32Array {
  const result = values.slice();
  for (let o = 0; o < outer; o++)
    for (let k = 0; k < K; k++)
      for (let r = 0; r < R; r++)
        for (let i = 0; i < size; i++) result[(o * V + r * K + k) * size + i] = values[(o * V + k * R + r) * size + i]!;
  return result;
}

/** What the converter makes of a tensor of Qwen 3.5. */
function ofQwen(name: string, shape: readonly number[], values: Float32Array, D: number): Float32Array {
  const rowSize = values.length / shape[0]!;
  const keys = 2 * K * D * rowSize;
  if (/in_proj_qkv|conv1d/.test(name))
    return Float32Array.of(...values.subarray(0, keys), ...reordered(values.subarray(keys), 1, D * rowSize));
  if (/in_proj_z/.test(name)) return reordered(values, 1, D * rowSize);
  if (/in_proj_[ab]|dt_bias/.test(name)) return reordered(values, 1, rowSize);
  if (/A_log/.test(name)) return reordered(values, 1, 1).map((value) => -Math.exp(value));
  if (/linear_attn\.out_proj/.test(name)) return reordered(values, shape[0]!, D);
  return /norm\.weight/.test(name) && !/linear_attn/.test(name) ? values.map((value) => value + 1) : values;
}

/** What the converter makes of a tensor of Granite's hybrids: heads in turns of halves, rates, vectors as matrices. */
function ofGranite(name: string, shape: readonly number[], values: Float32Array) {
  const [rows, columns = 1] = shape as [number, number?];
  if (/\.mamba\.A_log$/.test(name)) return { values: values.map((value) => -Math.exp(value)), sizes: [1, rows] };
  if (/\.mamba\.D$/.test(name)) return { values, sizes: [1, rows] };
  if (/\.mamba\.norm/.test(name)) return { values, sizes: [rows / 2, 2] };
  if (!/\.[qk]_proj\./.test(name)) return null;
  const turned = values.slice();
  for (let row = 0; row < rows; row++) {
    const [head, place] = [Math.floor(row / 8), row % 8];
    const from = 8 * head + (place % 2) * 4 + Math.floor(place / 2);
    turned.set(values.subarray(from * columns, (from + 1) * columns), row * columns);
  }
  return { values: turned, sizes: [columns, rows] };
}

const shared = { context_length: 256, embedding_length: 32, feed_forward_length: 32, "rope.freq_base": 10000.5 };

/** Rows of a multiple of 32 values as Q8_0: a scale in f16 and 32 integers a block. */
function q8Blocks(values: Float32Array): Uint8Array {
  const bytes = new Uint8Array((values.length / 32) * 34);
  for (let block = 0; block < values.length / 32; block++) {
    const part = values.subarray(32 * block, 32 * (block + 1));
    const scale = f16Table()[f32ToF16(Math.max(...part.map(Math.abs)) / 127)]!;
    new DataView(bytes.buffer).setUint16(34 * block, f32ToF16(scale), true);
    for (const [i, value] of part.entries()) bytes[34 * block + 2 + i] = Math.round(value / scale);
  }
  return bytes;
}

const architectures: Partial<Record<HybridName, string>> = { qwen3_5: "qwen35", granite_h: "granitehybrid" };

async function writeGgufOf(
  name: HybridName,
  facts: Readonly<Record<string, Metadata>>,
  extra: GgufEntry[] = [],
  options: {
    readonly changes?: object;
    readonly hasBlocks?: boolean;
    readonly metadata?: Readonly<Record<string, Metadata>>;
  } = {},
) {
  const { changes = {}, hasBlocks = false, metadata: others = {} } = options;
  const [source, path] = [join(folder, name), join(folder, `${name}.gguf`)];
  await writeHybridCheckpoint(source, name, { rope_theta: 10000.5, ...changes });
  const file = await openTensorFile(join(source, "model.safetensors"));
  const entries: GgufEntry[] = [];
  const { linear_key_head_dim: headDim } = { ...hybridConfigs.qwen3_5, ...changes };
  for (const stored of file.names) {
    const { shape, data } = await file.read(stored);
    const values = name === "qwen3_5" ? ofQwen(stored, shape, data as Float32Array, headDim) : (data as Float32Array);
    if (/shared_mlp\.input_linear/.test(stored)) {
      const [rows, columns] = shape as [number, number];
      for (const [half, part] of ["gate", "up"].entries())
        entries.push({
          ...{ name: `blk.${stored.split(".")[2]}.ffn_${part}.weight`, sizes: [columns, rows / 2], type: 0 },
          data: bytesOf(
            (data as Float32Array).subarray((half * rows * columns) / 2, ((half + 1) * rows * columns) / 2),
          ),
        });
      continue;
    }
    const granite = name === "granite_h" ? ofGranite(stored, shape, data as Float32Array) : null;
    const names = name === "granite_h" ? [[/post_attention_layernorm/, "ffn_norm"] as const, ...ggufNames] : ggufNames;
    const shown = names.reduce((text, [pattern, by]) => text.replace(pattern, by), stored);
    const sizes = shape.filter((size) => size !== 1 || shape.length === 1).toReversed();
    const isMatrix = hasBlocks && shape.length === 2;
    entries.push({
      ...{ name: shown, sizes: granite?.sizes ?? sizes, type: isMatrix ? 8 : 0 },
      data: isMatrix ? q8Blocks(values) : bytesOf(granite?.values ?? values),
    });
  }
  await file.close();
  const architecture = architectures[name] ?? name;
  const metadata = Object.fromEntries(
    Object.entries({ ...shared, ...facts }).map(([key, value]) => [`${architecture}.${key}`, value]),
  );
  await writeFile(
    path,
    ggufFile({ "general.architecture": architecture, ...others, ...metadata }, [...entries, ...extra]),
  );
  return { source, path };
}

async function logitsOf(path: string): Promise<{ logits: Float32Array; notes: readonly string[] }> {
  const model = await loadCheckpoint(path);
  const eager = await EagerModel.load(model, { logits: "all" });
  const logits = eager.forward(IDS, 0).data as Float32Array;
  await model.close();
  return { logits, notes: model.checkpoint.notes };
}

const lfm2Facts = {
  block_count: 3,
  "attention.head_count": 4,
  "attention.head_count_kv": Int32Array.of(0, 2, 0),
  "attention.layer_norm_rms_epsilon": Math.fround(1e-5),
  "shortconv.l_cache": 3,
};

it("LFM2: layers without heads of keys are convolutions", async () => {
  const { source, path } = await writeGgufOf("lfm2", lfm2Facts);
  expectSame((await logitsOf(path)).logits, (await logitsOf(source)).logits);
});

const qwenFacts = {
  block_count: 3,
  "attention.head_count": 4,
  "attention.head_count_kv": 2,
  "attention.key_length": 16,
  "attention.value_length": 16,
  "attention.layer_norm_rms_epsilon": Math.fround(1e-5),
  "rope.dimension_count": 4,
  "rope.dimension_sections": Int32Array.of(1, 1, 0, 0),
  full_attention_interval: 2,
  "ssm.conv_kernel": 4,
  "ssm.state_size": 8,
  "ssm.group_count": 2,
  "ssm.time_step_rank": 4,
  "ssm.inner_size": 32,
};

/** To the roundings of exp and log, and of norms plus 1. */
function expectNear(found: Float32Array, expected: Float32Array): void {
  expect(found.length).toBe(expected.length);
  const largest = Math.max(...expected.map(Math.abs));
  for (const [i, value] of expected.entries()) expect(Math.abs(found[i]! - value) / largest).toBeLessThan(1e-5);
}

it("Qwen 3.5: value heads are moved back, logarithms taken, norms less 1", async () => {
  const { source, path } = await writeGgufOf("qwen3_5", qwenFacts);
  expectNear((await logitsOf(path)).logits, (await logitsOf(source)).logits);
});

it("Qwen 3.5 in 8-bit blocks: rows are kept as stored in their order, columns of value heads of whole groups too", async () => {
  const sizes = { "ssm.state_size": 32, "ssm.inner_size": 128 };
  const changes = { linear_key_head_dim: 32, linear_value_head_dim: 32 };
  const { source, path } = await writeGgufOf("qwen3_5", { ...qwenFacts, ...sizes }, [], { changes, hasBlocks: true });
  const model = await loadCheckpoint(path);
  for (const module of ["in_proj_qkv", "in_proj_z", "in_proj_a", "out_proj"])
    expect(model.keptAsStored(`model.layers.0.linear_attn.${module}.weight`)?.stored, module).toBe("Q8_0");
  model.activations = "float";
  const eager = await EagerModel.load(model, { logits: "all" });
  const found = eager.forward(IDS, 0).data as Float32Array;
  await model.close();
  const expected = (await logitsOf(source)).logits;
  expect(distance(found, expected).relative).toBeLessThan(0.05);
});

it("Qwen 3.5: a layer of multi-token prediction is written and read", async () => {
  const golden = join(import.meta.dirname, "../src/model/multi-token-golden");
  const source = await loadCheckpoint(golden);
  const path = join(await temporaryFolder(), "mtp.gguf");
  await saveGguf(source, path);
  const bytes = await readFile(path);
  // As llama.cpp names them, behind the two layers of the model.
  for (const name of ["nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm", "attn_q", "ffn_down"])
    expect(bytes.includes(`blk.2.${name}.weight`), name).toBe(true);
  expect(bytes.includes("qwen35.nextn_predict_layers")).toBe(true);
  const model = await loadCheckpoint(path);
  expect(model.unreadTensors).toEqual([]);
  expect(model.network.slots).toEqual(source.network.slots);
  for (const { name, tiedTo } of source.network.slots.filter(({ name }) => name.startsWith("mtp."))) {
    expect(tiedTo).toBe(null);
    const [found, expected] = await Promise.all([model, source].map(({ checkpoint }) => checkpoint.tensors.read(name)));
    expectNear(toFloat32(found!), toFloat32(expected!));
  }
  await model.close();
  await source.close();
});

it("Qwen 3.5: a layer of multi-token prediction that lacks tensors is left out, and so are those behind the first, as notes say", async () => {
  const draft = { name: "blk.3.nextn.enorm.weight", sizes: [32], type: 0, data: new Uint8Array(128) };
  const facts = { ...qwenFacts, block_count: 4, nextn_predict_layers: 1 };
  const { source, path } = await writeGgufOf("qwen3_5", facts, [draft]);
  const { logits, notes } = await logitsOf(path);
  expectNear(logits, (await logitsOf(source)).logits);
  const lacks = "lacks tensor mtp.layers.0.input_layernorm.weight of multi-token prediction";
  expect(notes).toEqual([`${path}: ${lacks}; the model cannot draft for itself`]);
  const last = { ...draft, name: "blk.4.nextn.enorm.weight" };
  const two = await writeGgufOf("qwen3_5", { ...facts, block_count: 5, nextn_predict_layers: 2 }, [draft, last]);
  expect((await logitsOf(two.path)).notes).toEqual([
    `${two.path}: of 2 layers of multi-token prediction, the first drafts`,
    `${two.path}: ${lacks}; the model cannot draft for itself`,
  ]);
});

it.each<[HybridName, object, RegExp]>([
  ["lfm2", { "shortconv.l_cache": undefined }, /expected metadata lfm2.shortconv.l_cache/],
  ["lfm2", { "attention.head_count_kv": Int32Array.of(0, 2) }, /head_count_kv: expected an entry for each of 3 layers/],
  ["lfm2", { "attention.head_count_kv": Int32Array.of(1, 2, 0) }, /head_count_kv with 1, 2 is not supported/],
  ["lfm2", { "attention.head_count_kv": Int32Array.of(0, 0, 0) }, /head_count_kv with 0 is not supported/],
  ["lfm2", { "attention.sliding_window": 8 }, /sliding_window is not supported in models of Lfm2ForCausalLM/],
  ["qwen3_5", { "ssm.inner_size": undefined }, /expected metadata qwen35.ssm.inner_size/],
  ["qwen3_5", { "ssm.time_step_rank": 3 }, /time_step_rank: expected a multiple of 2 that divides 32 but found 3/],
  ["qwen3_5", { nextn_predict_layers: 3 }, /nextn_predict_layers: expected less than 3/],
])("%s with %o is refused", async (name, changes, message) => {
  const facts = { ...(name === "lfm2" ? lfm2Facts : qwenFacts), ...changes };
  const given = Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== undefined));
  const { path } = await writeGgufOf(name, given);
  await expect(loadCheckpoint(path)).rejects.toThrow(message);
});

const graniteFacts = {
  block_count: 3,
  "attention.head_count": 4,
  "attention.head_count_kv": Int32Array.of(0, 2, 0),
  "attention.layer_norm_rms_epsilon": Math.fround(1e-5),
  "attention.scale": 0.2,
  "rope.scaling.finetuned": false,
  "ssm.conv_kernel": 4,
  "ssm.state_size": 8,
  "ssm.group_count": 2,
  "ssm.time_step_rank": 4,
  "ssm.inner_size": 64,
};

it("Granite 4.0 h: layers without heads of keys are Mamba 2, gate and up are two tensors", async () => {
  const changes = { mamba_n_groups: 2 };
  const { source, path } = await writeGgufOf("granite_h", graniteFacts, [], { changes });
  expectNear((await logitsOf(path)).logits, (await logitsOf(source)).logits);
});

/** Merges of a tokenizer of pieces without scores. */
const gemmaTokens = {
  "tokenizer.ggml.model": "gemma4",
  "tokenizer.ggml.tokens": ["<pad>", "<eos>", "<bos>", "<unk>", "▁", "a", "b", "ab", "▁ab"],
  "tokenizer.ggml.token_type": Int32Array.of(3, 3, 3, 2, 1, 1, 1, 1, 1),
  "tokenizer.ggml.merges": ["a b", "▁ ab"],
  "tokenizer.ggml.add_space_prefix": false,
};

it("Gemma 4: sizes by layer, embeddings of layers, and a tokenizer of merges", async () => {
  const divisors = Float32Array.of(1, 1, 1e30, 1e30, 1e30, 1e30, 1e30, 1e30);
  const freqs = { name: "rope_freqs.weight", sizes: [8], type: 0, data: bytesOf(divisors) };
  const gemmaFacts = {
    block_count: 5,
    feed_forward_length: Int32Array.of(32, 32, 32, 64, 64),
    "attention.head_count": 4,
    "attention.head_count_kv": Int32Array.of(2, 2, 2, 2, 2),
    "attention.key_length": 16,
    "attention.key_length_swa": 8,
    "attention.layer_norm_rms_epsilon": Math.fround(1e-5),
    "attention.sliding_window": 24,
    "attention.sliding_window_pattern": Int32Array.of(1, 1, 0, 1, 0),
    "attention.shared_kv_layers": 2,
    embedding_length_per_layer_input: 32,
    "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4,
    final_logit_softcapping: 30,
  };
  const { source, path } = await writeGgufOf("gemma4", gemmaFacts, [freqs], { metadata: gemmaTokens });
  expectSame((await logitsOf(path)).logits, (await logitsOf(source)).logits);
  const model = await loadCheckpoint(path);
  const tokenizer = readAssets(assetsOf(model.checkpoint), path).tokenizer!;
  expect(tokenizer.encode("ab ab")).toEqual([2, 7, 8]);
  expect(model.unreadTensors).toEqual([]);
  await model.close();
});
