/** How positions are embedded, as llama.cpp reads it: by its formulas, with numbers worked out here. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { type GgufEntry, ggufFile, type Metadata } from "../../../test/support/gguf.ts";
import { openGguf } from "./open.ts";

const folder = await temporaryFolder();
let count = 0;

const entry = (name: string, ...sizes: number[]): GgufEntry => ({
  ...{ name, sizes, type: 0, data: new Uint8Array(4 * sizes.reduce((product, size) => product * size, 1)) },
});
const tensors = [entry("token_embd.weight", 32, 8), entry("blk.0.attn_q.weight", 32, 32)];
const divisors = { ...entry("rope_freqs.weight", 4), data: new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer) };

async function config(arch: string, changes: Record<string, Metadata>, more: GgufEntry[] = []) {
  const sizes = { context_length: 64, embedding_length: 32, block_count: 1, feed_forward_length: 32 };
  const heads = { "attention.head_count": 4, "attention.layer_norm_rms_epsilon": 1e-5 };
  const keys = Object.entries({ ...sizes, ...heads, ...changes }).map(([key, value]) => [`${arch}.${key}`, value]);
  const path = join(folder, `${++count}.gguf`);
  const metadata = { "general.architecture": arch, ...Object.fromEntries(keys) };
  await writeFile(path, ggufFile(metadata, [...tensors, ...more]));
  const checkpoint = await openGguf(path);
  await checkpoint.close();
  return checkpoint.config;
}

const even = (value: number) => [value, value, value, value];
it.each<[Record<string, Metadata>, GgufEntry[], object | null]>([
  [{}, [], null],
  [{ "rope.scaling.factor": 8 }, [], { rope_type: "linear", factor: 8 }],
  [{ "rope.scale_linear": 8 }, [], { rope_type: "linear", factor: 8 }],
  [{ "rope.scale_linear": 8, "rope.scaling.factor": 2 }, [], { rope_type: "linear", factor: 2 }],
  [{ "rope.scaling.factor": 8, "rope.scaling.type": "none" }, [], null],
  [{ "rope.scaling.factor": 0 }, [], null],
  [{ "rope.scaling.factor": 8, "rope.scaling.finetuned": true }, [], { rope_type: "linear", factor: 8 }],
  [
    { "rope.scaling.type": "yarn", "rope.scaling.factor": 4, "rope.scaling.attn_factor": 0.5 },
    [],
    {
      ...{ rope_type: "yarn", factor: 4, original_max_position_embeddings: 64 },
      attention_factor: 0.5 * (1 + 0.1 * Math.log(4)),
    },
  ],
  [
    { "rope.scaling.factor": 8, "rope.scaling.attn_factor": 0.5 },
    [],
    {
      ...{ rope_type: "longrope", short_factor: even(8), long_factor: even(8), attention_factor: 0.5 },
      original_max_position_embeddings: 64,
    },
  ],
  [
    { "rope.scaling.factor": 2 },
    [divisors],
    {
      ...{ rope_type: "longrope", short_factor: [2, 4, 6, 8], long_factor: [2, 4, 6, 8], attention_factor: 1 },
      original_max_position_embeddings: 64,
    },
  ],
])("scaling %j", async (changes, more, expected) => {
  expect((await config("llama", changes, more)).rope_scaling).toEqual(expected);
});

it.each<[string, Record<string, Metadata>, GgufEntry[], RegExp]>([
  ["llama", { "rope.dimension_count": 4 }, [], /llama.rope.dimension_count 4 is not supported, only 8/],
  ["qwen2", { "rope.dimension_count": 4 }, [], /qwen2.rope.dimension_count 4 is not supported/],
  ["phi3", { "rope.dimension_count": 16 }, [], /phi3.rope.dimension_count 16 is not supported/],
  ["llama", { "rope.scaling.type": "su" }, [], /rope scaling "su" is not supported/],
  [
    "llama",
    { "rope.scaling.factor": -1.5 },
    [],
    /llama.rope.scaling.factor: expected a positive number but found -1.5/,
  ],
  [
    "llama",
    { "rope.scale_linear": Number.NaN },
    [],
    /llama.rope.scale_linear: expected a positive number but found NaN/,
  ],
  ["llama", { "rope.scaling.type": "yarn" }, [divisors], /rope scaling "yarn" with tensor rope_freqs.weight/],
  ["llama", {}, [entry("rope_freqs.weight", 5)], /tensor rope_freqs.weight: expected \[4\] but found \[5\]/],
  ["qwen2", {}, [divisors], /tensor rope_freqs.weight is not supported in models of Qwen2ForCausalLM/],
  ["llama", { "attention.value_length": 16 }, [], /llama.attention.value_length other than 8/],
  ["qwen3", { expert_count: 4 }, [], /mixtures of experts of "qwen3" are not supported \(qwen3.expert_count 4\)/],
  ["llama", {}, [entry("blk.0.ffn_gate_inp.weight", 32, 4)], /experts of "llama" are not supported \(tensor blk.0/],
  ["llama", { "attention.causal": false }, [], /only causal attention/],
  ["llama", { block_count: 1e7 }, [], /llama.block_count: expected a whole number from 1 to 512 but found 10000000/],
  ["llama", { block_count: 2 }, [], /llama.block_count: expected 1, the layers of its tensors, but found 2/],
  ["llama", { block_count: 1.5 }, [], /llama.block_count: expected a whole number from 1 to 512 but found 1.5/],
  ["llama", { "attention.head_count": 1e9 }, [], /llama.attention.head_count: expected a whole number from 1 to 65536/],
  ["llama", { "attention.head_count": 33 }, [], /llama.attention.head_count: 33 heads of embeddings of 32/],
  ["llama", { context_length: 0 }, [], /llama.context_length: expected a whole number from 1 to/],
  [
    "llama",
    { "attention.layer_norm_rms_epsilon": Number.NaN },
    [],
    /rms_epsilon: expected a positive number but found NaN/,
  ],
])("%s with %j is refused", async (arch, changes, more, message) => {
  await expect(config(arch, changes, more)).rejects.toThrow(message);
});

it("rotates a part of the heads of Phi-3", async () => {
  const { partial_rotary_factor, head_dim } = await config("phi3", { "rope.dimension_count": 6 });
  expect(Number(partial_rotary_factor) * Number(head_dim)).toBe(6);
});
