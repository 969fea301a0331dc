/**
 * Reads .bin files of karpathy's llama2.c: seven sizes (version 0) or a 256-byte header (version 1), then float32 weights in a
 * fixed order. RoPE rotates adjacent pairs.
 */
import type { ByteSource } from "../byte-source.ts";
import { viewOf } from "../dtype.ts";
import { InvalidArgumentError, InvalidFileError, UnsupportedError } from "../errors.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import { withPermutedHeads } from "./head-rows.ts";
import type { JsonObject } from "./json.ts";
import type { OpenTensors } from "./tensor-source.ts";

const MAGIC = 0x616b3432;
const HEADER_BYTES = 256;
const SIZE_MAX = 1 << 30;
/** Most layers, far beyond any model: each adds tensors to a list. */
const LAYERS_MAX = 1 << 12;

interface Sizes {
  readonly version: 0 | 1;
  readonly dim: number;
  readonly hidden: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly vocabulary: number;
  readonly length: number;
  readonly tied: boolean;
}

interface Placed {
  readonly shape: readonly number[];
  readonly start: number;
}

export interface Llama2c {
  readonly config: JsonObject;
  readonly tensors: OpenTensors;
}

/** Opens a file. InvalidFileError when its sizes do not match its length exactly. */
export async function openLlama2c(source: ByteSource): Promise<Llama2c> {
  const sizes = await readSizes(source);
  const { dim, hidden, layers, heads, kvHeads, vocabulary, length, tied } = sizes;
  const config = {
    architectures: ["LlamaForCausalLM"],
    hidden_size: dim,
    intermediate_size: hidden,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    vocab_size: vocabulary,
    max_position_embeddings: length,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    tie_word_embeddings: tied,
    bos_token_id: 1,
    eos_token_id: 2,
  };
  return { config, tensors: tensorsOf(source, sizes) };
}

async function readSizes(source: ByteSource): Promise<Sizes> {
  const { name: file, size } = source;
  if (size < HEADER_BYTES)
    throw new InvalidFileError(file, `expected a model of llama2.c but it has only ${size} bytes`);
  const bytes = await source.read(0, HEADER_BYTES);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const isVersioned = view.getUint32(0, true) === MAGIC;
  const version = isVersioned ? view.getInt32(4, true) : 0;
  if (version !== 0 && version !== 1)
    throw new UnsupportedError(
      `${file}: version ${version} of llama2.c's format is not supported, only 0 and 1 (float)`,
    );
  const start = version === 0 ? 0 : 8;
  const numbers = Array.from({ length: 7 }, (_, i) => view.getInt32(start + 4 * i, true));
  const [dim, hidden, layers, heads, kvHeads, signed, length] = numbers as [number, ...number[]];
  const vocabulary = Math.abs(signed!);
  for (const value of [dim, hidden!, layers!, heads!, kvHeads!, vocabulary, length!])
    if (!(value >= 1 && value <= SIZE_MAX))
      throw new InvalidFileError(file, `is no model of llama2.c: sizes ${numbers}`);
  if (layers! > LAYERS_MAX || dim % heads! !== 0)
    throw new InvalidFileError(
      file,
      `is no model of llama2.c: ${layers} layers (at most ${LAYERS_MAX}), ${heads} heads of embeddings of ${dim}`,
    );
  const tied = version === 0 ? signed! > 0 : bytes[start + 28] === 1;
  return {
    version,
    dim,
    hidden: hidden!,
    layers: layers!,
    heads: heads!,
    kvHeads: kvHeads!,
    vocabulary,
    length: length!,
    tied,
  };
}

/** Byte offset and shape of each tensor, in file order. */
function placesOf(file: string, fileSize: number, sizes: Sizes): Map<string, Placed> {
  const { version, dim, hidden, layers, heads, kvHeads, vocabulary, length, tied } = sizes;
  const kv = (dim / heads) * kvHeads;
  const places = new Map<string, Placed>();
  let at = version === 0 ? 28 : HEADER_BYTES;
  const add = (name: string, ...shape: number[]) => {
    places.set(`${name}.weight`, { shape, start: at });
    at += 4 * elementCount(shape);
  };
  const each = (name: string, ...shape: number[]) => {
    // Stops at the end of the file, however many layers the header claims.
    for (let i = 0; i < layers && at <= fileSize; i++) add(`model.layers.${i}.${name}`, ...shape);
  };
  const matrices = () => {
    each("self_attn.q_proj", dim, dim);
    each("self_attn.k_proj", kv, dim);
    each("self_attn.v_proj", kv, dim);
    each("self_attn.o_proj", dim, dim);
  };
  const mlp = () => {
    each("mlp.gate_proj", hidden, dim);
    each("mlp.down_proj", dim, hidden);
    each("mlp.up_proj", hidden, dim);
  };
  if (version === 0) {
    add("model.embed_tokens", vocabulary, dim);
    each("input_layernorm", dim);
    matrices();
    each("post_attention_layernorm", dim);
    mlp();
    add("model.norm", dim);
    // Skips RoPE's tables of cos and sin.
    at += 4 * length * (dim / heads);
  } else {
    each("input_layernorm", dim);
    each("post_attention_layernorm", dim);
    add("model.norm", dim);
    add("model.embed_tokens", vocabulary, dim);
    matrices();
    mlp();
  }
  if (!tied) add("lm_head", vocabulary, dim);
  if (at !== fileSize)
    throw new InvalidFileError(file, `is no model of llama2.c: its sizes need ${at} bytes but it has ${fileSize}`);
  return places;
}

function tensorsOf(source: ByteSource, sizes: Sizes): OpenTensors {
  const { name: file } = source;
  const places = placesOf(file, source.size, sizes);
  const find = (name: string): Placed => {
    const place = places.get(name);
    if (!place) throw new InvalidFileError(file, `has no tensor ${name}`);
    return place;
  };
  const load = async (shape: readonly number[], start: number): Promise<Tensor> => {
    const count = elementCount(shape);
    const bytes = new Uint8Array(await source.read(start, 4 * count));
    return { dtype: "f32", shape, data: viewOf("f32", bytes.buffer, bytes.byteOffset, count) };
  };
  const tensors: OpenTensors = {
    names: [...places.keys()],
    has: (name) => places.has(name),
    info: (name) => ({ dtype: "f32", shape: find(name).shape }),
    async read(name) {
      const { shape, start } = find(name);
      return load(shape, start);
    },
    async readRows(name, first, count) {
      const { shape, start } = find(name);
      const whole = Number.isSafeInteger(first) && Number.isSafeInteger(count) && first >= 0 && count >= 0;
      if (!whole || first + count > shape[0]!)
        throw new InvalidArgumentError(`readRows: tensor ${name} [${shape}] has no rows ${first} to ${first + count}`);
      const rest = shape.slice(1);
      return load([count, ...rest], start + 4 * first * elementCount(rest));
    },
    close: () => source.close(),
  };
  const headDim = sizes.dim / sizes.heads;
  return withPermutedHeads(tensors, (name) => (/\.[qk]_proj\./.test(name) ? { headDim, rotated: headDim } : null));
}
