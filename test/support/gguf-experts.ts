/** Mixtures of experts of random weights, as a Hugging Face folder and as the GGUF file that llama.cpp's converter makes of it. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { writeSafetensors } from "../../src/formats/safetensors-writer.ts";
import { buildDecoder } from "../../src/model/architectures.ts";
import { bytesOf } from "../../src/tensor.ts";
import { type GgufEntry, ggufFile, type Metadata } from "./gguf.ts";
import { Random } from "./random.ts";

const EXPERTS = 4;
const SIZE = 32;
const HEAD_DIM = 16;
export const VOCABULARY = 96;

const shared = {
  vocab_size: VOCABULARY,
  hidden_size: 64,
  intermediate_size: SIZE,
  moe_intermediate_size: SIZE,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: HEAD_DIM,
  max_position_embeddings: 256,
  rms_norm_eps: 1e-5,
  num_experts_per_tok: 2,
  tie_word_embeddings: false,
};

interface ExpertFile {
  readonly name: string;
  readonly config: Readonly<Record<string, unknown>>;
  /** Module of the mixture, and of its router. */
  readonly module: string;
  readonly router: string;
  readonly facts?: Readonly<Record<string, Metadata>>;
  /** Whether rows of queries and keys are for rotation of neighbours. */
  readonly isInterleaved?: boolean;
}

const rope = { rope_theta: 10000 };

/** Architectures of GGUF files. */
export const expertFiles = {
  qwen3moe: {
    name: "Qwen3MoeForCausalLM",
    config: { ...rope, num_experts: EXPERTS, norm_topk_prob: true },
    ...{ module: "mlp", router: "mlp.gate" },
    facts: { expert_feed_forward_length: SIZE },
  },
  olmoe: {
    name: "OlmoeForCausalLM",
    config: { ...rope, num_experts: EXPERTS, norm_topk_prob: false, num_key_value_heads: 4 },
    ...{ module: "mlp", router: "mlp.gate" },
    facts: { "attention.head_count_kv": 4 },
  },
  llama: {
    name: "MixtralForCausalLM",
    config: { ...rope, num_local_experts: EXPERTS },
    ...{ module: "block_sparse_moe", router: "block_sparse_moe.gate", isInterleaved: true },
  },
  granitemoe: {
    name: "GraniteMoeForCausalLM",
    config: {
      ...{ ...rope, num_local_experts: EXPERTS, tie_word_embeddings: true },
      ...{ attention_multiplier: 0.125, embedding_multiplier: 6, residual_multiplier: 0.5, logits_scaling: 4 },
    },
    ...{ module: "block_sparse_moe", router: "block_sparse_moe.router.layer", isInterleaved: true },
    facts: { "attention.scale": 0.125, embedding_scale: 6.0001, residual_scale: 0.5, logit_scale: 4.0001 },
  },
  "gpt-oss": {
    name: "GptOssForCausalLM",
    config: {
      ...{ num_local_experts: EXPERTS, sliding_window: 12, attention_bias: true },
      rope_parameters: {
        ...{ rope_type: "yarn", rope_theta: 150000, factor: 4, original_max_position_embeddings: 64 },
        ...{ beta_fast: 32, beta_slow: 1, truncate: true },
      },
    },
    ...{ module: "mlp", router: "mlp.router" },
    facts: {
      ...{ "attention.sliding_window": 12, expert_feed_forward_length: SIZE, "rope.freq_base": 150000.5 },
      ...{ "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0001, "rope.scaling.original_context_length": 64 },
    },
  },
} as const satisfies Readonly<Record<string, ExpertFile>>;

export type ExpertFileName = keyof typeof expertFiles;

const names: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens/, "token_embd"],
  [/^model\.norm/, "output_norm"],
  [/^lm_head/, "output"],
  [/^model\.layers\.(\d+)\./, "blk.$1."],
  [/input_layernorm/, "attn_norm"],
  [/self_attn\.([qk])_norm/, "attn_$1_norm"],
  [/self_attn\.([qkv])_proj/, "attn_$1"],
  [/self_attn\.o_proj/, "attn_output"],
  [/self_attn\.sinks/, "attn_sinks.weight"],
];

/** Rows of halves of heads in turns, as the converter puts them. */
function interleaved(values: Float32Array, rowSize: number): Float32Array {
  const result = values.slice();
  const half = HEAD_DIM / 2;
  for (let row = 0; row < values.length / rowSize; row++) {
    const [head, place] = [Math.floor(row / HEAD_DIM), row % HEAD_DIM];
    const to = head * HEAD_DIM + (place < half ? 2 * place : 2 * (place - half) + 1);
    result.set(values.subarray(row * rowSize, (row + 1) * rowSize), to * rowSize);
  }
  return result;
}

/** How stacks of matrices are stored: a type of GGUF and the bytes of values. */
export interface StackType {
  readonly type: number;
  bytes(values: Float32Array): Uint8Array;
}

export const plainStacks: StackType = { type: 0, bytes: bytesOf };

/** Writes both; weights of an expert may be by themselves, as in files of 2023. */
export async function writeExpertFiles(
  folder: string,
  file: ExpertFileName,
  { stacks = plainStacks, isOld = false }: { readonly stacks?: StackType; readonly isOld?: boolean } = {},
): Promise<{ source: string; path: string }> {
  const { name, config: own, module, router, facts = {}, isInterleaved = false }: ExpertFile = expertFiles[file];
  const config = { ...shared, ...own, architectures: [name] };
  const [source, path] = [
    join(folder, `${file}-${stacks.type}-${isOld}`),
    join(folder, `${file}-${stacks.type}-${isOld}.gguf`),
  ];
  const random = new Random(7);
  const tensors = new Map<string, { readonly shape: readonly number[]; readonly values: Float32Array }>();
  for (const { name: slot, shape, tiedTo } of buildDecoder("config.json", config).slots) {
    const count = shape.reduce((product, size) => product * size, 1);
    const values = random.floats(count, shape.length === 1 ? 0.5 : 3 * (shape[1] ?? 1) ** -0.5);
    if (tiedTo === null)
      tensors.set(slot, { shape, values: slot.endsWith("norm.weight") ? values.map((value) => value + 1) : values });
  }
  await mkdir(source, { recursive: true });
  await writeSafetensors(
    join(source, "model.safetensors"),
    [...tensors].map(([tensor, { shape, values }]) => ({
      name: tensor,
      dtype: "f32" as const,
      shape,
      data: async () => values,
    })),
  );
  await writeFile(join(source, "config.json"), JSON.stringify(config));
  const all = { isOld, stacks, module, router, isInterleaved, file };
  const metadata = { ...fileFacts, "rope.freq_base": 10000.001, ...facts };
  const text = ggufFile(
    {
      "general.architecture": file,
      ...Object.fromEntries(Object.entries(metadata).map(([key, value]) => [`${file}.${key}`, value])),
      ...tokenizer,
    },
    entriesOf(tensors, all),
  );
  await writeFile(path, text);
  return { source, path };
}

const fileFacts: Readonly<Record<string, Metadata>> = {
  ...{ block_count: 2, context_length: 256, embedding_length: 64, feed_forward_length: SIZE, vocab_size: VOCABULARY },
  ...{ "attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5 },
  ...{ "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM, "rope.dimension_count": HEAD_DIM },
  ...{ expert_count: EXPERTS, expert_used_count: 2 },
};

const tokenizer: Readonly<Record<string, Metadata>> = {
  "tokenizer.ggml.model": "gpt2",
  "tokenizer.ggml.pre": "gpt-2",
  "tokenizer.ggml.tokens": Array.from({ length: VOCABULARY }, (_, i) =>
    String.fromCodePoint(0x21 + (i % 94)).repeat(1 + Math.floor(i / 94)),
  ),
  "tokenizer.ggml.token_type": Int32Array.from({ length: VOCABULARY }, () => 1),
  "tokenizer.ggml.merges": ["! !"],
  "tokenizer.ggml.eos_token_id": VOCABULARY - 1,
  "tokenizer.ggml.bos_token_id": VOCABULARY - 2,
};

function entriesOf(
  tensors: ReadonlyMap<string, { readonly shape: readonly number[]; readonly values: Float32Array }>,
  {
    isOld,
    stacks,
    module,
    router,
    isInterleaved,
    file,
  }: Required<Pick<ExpertFile, "module" | "router" | "isInterleaved">> & {
    readonly isOld: boolean;
    readonly stacks: StackType;
    readonly file: string;
  },
): GgufEntry[] {
  const entries: GgufEntry[] = [];
  const floats = (name: string, shape: readonly number[], values: Float32Array) =>
    entries.push({ name, sizes: shape.toReversed(), type: 0, data: bytesOf(values) });
  const parts: Readonly<Record<string, string>> = {
    gate_proj: "gate",
    up_proj: "up",
    down_proj: "down",
    w1: "gate",
    w3: "up",
    w2: "down",
  };
  const joined = new Map<string, { shape: readonly number[]; values: Float32Array[] }>();
  for (const [name, { shape, values }] of tensors) {
    const [, layer, expert, matrix = "", ending] =
      new RegExp(`^model\\.layers\\.(\\d+)\\.${module}\\.experts\\.(\\d+)\\.(\\w+)\\.(\\w+)$`).exec(name) ?? [];
    if (expert !== undefined && isOld) floats(`blk.${layer}.ffn_${parts[matrix]}.${expert}.${ending}`, shape, values);
    else if (expert !== undefined) {
      const stack = `blk.${layer}.ffn_${parts[matrix]}_exps.${ending}`;
      const known = joined.get(stack) ?? { shape, values: [] };
      known.values.push(values);
      joined.set(stack, known);
    } else {
      const shown = names
        .reduce((text, [pattern, by]) => text.replace(pattern, by), name)
        .replace(router, "ffn_gate_inp")
        .replace("post_attention_layernorm", file === "gpt-oss" ? "post_attention_norm" : "ffn_norm");
      const isTurned = isInterleaved && /self_attn\.[qk]_proj/.test(name);
      floats(shown, shape, isTurned ? interleaved(values, shape[1] ?? 1) : values);
    }
  }
  for (const [name, { shape, values }] of joined) {
    const all = Float32Array.from(values.flatMap((part) => [...part]));
    if (name.endsWith(".bias")) floats(name, [values.length, ...shape], all);
    else
      entries.push({ name, sizes: [values.length, ...shape].toReversed(), type: stacks.type, data: stacks.bytes(all) });
  }
  return entries;
}
