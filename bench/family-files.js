/**
 * Random-weight models with the dimensions of published models of 2026: their configs, GGUF files for llama.cpp (every matrix
 * in Q4_0), and our programs. `node bench/family-files.js [name …]` writes them to build/bench/.
 */
import {
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { f32ToBf16 } from "../dist/half.js";
import {
  embedding,
  exportProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  quantize,
  saveGguf,
  sharedEmbedding,
} from "../dist/index.js";
import { buildDecoder } from "../dist/model/architectures.js";
import { elements, folder, randomBf16, repeated } from "./make-model.js";
import { CHUNK_LENGTH } from "./programs.js";

const lfm2Attention = [2, 5, 8, 10, 12, 14];
const gemmaLayers = 35;

/** Configs by the names of the models. @type {Readonly<Record<string, Record<string, unknown>>>} */
export const families = {
  "Qwen3.5-0.8B": {
    ...{ architectures: ["Qwen3_5ForCausalLM"], hidden_size: 1024, intermediate_size: 3584, num_hidden_layers: 24 },
    ...{ num_attention_heads: 8, num_key_value_heads: 2, head_dim: 256, full_attention_interval: 4 },
    ...{ linear_num_key_heads: 16, linear_num_value_heads: 16, linear_key_head_dim: 128, linear_value_head_dim: 128 },
    ...{ linear_conv_kernel_dim: 4, partial_rotary_factor: 0.25, vocab_size: 248320, tie_word_embeddings: true },
    ...{ rope_theta: 1e7, max_position_embeddings: 262144 },
  },
  "LFM2-1.2B": {
    ...{ architectures: ["Lfm2ForCausalLM"], hidden_size: 2048, intermediate_size: 8192, num_hidden_layers: 16 },
    ...{ num_attention_heads: 32, num_key_value_heads: 8, block_auto_adjust_ff_dim: false, conv_L_cache: 3 },
    layer_types: Array.from({ length: 16 }, (_, i) => (lfm2Attention.includes(i) ? "full_attention" : "conv")),
    ...{
      norm_eps: 1e-5,
      vocab_size: 65536,
      tie_word_embeddings: true,
      rope_theta: 1e6,
      max_position_embeddings: 128000,
    },
  },
  "OLMoE-1B-7B": {
    ...{ architectures: ["OlmoeForCausalLM"], hidden_size: 2048, intermediate_size: 1024, num_hidden_layers: 16 },
    ...{ num_attention_heads: 16, num_key_value_heads: 16, num_experts: 64, num_experts_per_tok: 8 },
    ...{ vocab_size: 50304, tie_word_embeddings: false, max_position_embeddings: 4096 },
  },
  "Gemma-4-E2B": {
    ...{ architectures: ["Gemma4ForCausalLM"], hidden_size: 1536, intermediate_size: 6144, vocab_size: 262144 },
    ...{ num_hidden_layers: gemmaLayers, num_attention_heads: 8, num_key_value_heads: 1, head_dim: 256 },
    layer_types: Array.from({ length: gemmaLayers }, (_, i) =>
      (i + 1) % 5 === 0 ? "full_attention" : "sliding_attention",
    ),
    ...{ global_head_dim: 512, sliding_window: 512, num_kv_shared_layers: 20, use_double_wide_mlp: true },
    ...{ hidden_size_per_layer_input: 256, vocab_size_per_layer_input: 262144, tie_word_embeddings: true },
    ...{ final_logit_softcapping: 30, max_position_embeddings: 131072 },
  },
};

/** A family with its layer of multi-token prediction, which programs draft with. */
export const WITH_MTP = "Qwen3.5-0.8B with MTP";

/** @param {string} name */
function configOf(name) {
  const config = name === WITH_MTP ? { ...families["Qwen3.5-0.8B"], mtp_num_hidden_layers: 1 } : families[name];
  if (!config) throw new RangeError(`family "${name}": expected one of ${Object.keys(families).join(", ")}`);
  return config;
}

/** Writes the tensors of a model as bf16, some megabytes at a time. @param {string} path @param {readonly any[]} slots */
function writeWeights(path, slots) {
  const header = {};
  let end = 0;
  for (const { name, shape } of slots) {
    const start = end;
    end += 2 * elements(shape);
    header[name] = { dtype: "BF16", shape, data_offsets: [start, end] };
  }
  const text = Buffer.from(JSON.stringify(header));
  const file = openSync(path, "w");
  writeSync(file, new BigUint64Array([BigInt(text.length)]));
  writeSync(file, text);
  const block = randomBf16();
  const one = f32ToBf16(1);
  let start = 0;
  for (const { shape } of slots) {
    const count = elements(shape);
    for (let at = 0; at < count; at += block.length) {
      const length = Math.min(block.length, count - at);
      writeSync(file, shape.length === 1 ? new Uint16Array(length).fill(one) : repeated(block, start, length));
    }
    start += count + 1;
  }
  closeSync(file);
}

/** The checkpoint, of bf16 weights, while `use` takes it. @template T @param {string} name @param {(model: any) => Promise<T>} use */
async function withCheckpoint(name, use) {
  const config = configOf(name);
  const target = join(folder, `${name}-checkpoint`);
  mkdirSync(target, { recursive: true });
  writeFileSync(join(target, "config.json"), JSON.stringify(config));
  const tokenizer = new URL("../models/shakespeare/tokenizer.json", import.meta.url);
  copyFileSync(fileURLToPath(tokenizer), join(target, "tokenizer.json"));
  const weights = join(target, "model.safetensors");
  writeWeights(
    weights,
    buildDecoder("config.json", config).slots.filter(({ tiedTo }) => tiedTo === null),
  );
  const model = await loadCheckpoint(target);
  const four = { bits: 4, groupSize: 32, scaleDType: /** @type {const} */ ("f16") };
  const rows = config.tie_word_embeddings ? sharedEmbedding : embedding;
  quantize(model, [
    int8DynamicActivationIntxWeight(four),
    rows({ ...four, mappingType: /** @type {const} */ ("symmetric") }),
  ]);
  const start = performance.now();
  try {
    const result = await use(model);
    const quantizing = {
      checkpoint: statSync(weights).size,
      seconds: (performance.now() - start) / 1000,
      peak: 1024 * process.resourceUsage().maxRSS,
    };
    writeFileSync(join(folder, `${name}-quantizing.json`), JSON.stringify(quantizing));
    return result;
  } finally {
    await model.close();
    rmSync(target, { recursive: true });
  }
}

/** What quantizing the checkpoint took: its bytes, seconds, and the most memory that was resident, where it was done here. @param {string} name */
export function quantizingOf(name) {
  const path = join(folder, `${name}-quantizing.json`);
  return existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : null;
}

/** The GGUF file, written when it is not there. @param {string} name */
export async function familyGguf(name) {
  const path = join(folder, `${name}-q4_0.gguf`);
  if (!existsSync(path)) await withCheckpoint(name, (model) => saveGguf(model, path));
  return path;
}

/**
 * The program, written when it is not there: of the GGUF file's own weights, for 8-bit activations; of Gemma 4, of which no
 * GGUF is written, quantized in the same way.
 * @param {string} name
 */
export async function familyProgram(name) {
  const path = join(folder, `${name}-4bit.pte`);
  if (existsSync(path)) return path;
  const options = { maxSeqLen: CHUNK_LENGTH };
  if (name.startsWith("Gemma")) await withCheckpoint(name, (model) => exportProgram(model, path, options));
  else {
    const model = await loadCheckpoint(await familyGguf(name));
    await exportProgram(model, path, options);
    await model.close();
  }
  return path;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const name of process.argv.length > 2 ? process.argv.slice(2) : Object.keys(families)) {
    const start = performance.now();
    console.log(`${await familyProgram(name)}: ${((performance.now() - start) / 1000).toFixed(0)} s`);
  }
