/**
 * Writes random-weight models: a Hugging Face checkpoint (bf16) for us, and a GGUF file (every matrix in Q4_0) of the
 * same shape for llama.cpp. The bytes are the same on every machine. `node bench/make-model.js <shape>`
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { writeGguf } from "../dist/formats/gguf/writer.js";
import { writeSafetensors } from "../dist/formats/safetensors-writer.js";
import { f32ToBf16 } from "../dist/half.js";
import { createRandom } from "../dist/text/random.js";
import { CONTEXT_LENGTH, shapeNamed, tensorsOf } from "./shapes.js";

export const folder = fileURLToPath(new URL("../build/bench/", import.meta.url));

/** Elements of the random block that weights are cut from; prime, so that no two weights begin at the same place. */
const BLOCK_ELEMENTS = 4_194_301;
/** Weights lie evenly in -SPREAD .. SPREAD: activations neither vanish nor blow up. */
const SPREAD = 0.03;
/** f16 bits of SPREAD / 8, the scale of a Q4_0 block. */
const Q4_0_SCALE = 0x1bae;
/** ggml's numbers of storage types. */
const GGML_F32 = 0;
const GGML_Q4_0 = 2;
const Q4_0_BLOCK_WEIGHTS = 32;
const Q4_0_BLOCK_BYTES = 18;

/** Values repeated from a block, beginning at `start`. @template {Uint8Array | Uint16Array} A @param {A} block */
export function repeated(block, start, length) {
  const values = new block.constructor(length);
  for (let at = 0, from = start % block.length; at < length; from = 0) {
    const part = block.subarray(from, from + Math.min(block.length - from, length - at));
    values.set(part, at);
    at += part.length;
  }
  return values;
}

export function randomBf16() {
  const random = createRandom(1);
  return Uint16Array.from({ length: BLOCK_ELEMENTS }, () => f32ToBf16(SPREAD * (2 * random.uniform() - 1)));
}

function randomQ4() {
  const random = createRandom(2);
  const blocks = Math.floor(BLOCK_ELEMENTS / Q4_0_BLOCK_WEIGHTS);
  const bytes = Uint8Array.from({ length: blocks * Q4_0_BLOCK_BYTES }, () => 256 * random.uniform());
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < bytes.length; at += Q4_0_BLOCK_BYTES) view.setUint16(at, Q4_0_SCALE, true);
  return bytes;
}

export const elements = (size) => size.reduce((product, length) => product * length, 1);

/** The checkpoint folder of a shape, written when it is not there. @param {string} name */
export async function checkpointOf(name) {
  const target = join(folder, name);
  const weights = join(target, "model.safetensors");
  if (existsSync(weights)) return target;
  mkdirSync(target, { recursive: true });
  writeFileSync(join(target, "config.json"), JSON.stringify(hfConfig(shapeNamed(name)), null, 2));
  const block = randomBf16();
  let start = 0;
  const entries = tensorsOf(shapeNamed(name)).map(({ name, size }) => {
    const at = start;
    start += elements(size) + 1;
    const data = async () =>
      size.length === 1 ? new Uint16Array(size[0]).fill(f32ToBf16(1)) : repeated(block, at, elements(size));
    return { name, dtype: "bf16", shape: size, data };
  });
  await writeSafetensors(weights, entries);
  return target;
}

function hfConfig(shape) {
  return {
    architectures: ["LlamaForCausalLM"],
    model_type: "llama",
    torch_dtype: "bfloat16",
    num_hidden_layers: shape.layers,
    hidden_size: shape.hidden,
    intermediate_size: shape.intermediate,
    num_attention_heads: shape.heads,
    num_key_value_heads: shape.kvHeads,
    head_dim: shape.headDim,
    vocab_size: shape.vocabulary,
    tie_word_embeddings: shape.tied,
    rope_theta: shape.ropeTheta,
    rms_norm_eps: 1e-5,
    hidden_act: "silu",
    max_position_embeddings: shape.positions ?? CONTEXT_LENGTH,
  };
}

/** Linear layers but the head, which AQLM never encodes. */
const encoded = /_proj\.weight$/;
/** Codebook entries lie in -2^-5 .. 2^-5: sums of two, like weights of other models. */
const VECTOR_BITS = 0x2800;

function randomHalves() {
  const random = createRandom(3);
  return Uint16Array.from({ length: 65521 }, () => {
    const sign = random.uniform() < 0.5 ? 0x8000 : 0;
    return sign | (VECTOR_BITS - Math.floor(2048 * random.uniform()));
  });
}

function randomCodes() {
  const random = createRandom(4);
  return Uint8Array.from({ length: BLOCK_ELEMENTS }, () => 256 * random.uniform());
}

/** The same with linear layers as AQLM weights of two codebooks of 8 bits. @param {string} name */
export async function aqlmCheckpointOf(name) {
  const target = join(folder, `${name}-aqlm-2x8`);
  const weights = join(target, "model.safetensors");
  if (existsSync(weights)) return target;
  mkdirSync(target, { recursive: true });
  const numbers = { num_codebooks: 2, nbits_per_codebook: 8, in_group_size: 8, out_group_size: 1 };
  const plain = tensorsOf(shapeNamed(name)).map((tensor) => tensor.name.replace(/\.weight$/, ""));
  const notEncoded = plain.filter((module) => !encoded.test(`${module}.weight`));
  const config = {
    ...hfConfig(shapeNamed(name)),
    quantization_config: {
      quant_method: "aqlm",
      ...numbers,
      // Readers compare with parameters or with modules.
      linear_weights_not_to_quantize: notEncoded.flatMap((module) => [`${module}.weight`, module]),
    },
  };
  writeFileSync(join(target, "config.json"), JSON.stringify(config, null, 2));
  const [floats, halves, codes] = [randomBf16(), randomHalves(), randomCodes()];
  let start = 0;
  const entries = tensorsOf(shapeNamed(name)).flatMap(({ name, size }) => {
    start += elements(size) + 1;
    const at = start;
    const entry = (suffix, dtype, shape, data) => ({ name: name.replace(/\.weight$/, suffix), dtype, shape, data });
    if (!encoded.test(name)) {
      const ones = async () => new Uint16Array(size[0]).fill(f32ToBf16(1));
      const random = async () => repeated(floats, at, elements(size));
      return [entry(".weight", "bf16", size, size.length === 1 ? ones : random)];
    }
    const [n, k] = size;
    return [
      entry(".codes", "i8", [n, k / 8, 2], async () => new Int8Array(repeated(codes, at, (n * k) / 4).buffer)),
      entry(".codebooks", "f16", [2, 256, 1, 8], async () => repeated(halves, at, 4096)),
      entry(".scales", "f16", [n, 1, 1, 1], async () => new Uint16Array(n).fill(0x3c00)),
    ];
  });
  await writeSafetensors(weights, entries);
  return target;
}

/** The GGUF file of a shape, written when it is not there. @param {string} name */
export async function ggufOf(name) {
  const path = join(folder, `${name}-q4_0.gguf`);
  if (existsSync(path)) return path;
  mkdirSync(folder, { recursive: true });
  const block = randomQ4();
  let start = 0;
  const tensors = tensorsOf(shapeNamed(name)).map(({ gguf, size }) => {
    if (size.length === 1) {
      const parts = async function* () {
        yield new Uint8Array(new Float32Array(size[0]).fill(1).buffer);
      };
      return { name: gguf, type: GGML_F32, shape: size, byteLength: 4 * size[0], parts };
    }
    const byteLength = (elements(size) / Q4_0_BLOCK_WEIGHTS) * Q4_0_BLOCK_BYTES;
    const at = start;
    start += byteLength + Q4_0_BLOCK_BYTES;
    const parts = async function* () {
      yield repeated(block, at, byteLength);
    };
    return { name: gguf, type: GGML_Q4_0, shape: size, byteLength, parts };
  });
  await writeGguf(path, new Map(Object.entries(ggufMetadata(shapeNamed(name)))), tensors);
  return path;
}

function ggufMetadata(shape) {
  const u32 = (value) => ({ type: "u32", value });
  return {
    "general.architecture": { type: "string", value: "llama" },
    "general.file_type": u32(2),
    "llama.vocab_size": u32(shape.vocabulary),
    "llama.context_length": u32(shape.positions ?? CONTEXT_LENGTH),
    "llama.block_count": u32(shape.layers),
    "llama.embedding_length": u32(shape.hidden),
    "llama.feed_forward_length": u32(shape.intermediate),
    "llama.attention.head_count": u32(shape.heads),
    "llama.attention.head_count_kv": u32(shape.kvHeads),
    "llama.attention.layer_norm_rms_epsilon": { type: "f32", value: 1e-5 },
    "llama.rope.dimension_count": u32(shape.headDim),
    "llama.rope.freq_base": { type: "f32", value: shape.ropeTheta },
    ...ggufTokenizer(shape.vocabulary),
  };
}

/** A SentencePiece vocabulary that means nothing: llama.cpp's JavaScript face wants one even for token ids. */
function ggufTokenizer(vocabulary) {
  const [normal, unknown, control, byte] = [1, 2, 3, 6];
  const special = ["<unk>", "<s>", "</s>"];
  const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`);
  const named = [...special, ...bytes];
  const types = [unknown, control, control, ...bytes.map(() => byte)];
  const ids = Array.from({ length: vocabulary }, (_, i) => i);
  return {
    "tokenizer.ggml.model": { type: "string", value: "llama" },
    "tokenizer.ggml.tokens": { type: "string", value: ids.map((i) => named[i] ?? `t${i}`) },
    "tokenizer.ggml.scores": { type: "f32", value: ids.map((i) => -i) },
    "tokenizer.ggml.token_type": { type: "i32", value: ids.map((i) => types[i] ?? normal) },
    "tokenizer.ggml.bos_token_id": { type: "u32", value: 1 },
    "tokenizer.ggml.eos_token_id": { type: "u32", value: 2 },
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [name = "1b"] = process.argv.slice(2);
  console.log(await checkpointOf(name));
  console.log(await ggufOf(name));
}
