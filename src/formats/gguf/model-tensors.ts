/** Maps a GGUF file's tensors to the names and row order of Hugging Face checkpoints. */
import { InvalidFileError } from "../../errors.ts";
import { toFloat32 } from "../../tensor.ts";
import { withPermutedHeads } from "../head-rows.ts";
import type { OpenTensors } from "../tensor-source.ts";
import { architectureOf } from "./architectures.ts";
import { expertParts } from "./expert-parts.ts";
import type { GgufMetadata } from "./metadata.ts";
import type { GgufTensors } from "./tensors.ts";

const whole: Readonly<Record<string, string>> = {
  token_embd: "model.embed_tokens",
  output_norm: "model.norm",
  output: "lm_head",
};

const parts: Readonly<Record<string, string>> = {
  attn_norm: "input_layernorm",
  attn_q: "self_attn.q_proj",
  attn_k: "self_attn.k_proj",
  attn_v: "self_attn.v_proj",
  attn_qkv: "self_attn.qkv_proj",
  attn_q_norm: "self_attn.q_norm",
  attn_k_norm: "self_attn.k_norm",
  attn_output: "self_attn.o_proj",
  ffn_norm: "post_attention_layernorm",
  ffn_gate: "mlp.gate_proj",
  ffn_up: "mlp.up_proj",
  ffn_down: "mlp.down_proj",
  ...expertParts("mlp"),
};

/** Hugging Face's name of a tensor; null for tensors without one, such as RoPE factors. */
function modelName(name: string, other: Readonly<Record<string, string>>): string | null {
  const [, number, parameter = ""] = /^blk\.(\d+)\.(.+)$/.exec(name) ?? [];
  if (Object.hasOwn(other, parameter)) return `model.layers.${number}.${other[parameter]}`;
  if (name.endsWith(".weight") && Object.hasOwn(other, name)) return other[name]!;
  const [, base = "", ending = ""] = /^(.+)\.(weight|bias)$/.exec(name) ?? [];
  const [, layer, part = ""] = /^blk\.(\d+)\.(.+)$/.exec(base) ?? [];
  if (layer === undefined) {
    const module = other[base] ?? whole[base];
    return module ? `${module}.${ending}` : null;
  }
  const module = other[part] ?? parts[part] ?? expertModule(part);
  return module ? `model.layers.${layer}.${module}.${ending}` : null;
}

/** Module of one expert's matrix: older files of Mixtral store each expert's matrices separately. */
function expertModule(part: string): string | null {
  const [, name, expert] = /^ffn_(gate|up|down)\.(\d+)$/.exec(part) ?? [];
  const matrices: Readonly<Record<string, string>> = { gate: "w1", up: "w3", down: "w2" };
  return name === undefined ? null : `block_sparse_moe.experts.${expert}.${matrices[name]}`;
}

/** GGUF's name of a model's tensor; null for a tensor that files do not have. */
export function ggufName(name: string, other: Readonly<Record<string, string>>): string | null {
  const [, base = "", ending = ""] = /^(.+)\.(weight|bias)$/.exec(name) ?? [];
  const keyOf = (names: Readonly<Record<string, string>>, value: string) =>
    Object.entries(names).find(([, module]) => module === value)?.[0];
  const [, number, parameter = ""] = /^model\.layers\.(\d+)\.(.+)$/.exec(name) ?? [];
  const bare = keyOf(other, parameter);
  if (bare !== undefined) return `blk.${number}.${bare}`;
  const [, layer, module = ""] = /^model\.layers\.(\d+)\.(.+)$/.exec(base) ?? [];
  const part =
    layer === undefined
      ? (keyOf(other, base) ?? keyOf(whole, base))
      : (keyOf(other, module) ?? keyOf(unclaimed(other), module));
  if (part === undefined) return null;
  return layer === undefined ? `${part}.${ending}` : `blk.${layer}.${part}.${ending}`;
}

/** Llama's names for the parts that an architecture does not name differently. */
function unclaimed(other: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(parts).filter(([part]) => !Object.hasOwn(other, part)));
}

/** Whether the converter adds `normOffset` to this norm. It does not to the gated norm of recurrent layers. */
export function isOffsetNorm(name: string): boolean {
  return /(?<!linear_attn\.)norm(?:_embedding|_hidden)?\.weight$/.test(name);
}

/** Tensors under Hugging Face's names, with the offset of norms subtracted, and query and key rows reordered to halves. */
export function modelTensors(metadata: GgufMetadata, tensors: GgufTensors, headDim: number): OpenTensors {
  const { names, interleaved, normOffset, tensors: changed } = architectureOf(metadata);
  const stored = new Map<string, string>();
  for (const name of tensors.names) stored.set(modelName(name, names) ?? name, name);
  const nameOf = (name: string): string => {
    const found = stored.get(name);
    if (found === undefined) throw new InvalidFileError(metadata.file, `has no tensor for ${name}`);
    return found;
  };
  const isShifted = (name: string) => normOffset !== 0 && isOffsetNorm(name);
  const renamed: OpenTensors = {
    names: [...stored.keys()],
    has: (name) => stored.has(name),
    info(name) {
      const info = tensors.info(nameOf(name));
      return isShifted(name) ? { ...info, dtype: "f32" } : info;
    },
    storedType: (name) => tensors.storedType(nameOf(name)),
    async read(name) {
      const tensor = await tensors.read(nameOf(name));
      if (!isShifted(name)) return tensor;
      return { ...tensor, dtype: "f32", data: toFloat32(tensor).map((value) => value - normOffset) };
    },
    readRows: async (name, firstRow, rowCount) => tensors.readRows(nameOf(name), firstRow, rowCount),
    lowBit: (name) => tensors.lowBit(nameOf(name)),
    close: () => tensors.close(),
  };
  const heads = { headDim, rotated: headDim };
  const permuted = interleaved
    ? withPermutedHeads(renamed, (name) => (/\.[qk]_proj\./.test(name) ? heads : null))
    : renamed;
  return changed ? changed(permuted, metadata) : permuted;
}
