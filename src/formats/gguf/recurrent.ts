/** Config of GGUF files with recurrent layers, and the conversion of llama.cpp's tensors of such layers. */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import { toFloat32 } from "../../tensor.ts";
import type { JsonObject } from "../json.ts";
import { type Moves, withMoves } from "../moved-weights.ts";
import type { OpenTensors } from "../tensor-source.ts";
import type { LayerFacts } from "./config-facts.ts";
import { DRAFT_LAYERS_KEY, draftConfig, draftLayers, withDraftLayer } from "./draft-layer.ts";
import type { GgufMetadata } from "./metadata.ts";

const KV_HEADS = "{arch}.attention.head_count_kv";
const RECURRENT = "{arch}.attention.recurrent_layers";

/** Names of LFM2's tensors that differ from Llama's. */
export const lfm2Names: Readonly<Record<string, string>> = {
  token_embd_norm: "model.embedding_norm",
  output_norm: "model.embedding_norm",
  attn_norm: "operator_norm",
  attn_q_norm: "self_attn.q_layernorm",
  attn_k_norm: "self_attn.k_layernorm",
  attn_output: "self_attn.out_proj",
  "shortconv.conv": "conv.conv",
  "shortconv.in_proj": "conv.in_proj",
  "shortconv.out_proj": "conv.out_proj",
  ffn_norm: "ffn_norm",
  ffn_gate: "feed_forward.w1",
  ffn_up: "feed_forward.w3",
  ffn_down: "feed_forward.w2",
};

/** Names of Qwen 3.5's tensors; those that are no weight of a module are listed with their ending. */
export const qwen35Names: Readonly<Record<string, string>> = {
  post_attention_norm: "post_attention_layernorm",
  attn_qkv: "linear_attn.in_proj_qkv",
  attn_gate: "linear_attn.in_proj_z",
  ssm_beta: "linear_attn.in_proj_b",
  ssm_alpha: "linear_attn.in_proj_a",
  ssm_conv1d: "linear_attn.conv1d",
  ssm_norm: "linear_attn.norm",
  ssm_out: "linear_attn.out_proj",
  ssm_a: "linear_attn.A_log",
  "ssm_dt.bias": "linear_attn.dt_bias",
};

/** The size that all layers with attention share, where others have 0. */
export function attentionSize(metadata: GgufMetadata, key: string, most: number): number | null {
  if (!metadata.isList(key)) return metadata.size(key, most);
  const sizes = new Set(metadata.numbers(key)!.filter((size) => size !== 0));
  const [size] = sizes;
  if (sizes.size !== 1 || !Number.isInteger(size) || size! < 1 || size! > most)
    throw new UnsupportedError(
      `${metadata.file}: metadata ${metadata.fullKey(key)} with ${[...sizes].slice(0, 8).join(", ") || "0"} is not supported, only one size from 1 to ${most} for all layers with attention`,
    );
  return size!;
}

/** LFM2: layers with 0 key heads are convolutions. */
export function lfm2Config({ metadata, layers }: LayerFacts): JsonObject {
  const taps = metadata.size("{arch}.shortconv.l_cache");
  if (taps === null)
    throw new InvalidFileError(metadata.file, `expected metadata ${metadata.fullKey("{arch}.shortconv.l_cache")}`);
  if ((metadata.number("{arch}.attention.sliding_window") ?? 0) > 0)
    throw new UnsupportedError(
      `${metadata.file}: metadata ${metadata.fullKey("{arch}.attention.sliding_window")} is not supported in models of Lfm2ForCausalLM`,
    );
  const heads = metadata.isList(KV_HEADS) ? listOf(metadata, KV_HEADS, layers) : null;
  return {
    block_auto_adjust_ff_dim: false,
    conv_L_cache: taps,
    norm_eps: metadata.positive("{arch}.attention.layer_norm_rms_epsilon"),
    layer_types: Array.from({ length: layers }, (_, i) => (heads?.[i] === 0 ? "conv" : "full_attention")),
  };
}

/** The value of a key for each layer, numbers or booleans. */
export function listOf(metadata: GgufMetadata, key: string, layers: number): readonly (number | boolean)[] {
  const values = key === RECURRENT ? metadata.flags(key) : metadata.numbers(key)!;
  if (values.length >= layers) return values;
  throw new InvalidFileError(
    metadata.file,
    `metadata ${metadata.fullKey(key)}: expected an entry for each of ${layers} layers but found ${values.length}`,
  );
}

/** Qwen 3.5; draft layers come last. */
export function qwen35Config({ metadata, tensors, layers: all }: LayerFacts): JsonObject {
  const layers = all - draftLayers(metadata);
  const { keyHeads, heads, keyDim, valueDim } = deltaSizes(metadata);
  if (!(layers >= 1))
    throw new InvalidFileError(
      metadata.file,
      `metadata ${metadata.fullKey(`{arch}.${DRAFT_LAYERS_KEY}`)}: expected less than ${all}`,
    );
  const recurrent = metadata.isList(RECURRENT) ? listOf(metadata, RECURRENT, layers) : null;
  const interval = metadata.size("{arch}.full_attention_interval") ?? 4;
  const isRecurrent = (i: number) => (recurrent ? Boolean(recurrent[i]) : (i + 1) % interval !== 0);
  return {
    ...draftConfig(metadata, tensors, all),
    num_hidden_layers: layers,
    layer_types: Array.from({ length: layers }, (_, i) => (isRecurrent(i) ? "linear_attention" : "full_attention")),
    linear_conv_kernel_dim: required(metadata, "conv_kernel"),
    linear_num_key_heads: keyHeads,
    linear_num_value_heads: heads,
    linear_key_head_dim: keyDim,
    linear_value_head_dim: valueDim,
  };
}

export function required(metadata: GgufMetadata, name: string): number {
  const size = metadata.size(`{arch}.ssm.${name}`, 1 << 24);
  if (size === null)
    throw new InvalidFileError(metadata.file, `expected metadata ${metadata.fullKey(`{arch}.ssm.${name}`)}`);
  return size;
}

/** Numbers and sizes of heads of gated DeltaNet or Mamba 2, from metadata under Mamba's names. */
export function deltaSizes(metadata: GgufMetadata): DeltaSizes {
  const [keyHeads, heads, keyDim, inner] = ["group_count", "time_step_rank", "state_size", "inner_size"].map((name) =>
    required(metadata, name),
  ) as [number, number, number, number];
  if (heads % keyHeads !== 0 || inner % heads !== 0)
    throw new InvalidFileError(
      metadata.file,
      `metadata ${metadata.fullKey("{arch}.ssm.time_step_rank")}: expected a multiple of ${keyHeads} that divides ${inner} but found ${heads}`,
    );
  return { keyHeads, heads, keyDim, valueDim: inner / heads };
}

/** Reshapes convolutions from [channels, taps] to [channels, 1, taps]. */
export function withTaps(tensors: OpenTensors): OpenTensors {
  const isTaps = (name: string, { length }: readonly number[]) => /\.(conv|conv1d)\.weight$/.test(name) && length === 2;
  const shaped = <S extends { readonly shape: readonly number[] }>(name: string, stored: S): S =>
    isTaps(name, stored.shape) ? { ...stored, shape: [stored.shape[0]!, 1, stored.shape[1]!] } : stored;
  return {
    ...tensors,
    info: (name) => shaped(name, tensors.info(name)),
    read: async (name) => shaped(name, await tensors.read(name)),
    readRows: async (name, first, count) => shaped(name, await tensors.readRows(name, first, count)),
  };
}

/**
 * Converts Qwen 3.5's tensors to transformers' form: files store -exp(A_log), and value heads of one key head are a number of
 * key heads apart rather than adjacent. A draft layer becomes `mtp`.
 */
export function withDeltaHeads(tensors: OpenTensors, metadata: GgufMetadata): OpenTensors {
  const isRate = (name: string) => name.endsWith(".A_log");
  const withLogs: OpenTensors = {
    ...tensors,
    info: (name) => (isRate(name) ? { ...tensors.info(name), dtype: "f32" } : tensors.info(name)),
    async read(name) {
      const tensor = await tensors.read(name);
      return isRate(name)
        ? { ...tensor, dtype: "f32", data: toFloat32(tensor).map((value) => Math.log(-value)) }
        : tensor;
    },
  };
  return withDraftLayer(withTaps(withMoves(withLogs, deltaMoves(deltaSizes(metadata), "read"))), metadata);
}

/** Numbers of gated DeltaNet's heads, and their sizes. */
export interface DeltaSizes {
  readonly keyHeads: number;
  readonly heads: number;
  readonly keyDim: number;
  readonly valueDim: number;
}

/**
 * Row or column reordering of each tensor with value heads, null for other tensors: from transformers' order to a file's
 * ("read": where to read from), or the inverse ("write").
 */
export function deltaMoves({ keyHeads, heads, keyDim, valueDim }: DeltaSizes, way: "read" | "write") {
  const each = heads / keyHeads;
  const [side, apart] = way === "read" ? [each, keyHeads] : [keyHeads, each];
  const storedHead = (head: number) => (head % side) * apart + Math.floor(head / side);
  const storedValue = (row: number) => storedHead(Math.floor(row / valueDim)) * valueDim + (row % valueDim);
  const keys = 2 * keyHeads * keyDim;
  const behindKeys = (row: number) => (row < keys ? row : keys + storedValue(row - keys));
  const storedColumns = Int32Array.from({ length: heads * valueDim }, (_, c) => storedValue(c));
  const moves: Readonly<Record<string, Moves>> = {
    "in_proj_qkv.weight": { storedRow: behindKeys },
    "conv1d.weight": { storedRow: behindKeys },
    "in_proj_z.weight": { storedRow: storedValue },
    "in_proj_a.weight": { storedRow: storedHead },
    "in_proj_b.weight": { storedRow: storedHead },
    dt_bias: { storedRow: storedHead },
    A_log: { storedRow: storedHead },
    "out_proj.weight": { storedColumns },
  };
  return (name: string): Moves | null => {
    const [, tensor = ""] = /\.linear_attn\.(.+)$/.exec(name) ?? [];
    return each > 1 && Object.hasOwn(moves, tensor) ? moves[tensor]! : null;
  };
}
