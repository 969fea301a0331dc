/** Reads Meta's Llama checkpoints: params.json and consolidated.00.pth, or several parts of a model sharded across devices. */
import { InvalidFileError } from "../errors.ts";
import { elementCount, toFloat32 } from "../tensor.ts";
import { type ComputedMatrix, withComputed } from "./computed-tensors.ts";
import { withPermutedHeads } from "./head-rows.ts";
import { describe, type JsonObject } from "./json.ts";
import type { OpenTensors } from "./tensor-source.ts";

const whole: Readonly<Record<string, string>> = {
  tok_embeddings: "model.embed_tokens",
  norm: "model.norm",
  output: "lm_head",
};

/** Module names in Hugging Face's checkpoints, and the dimension that is sharded among parts. */
const modules: Readonly<Record<string, { readonly name: string; readonly split: 0 | 1 | null }>> = {
  "attention.wq": { name: "self_attn.q_proj", split: 0 },
  "attention.wk": { name: "self_attn.k_proj", split: 0 },
  "attention.wv": { name: "self_attn.v_proj", split: 0 },
  "attention.wo": { name: "self_attn.o_proj", split: 1 },
  "feed_forward.w1": { name: "mlp.gate_proj", split: 0 },
  "feed_forward.w2": { name: "mlp.down_proj", split: 1 },
  "feed_forward.w3": { name: "mlp.up_proj", split: 0 },
  attention_norm: { name: "input_layernorm", split: null },
  ffn_norm: { name: "post_attention_layernorm", split: null },
};

interface Renamed {
  readonly stored: string;
  readonly split: 0 | 1 | null;
}

/** Maps Hugging Face's names to the file's; tensors that are no weights, such as RoPE frequencies, are left out. */
function renames(tensors: OpenTensors, dim: number, parts: number): Map<string, Renamed> {
  const names = new Map<string, Renamed>();
  for (const stored of tensors.names) {
    const [, layer, module = ""] = /^layers\.(\d+)\.(.+)\.weight$/.exec(stored) ?? [];
    const found = modules[module];
    const base = whole[stored.replace(/\.weight$/, "")];
    if (layer !== undefined && found)
      names.set(`model.layers.${layer}.${found.name}.weight`, { stored, split: found.split });
    else if (base) names.set(`${base}.weight`, { stored, split: wholeSplit(tensors, stored, dim, parts) });
  }
  return names;
}

/**
 * The sharded dimension of an unlayered matrix: embeddings are sharded by columns in Llama 2 and by rows in Llama 3, the output
 * by rows.
 */
function wholeSplit(tensors: OpenTensors, stored: string, dim: number, parts: number): 0 | 1 | null {
  const { shape } = tensors.info(stored);
  if (shape.length < 2) return null;
  return shape[1]! * parts === dim && parts > 1 ? 1 : 0;
}

/** Far beyond any model. */
const SIZE_MAX = 1 << 20;

function checkParams(file: string, params: JsonObject, layers: number): void {
  const most = { dim: SIZE_MAX, n_layers: layers, n_heads: SIZE_MAX, n_kv_heads: SIZE_MAX };
  for (const [field, limit] of Object.entries(most)) {
    const value = params[field] ?? (field === "n_kv_heads" ? 1 : undefined);
    if (!Number.isInteger(value) || (value as number) < 1 || (value as number) > limit)
      throw new InvalidFileError(
        file,
        `${field}: expected a whole number from 1 to ${limit} but found ${describe(value)}`,
      );
  }
  if (Number(params.dim) % Number(params.n_heads) !== 0)
    throw new InvalidFileError(file, `n_heads: expected a divisor of dim, ${params.dim}, but found ${params.n_heads}`);
}

/** Joins the parts to one source with Hugging Face's names and row order. */
export function metaTensors(file: string, parts: readonly OpenTensors[], params: JsonObject): OpenTensors {
  const [first] = parts as readonly [OpenTensors, ...OpenTensors[]];
  const layers = first.names.map((name) => Number(/^layers\.(\d+)\./.exec(name)?.[1] ?? -1) + 1);
  checkParams(
    file,
    params,
    Math.min(
      layers.reduce((most, layer) => Math.max(most, layer), 0),
      SIZE_MAX,
    ),
  );
  const dim = Number(params.dim);
  const names = renames(first, dim, parts.length);
  const stored = (name: string): string => names.get(name)?.stored ?? name;
  const close = async () => {
    for (const part of parts) await part.close();
  };
  const renamed: OpenTensors = {
    names: [...names.keys()],
    has: (name) => names.has(name),
    info: (name) => first.info(stored(name)),
    read: (name) => first.read(stored(name)),
    readRows: (name, row, count) => first.readRows(stored(name), row, count),
    close,
  };
  const split = parts.length === 1 ? [] : [...names].filter(([, entry]) => entry.split !== null);
  const joined = withComputed(
    renamed,
    split.map(([name, entry]) => joinedMatrix(name, entry, parts)),
  );
  const heads = Number(params.n_heads);
  const headDim = dim / heads;
  return withPermutedHeads(joined, (name) => (/\.[qk]_proj\./.test(name) ? { headDim, rotated: headDim } : null));
}

/** A matrix that is sharded by rows or columns. */
function joinedMatrix(name: string, { stored, split }: Renamed, parts: readonly OpenTensors[]): ComputedMatrix {
  const { dtype, shape } = parts[0]!.info(stored);
  const [rows = 0, columns = 0] = shape;
  const byRows = async (first: number, count: number) => {
    const values = new Float32Array(count * columns);
    for (let row = first; row < first + count; ) {
      const part = Math.floor(row / rows);
      const length = Math.min(first + count, (part + 1) * rows) - row;
      values.set(toFloat32(await parts[part]!.readRows(stored, row - part * rows, length)), (row - first) * columns);
      row += length;
    }
    return values;
  };
  const byColumns = async (first: number, count: number) => {
    const values = new Float32Array(count * columns * parts.length);
    for (const [i, part] of parts.entries()) {
      const some = toFloat32(await part.readRows(stored, first, count));
      for (let row = 0; row < count; row++)
        values.set(some.subarray(row * columns, (row + 1) * columns), (row * parts.length + i) * columns);
    }
    return values;
  };
  return {
    name,
    shape: split === 0 ? [rows * parts.length, columns] : [rows, columns * parts.length],
    stored: dtype,
    parts: [name],
    lowBit: null,
    rows: split === 0 ? byRows : byColumns,
  };
}

/** The equivalent of config.json; sizes that params.json leaves out are inferred from the tensors. */
export function metaConfig(params: JsonObject, tensors: OpenTensors): JsonObject {
  const isScaled = params.use_scaled_rope === true;
  const theta = params.rope_theta ?? 10000;
  const scaling = {
    rope_type: "llama3",
    factor: params.rope_scaling_factor ?? 8,
    low_freq_factor: 1,
    high_freq_factor: params.rope_high_freq_factor ?? 4,
    original_max_position_embeddings: 8192,
  };
  const embedding = tensors.info("model.embed_tokens.weight");
  return {
    architectures: ["LlamaForCausalLM"],
    hidden_size: params.dim,
    intermediate_size: tensors.info("model.layers.0.mlp.gate_proj.weight").shape[0],
    num_hidden_layers: params.n_layers,
    num_attention_heads: params.n_heads,
    num_key_value_heads: params.n_kv_heads ?? params.n_heads,
    vocab_size: elementCount(embedding.shape.slice(0, 1)),
    max_position_embeddings: isScaled ? 131072 : Number(theta) > 10000 ? 8192 : 4096,
    rms_norm_eps: params.norm_eps ?? 1e-5,
    rope_theta: theta,
    rope_scaling: isScaled ? scaling : null,
    tie_word_embeddings: !tensors.has("lm_head.weight"),
  };
}
