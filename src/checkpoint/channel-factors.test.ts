/** Channels that typical inputs scale, beside the float model and plain loops. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { exactHost } from "../../test/support/exact-rows.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { type TinyConfig, tinyConfig, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { EagerModel } from "../api/eager-model.ts";
import {
  type ConfigOptions,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  type QuantizationConfig,
  sharedEmbedding,
} from "../quantize/config.ts";
import { dequantize, type QuantizedWeights } from "../quantized.ts";
import { type Tensor, toFloat32 } from "../tensor.ts";
import { calibrate } from "./calibrate/calibrate.ts";
import { meanDivergence } from "./calibrate/sensitivity.ts";
import { calibrationIds } from "./calibrate/walk.ts";
import { loadCheckpoint } from "./load.ts";
import type { Model } from "./model.ts";
import { quantize } from "./quantize.ts";

const folder = await temporaryFolder();
const text = "To be, or not to be, that is the question: whether it is nobler in the mind to suffer. ".repeat(20);
const searched: ConfigOptions = { bits: 8, groupSize: 32, algorithm: "mse" };

/** A checkpoint in which every eighth channel of each norm is 30 times the others, made up for by the weights behind it. */
async function uneven(name: string, config: TinyConfig = {}): Promise<string> {
  const path = join(folder, name);
  const factor = (c: number) => (c % 8 === 0 ? 30 : 1);
  const edit = (tensor: string, values: Float32Array) => {
    if (/norm/.test(tensor)) for (let c = 0; c < values.length; c++) values[c]! *= factor(c);
    if (/(q|k|v|gate|up)_proj.weight|lm_head/.test(tensor))
      for (let i = 0; i < values.length; i++) values[i]! /= factor(i % tinyConfig.hidden_size);
  };
  await writeTinyCheckpoint(path, { config, edit });
  return path;
}

const biased = await uneven("biased", { attention_bias: true, mlp_bias: true, tie_word_embeddings: false });
const tied = await uneven("tied");

async function logitsOf(model: Model): Promise<Tensor> {
  const eager = await EagerModel.load(model, { logits: "all", cpu: exactHost() });
  return eager.forward(calibrationIds(model, text, 48), 0);
}

async function divergenceOf(path: string, config: QuantizationConfig, scales: boolean): Promise<number> {
  const [float, model] = [await loadCheckpoint(path), await loadCheckpoint(path)];
  quantize(model, [config]);
  model.usual.scales = scales;
  if (config.algorithm !== "mse" && config.algorithm !== "affine") await calibrate(model, text, { maxTokens: 128 });
  const divergence = meanDivergence([await logitsOf(float)], [await logitsOf(model)]);
  await Promise.all([float.close(), model.close()]);
  return divergence;
}

describe.each([
  ["biases, and a head of its own", biased],
  ["a head that is the embedding, too", tied],
])("%s", (_, path) => {
  it.each(["mse", "imatrix", "gptq"] as const)("activations of 8 bits lose less: %s", async (algorithm) => {
    const config = int8DynamicActivationIntxWeight({ ...searched, algorithm });
    const plain = await divergenceOf(path, config, false);
    expect(await divergenceOf(path, config, true)).toBeLessThan(0.5 * plain);
  });
});

const quantized = async (model: Model, name: string) =>
  dequantize((await model.weight(name).load()) as QuantizedWeights);
const floats = async (model: Model, name: string, float: boolean) =>
  toFloat32((await model.weight(name, float ? { float } : {}).load()) as Tensor);

it("what one side is divided by multiplies the other", async () => {
  const model = await loadCheckpoint(biased);
  quantize(model, [int8DynamicActivationIntxWeight(searched)]);
  const k = tinyConfig.hidden_size;
  const layer = "model.layers.1.";
  const stored = await floats(model, `${layer}post_attention_layernorm.weight`, true);
  const divided = await floats(model, `${layer}post_attention_layernorm.weight`, false);
  const factors = stored.map((value, c) => value / divided[c]!);
  expect(Math.max(...factors) / Math.min(...factors)).toBeGreaterThan(2);
  const down = await floats(model, `${layer}mlp.down_proj.weight`, true);
  const scaledDown = await quantized(model, `${layer}mlp.down_proj.weight`);
  const width = tinyConfig.intermediate_size;
  const [bias, dividedBias] = [true, false].map((float) => floats(model, `${layer}mlp.up_proj.bias`, float));
  const [biases, divisors] = [await bias!, await dividedBias!];
  for (const name of ["gate", "up"]) {
    const weights = await floats(model, `${layer}mlp.${name}_proj.weight`, true);
    const found = await quantized(model, `${layer}mlp.${name}_proj.weight`);
    for (let row = 0; row < width; row++) {
      const divisor = name === "up" ? biases[row]! / divisors[row]! : 1;
      const wanted = stored.map((_, c) => (weights[row * k + c]! * factors[c]!) / divisor);
      const step = Math.max(...wanted.map(Math.abs)) / 127;
      for (const [c, value] of wanted.entries())
        expect(Math.abs(found[row * k + c]! - value), `${name} ${row} ${c}`).toBeLessThan(step);
    }
  }
  for (let c = 0; c < width; c++) {
    const factor = biases[c]! / divisors[c]!;
    for (let row = 0; row < k; row++) {
      const wanted = down[row * width + c]! * factor;
      const peak = Math.max(...scaledDown.subarray(row * width, (row + 1) * width).map(Math.abs));
      expect(Math.abs(scaledDown[row * width + c]! - wanted)).toBeLessThan(peak / 127);
    }
  }
  await model.close();
});

it("TorchAO's integers, one scale a token, and norms of layers that stay float are not changed", async () => {
  const norm = "model.layers.0.input_layernorm.weight";
  for (const [config, quantizeHead] of [
    [int8DynamicActivationIntxWeight({ ...searched, algorithm: "affine" }), true],
    [int8DynamicActivationIntxWeight({ ...searched, activationGranularity: "per_token" }), true],
    [intxWeightOnly({ ...searched, algorithm: "hqq_scale_only" }), true],
    [sharedEmbedding(searched), true],
  ] as const) {
    const model = await loadCheckpoint(tied);
    quantize(model, [config], { quantizeHead });
    expect(await floats(model, norm, false)).toEqual(await floats(model, norm, true));
    await model.close();
  }
});
