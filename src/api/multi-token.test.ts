/** Models with what drafts for them, quantized in several ways: that is quantized with them, and guesses on. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeAssistantCheckpoint, writeHybridCheckpoint } from "../../test/support/hybrid-checkpoint.ts";
import { calibrate } from "../checkpoint/calibrate/calibrate.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import type { Model } from "../checkpoint/model.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { int8DynamicActivationIntxWeight, type QuantizationConfig } from "../quantize/config.ts";
import type { Algorithm } from "../quantize/scheme.ts";
import { programBytes } from "./compile-model.ts";
import { fitSize } from "./fit-size.ts";
import { loadCompiled } from "./load-compiled.ts";

const path = join(await temporaryFolder(), "mtp");
await writeHybridCheckpoint(path, "qwen3_5", { mtp_num_hidden_layers: 1 });
const text = readFileSync(new URL("../../models/shakespeare/heldout.txt", import.meta.url), "utf8").slice(0, 3000);
const reading = { maxTokens: 128, window: 64 };
const FC = "mtp.fc.weight";

/** Logits of a guess behind a text. */
async function guess(model: Model): Promise<Float32Array> {
  const llm = await loadCompiled(model);
  const decoder = llm.createDecoder();
  await decoder.prefill([5, 100, 20, 7]);
  const logits = (await decoder.draft!([250]))!.slice();
  await llm.dispose();
  return logits;
}

function cosine(a: Float32Array, b: Float32Array): number {
  const dot = (x: Float32Array, y: Float32Array) => x.reduce((sum, value, i) => sum + value * y[i]!, 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}

async function guessWith(change: (model: Model) => Promise<void>): Promise<Float32Array> {
  const model = await loadCheckpoint(path);
  await change(model);
  const logits = await guess(model);
  await model.close();
  return logits;
}

const float = await guessWith(async () => {});
const configOf = (algorithm: Algorithm): QuantizationConfig =>
  int8DynamicActivationIntxWeight({ bits: 8, groupSize: 32, algorithm });

test.each(["mse", "imatrix", "gptq", "awq"] as const)("by %s", async (algorithm) => {
  const found = await guessWith(async (model) => {
    quantize(model, [configOf(algorithm)]);
    expect(model.configOf(FC)?.bits).toBe(8);
    if (algorithm !== "mse") await calibrate(model, text, reading);
  });
  expect(cosine(found, float)).toBeGreaterThan(0.99);
});

test("an assistant beside its model", async () => {
  const folder = await temporaryFolder();
  const [target, draftHead] = ["gemma4", "assistant"].map((name) => join(folder, name)) as [string, string];
  await writeHybridCheckpoint(target, "gemma4");
  await writeAssistantCheckpoint(draftHead);
  const guesses: Float32Array[] = [];
  for (const algorithm of [null, "mse", "gptq"] as const) {
    const model = await loadCheckpoint(target, { draftHead });
    if (algorithm) quantize(model, [configOf(algorithm)]);
    if (algorithm === "gptq") await calibrate(model, text, reading);
    guesses.push(await guess(model));
    await model.close();
  }
  for (const found of guesses.slice(1)) expect(cosine(found, guesses[0]!)).toBeGreaterThan(0.98);
});

test("what drafts for another model is refused, both named", async () => {
  const folder = await temporaryFolder();
  const [assistant, other] = [join(folder, "assistant"), join(folder, "other")];
  await writeAssistantCheckpoint(assistant);
  await writeAssistantCheckpoint(other, { backbone_hidden_size: 7 });
  const gemma = join(folder, "gemma4");
  await writeHybridCheckpoint(gemma, "gemma4");
  await expect(loadCheckpoint(gemma, { draftHead: other })).rejects.toThrow(
    /backbone_hidden_size: expected \d+, as in the model, but found 7/,
  );
  await expect(loadCheckpoint(path, { draftHead: assistant })).rejects.toThrow(
    `expected what drafts for Qwen3_5ForCausalLM of ${path} but found Gemma4AssistantForCausalLM`,
  );
  await expect(loadCheckpoint(path, { draftHead: gemma })).rejects.toThrow(
    `${gemma}: expected tensors mtp.* or an assistant of Gemma 4 to draft for ${path} but found neither`,
  );
});

test("to a size, which is no reason to have fewer bits where no prediction shows it", async () => {
  const found = await guessWith(async (model) => {
    quantize(model, [configOf("mse")]);
    const bytes = Math.round(programBytes(model) * 0.9);
    await fitSize(model, text, { ...reading, bytes });
    expect(programBytes(model)).toBeLessThanOrEqual(bytes);
    expect(model.configOf(FC)?.bits).toBe(8);
  });
  expect(cosine(found, float)).toBeGreaterThan(0.95);
});

test.each([
  ["floats", null],
  ["8 bits", configOf("mse")],
] as const)("of a large vocabulary, tokens of the least ids are guessed: %s", async (_, config) => {
  const vocabulary = 98_336;
  const folder = join(await temporaryFolder(), "large");
  await writeHybridCheckpoint(folder, "qwen3_5", { mtp_num_hidden_layers: 1, vocab_size: vocabulary });
  const guessOf = async (change: (model: Model) => void) => {
    const model = await loadCheckpoint(folder);
    if (config) quantize(model, [config]);
    change(model);
    const logits = await guess(model);
    await model.close();
    return logits;
  };
  const all = await guessOf(({ decoder }) => {
    for (const part of [decoder.draftHead!, decoder.transformer!.drafter!])
      Object.defineProperty(part, "vocabularySize", { value: vocabulary });
  });
  const found = await guessOf(() => {});
  expect([all.length, found.length]).toEqual([vocabulary, 98_304]);
  expect(found).toEqual(all.subarray(0, found.length));
});
