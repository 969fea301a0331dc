/** Numbers of config.json and params.json that nobody would run: errors name the file and the field, and nothing is made. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { LowbitError } from "../errors.ts";
import { loadCheckpoint } from "./load.ts";

const folder = await temporaryFolder();
let count = 0;

async function failure(fields: object): Promise<Error> {
  const path = join(folder, `${++count}`);
  await writeTinyCheckpoint(path);
  const file = join(path, "config.json");
  const config = JSON.parse(await readFile(file, "utf8"));
  await writeFile(file, JSON.stringify({ ...config, ...fields }));
  const error: unknown = await loadCheckpoint(path).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(LowbitError);
  return error as Error;
}

const fields = [
  ...["num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "intermediate_size"],
  ...["vocab_size", "head_dim", "max_position_embeddings"],
];
const values = [0, -1, 1.5, 1e18, 2 ** 53, 1e300, "7", [7], { a: 7 }, true];
it.each(fields.flatMap((field) => values.map((value) => [field, value] as const)))("%s %j", async (field, value) => {
  const { message } = await failure({ [field]: value });
  expect(message).toContain(`config.json: ${field}: expected`);
});

it.each([
  ["num_hidden_layers", 1e7],
  ["num_hidden_layers", 4000],
  ["num_attention_heads", 1e9],
  ["head_dim", 1e9],
] as const)("%s %d, which is a whole number", async (field, value) => {
  const { message } = await failure({ [field]: value });
  expect(message).toContain(`config.json: ${field}: expected at most`);
});

it.each([
  ["hidden_size", 2 ** 30],
  ["intermediate_size", 2 ** 30],
  ["vocab_size", 2 ** 30],
  ["head_dim", 65534],
] as const)("%s %d, against the tensors", async (field, value) => {
  const { message } = await failure({ [field]: value });
  expect(message).toMatch(/tensor .*: expected shape .* by the config but found/);
});

it.each([
  [{ sliding_window: 1e18, architectures: ["MistralForCausalLM"] }, /config.json: sliding_window: expected at most/],
  [
    { layer_types: "x".repeat(1e6), architectures: ["Qwen2ForCausalLM"] },
    /layer_types: expected a list but found "x+…/,
  ],
  [{ layer_types: [], architectures: ["Qwen2ForCausalLM"] }, /layer_types: expected a list of at least/],
  [{ sliding_window_pattern: 1e18, architectures: ["Gemma3ForCausalLM"] }, /sliding_window_pattern: expected at most/],
  [{ rope_scaling: { rope_type: "longrope", short_factor: Array(1e5).fill(1) } }, /short_factor: expected a list of/],
  [{ rope_scaling: { rope_type: "yarn", factor: 0 } }, /rope_scaling: factor: expected a positive number/],
  [{ rope_scaling: { rope_type: "yarn", factor: 2, original_max_position_embeddings: 1e18 } }, /expected at most/],
  [{ partial_rotary_factor: 1e9, architectures: ["Phi3ForCausalLM"] }, /partial_rotary_factor: expected a part of/],
  [{ num_attention_heads: 60000, head_dim: null }, /num_attention_heads: expected at most hidden_size, 32, but found/],
  [{ rope_theta: -1 }, /rope_theta: expected a positive number but found -1/],
])("other fields: %j", async (given, message) => {
  const error = await failure(given);
  expect(error.message).toMatch(message);
  expect(error.message.length).toBeLessThan(1000);
});
