/** Models with a layer of multi-token prediction, quantized in several ways: the layer is quantized with them, and guesses on. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeHybridCheckpoint } from "../../test/support/hybrid-checkpoint.ts";
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
