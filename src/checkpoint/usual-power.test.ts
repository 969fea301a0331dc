/** What goes into matrices without a text of the user's, beside plain loops in double precision. */
import { cp, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { tinyConfig, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { intxWeightOnly, sharedEmbedding } from "../quantize/config.ts";
import { quantizeMse } from "../quantize/mse.ts";
import { dequantize, type QuantizedWeights } from "../quantized.ts";
import { type Tensor, toFloat32 } from "../tensor.ts";
import { calibrate } from "./calibrate/calibrate.ts";
import { calibrationIds, type LinearLayer, visitLinearLayers } from "./calibrate/walk.ts";
import { beginnings, questions } from "./calibration-beginnings.ts";
import { expectedPower } from "./expected-power.ts";
import { loadCheckpoint } from "./load.ts";
import type { Model } from "./model.ts";
import { quantize } from "./quantize.ts";
import { usualPower } from "./usual-power.ts";

const folder = await temporaryFolder();
const checkpoint = join(folder, "tiny");
await writeTinyCheckpoint(checkpoint);
const scheme = { bits: 4, groupSize: 32, mappingType: "codebook", algorithm: "mse", scaleDType: "f16" } as const;
const QUERIES = "model.layers.0.self_attn.q_proj.weight";
const text = [...Object.values(beginnings).flat(), ...questions].join("\n");

const floats = async (model: Model, name: string) =>
  toFloat32((await model.weight(name, { float: true }).load()) as Tensor);

/** Mean squares of what the first norm gives for the first 128 tokens, or as many as the context has, in windows that change nothing here. */
async function inputsOfQueries(model: Model): Promise<number[]> {
  const [table, gains] = [
    await floats(model, "model.embed_tokens.weight"),
    await floats(model, "model.layers.0.input_layernorm.weight"),
  ];
  const k = gains.length;
  const ids = calibrationIds(model, text, 128);
  const sums = new Array<number>(k).fill(0);
  for (const id of ids) {
    const row = Array.from(table.subarray(id * k, (id + 1) * k));
    const mean = row.reduce((sum, value) => sum + value * value, 0) / k;
    for (let c = 0; c < k; c++) sums[c]! += (row[c]! * gains[c]!) ** 2 / (mean + tinyConfig.rms_norm_eps);
  }
  return sums.map((sum) => sum / ids.length);
}

it("is the mean square of inputs while the model reads how texts begin", async () => {
  const model = await loadCheckpoint(checkpoint);
  const found = (await usualPower(model)).get(QUERIES)!;
  for (const [c, value] of (await inputsOfQueries(model)).entries())
    expect(Math.abs(found[c]! / value - 1), `column ${c}`).toBeLessThan(1e-3);
  await model.close();
});

it("weighs the errors of searched scales, and of no others", async () => {
  const model = await loadCheckpoint(checkpoint);
  const power = await inputsOfQueries(model);
  const mean = power.reduce((sum, value) => sum + value, 0) / power.length;
  const weights = await floats(model, QUERIES);
  quantize(model, [intxWeightOnly(scheme)]);
  model.usual.scales = false;
  const found = (await model.importanceOf(QUERIES))!;
  for (const [c, value] of power.entries()) expect(found[c]).toBeCloseTo(value / mean + 0.01, 3);
  const [n, k] = [tinyConfig.hidden_size, tinyConfig.hidden_size];
  const quantized = (await model.weight(QUERIES).load()) as QuantizedWeights;
  expect(dequantize(quantized)).toEqual(dequantize(quantizeMse(weights, { ...scheme, n, k }, found)));
  quantize(model, [intxWeightOnly({ ...scheme, mappingType: "symmetric", algorithm: "affine" })]);
  expect(await model.importanceOf(QUERIES)).toBeNull();
  await model.close();
});

it("of a table that is the head, too, is what goes into the head", async () => {
  const model = await loadCheckpoint(checkpoint);
  quantize(model, [sharedEmbedding(scheme)]);
  const power = (await usualPower(model)).get("lm_head.weight")!;
  const mean = power.reduce((sum, value) => sum + value, 0) / power.length;
  for (const name of ["model.embed_tokens.weight", "lm_head.weight"])
    expect(await model.importanceOf(name)).toEqual(power.map((value) => value / mean + 0.1));
  await model.close();
});

it("is read before other matrices are calibrated", async () => {
  const model = await loadCheckpoint(checkpoint);
  quantize(model, [intxWeightOnly({ ...scheme, algorithm: "imatrix" }), sharedEmbedding(scheme)]);
  const before = await model.importanceOf("lm_head.weight");
  const other = await loadCheckpoint(checkpoint);
  quantize(other, [intxWeightOnly({ ...scheme, algorithm: "imatrix" }), sharedEmbedding(scheme)]);
  await calibrate(other, text, { window: 32, maxTokens: 64 });
  expect(await other.importanceOf("lm_head.weight")).toEqual(before);
  await model.close();
  await other.close();
});

it("is what the weights let expect, for a checkpoint without a tokenizer", async () => {
  const mute = join(folder, "mute");
  await cp(checkpoint, mute, { recursive: true });
  await rm(join(mute, "tokenizer.json"));
  const model = await loadCheckpoint(mute);
  quantize(model, [intxWeightOnly(scheme)]);
  expect((await usualPower(model)).size).toBe(0);
  const expected = await expectedPower(model, QUERIES);
  expect(expected).not.toBeNull();
  expect(await model.importanceOf(QUERIES)).toEqual(expected);
  await model.close();
});

it("is not known once reading was ended early, and read anew", async () => {
  const model = await loadCheckpoint(checkpoint);
  quantize(model, [intxWeightOnly(scheme)]);
  await expect(model.importanceOf(QUERIES, AbortSignal.abort(new Error("enough")))).rejects.toThrow("enough");
  expect(await model.importanceOf(QUERIES)).not.toBeNull();
  await model.close();
});

it("counts beside the inputs of a text, 0.3 of the exponent", async () => {
  const model = await loadCheckpoint(checkpoint);
  quantize(model, [sharedEmbedding({ ...scheme, algorithm: "imatrix" })]);
  const reading = { window: 32, maxTokens: 64 };
  const sums = new Array<number>(tinyConfig.hidden_size).fill(0);
  const visit = async ({ name, inputs }: LinearLayer) => {
    if (name !== "lm_head.weight") return null;
    for (const [i, value] of inputs().data.entries()) sums[i % sums.length]! += value ** 2 / 64;
    return null;
  };
  await visitLinearLayers(model, "To be, or not to be: that is the question.".repeat(8), visit, reading);
  const usual = (await usualPower(model)).get("lm_head.weight")!;
  const power = sums.map((value, c) => Math.exp(0.7 * Math.log(value) + 0.3 * Math.log(usual[c]!)));
  const mean = power.reduce((sum, value) => sum + value, 0) / power.length;
  await calibrate(model, "To be, or not to be: that is the question.".repeat(8), reading);
  const found = (await model.importanceOf("lm_head.weight"))!;
  for (const [c, value] of power.entries()) expect(found[c]).toBeCloseTo(value / mean + 0.1, 4);
  await model.close();
});
