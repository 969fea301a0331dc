/** Tables and heads whose rows differ in bits: programs give what a model with the same values in floats gives. */
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { compileModel } from "../api/compile-model.ts";
import { EagerModel } from "../api/eager-model.ts";
import { saveGguf } from "../api/save-gguf.ts";
import { saveTorchao } from "../api/save-torchao.ts";
import { listWeights } from "../api/weight-list.ts";
import type { Cpu } from "../kernels/contract.ts";
import { hostCpu, scalarCpu } from "../kernels/cpu.ts";
import { hasNative } from "../kernels/native/rows.ts";
import { wasmFeatures } from "../kernels/wasm/features.ts";
import type { FloatFormat } from "../ops/weight.ts";
import { embedding, intxWeightOnly, sharedEmbedding } from "../quantize/config.ts";
import { quantizeWeights } from "../quantize/mse.ts";
import { makeRecipe, parseRecipe } from "../quantize/recipe.ts";
import { schemesOfRows } from "../quantize/scheme.ts";
import { dequantize } from "../quantized.ts";
import { type Tensor, toFloat32 } from "../tensor.ts";
import { calibrate } from "./calibrate/calibrate.ts";
import { loadCheckpoint } from "./load.ts";
import type { Model } from "./model.ts";
import { formatRecipe, quantize, quantizeByRecipe } from "./quantize.ts";

const folder = await temporaryFolder();
const tied = join(folder, "tied");
const untied = join(folder, "untied");
await writeTinyCheckpoint(tied, {});
await writeTinyCheckpoint(untied, { config: { tie_word_embeddings: false } });

const TABLE = "model.embed_tokens.weight";
const HEAD = "lm_head.weight";
const wasmCpu: Cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };
const cpus = [scalarCpu, wasmCpu, ...(hasNative() ? [hostCpu()] : [])];
/** Ids of all ranges, and those at their ends. */
const ids = [0, 31, 32, 5, 127, 128, 281, 200, 1];
const scheme = { bits: 4, groupSize: 16, mappingType: "codebook", algorithm: "mse", scaleDType: "i8" } as const;
const ranges = [
  { rows: 32, bits: 8 },
  { rows: 96, bits: 6, groupSize: 32 },
] as const;

/** Gives a slot of another model the values of its configuration as floats, each range quantized by itself. */
async function copyAsFloats(to: Model, from: Model, name: string): Promise<void> {
  const { shape, load } = from.weight(name, { float: true });
  const [n, k] = shape as [number, number];
  const values = toFloat32((await load()) as Tensor);
  const importance = await from.importanceOf(name);
  const parts = schemesOfRows(n, from.configOf(name)!).map(({ first, rows, scheme: own }) =>
    dequantize(quantizeWeights(values.slice(first * k, (first + rows) * k), { ...own, n: rows, k }, importance)),
  );
  const tensor = { dtype: "f32", shape: [n, k], data: Float32Array.from(parts.flatMap((part) => [...part])) } as const;
  const format: FloatFormat = { kind: "float", dtype: "f32" };
  to.replaceWeight(name, { name, shape: [n, k], format, load: async () => tensor });
}

async function logitsOf(model: Model, cpu: Cpu): Promise<Float32Array> {
  const eager = await EagerModel.load(model, { logits: "all", cpu });
  return eager.forward(ids, 0).data as Float32Array;
}

function expectNear(found: Float32Array, expected: Float32Array, most: number, message: string): void {
  expect(found.length).toBe(expected.length);
  const worst = found.reduce((difference, value, i) => Math.max(difference, Math.abs(value - expected[i]!)), 0);
  expect(worst, message).toBeLessThan(most);
}

async function opened(path: string): Promise<Model> {
  const model = await loadCheckpoint(path);
  onTestFinished(() => model.close());
  return model;
}

describe("rows of several numbers of bits", () => {
  it("are those of a table and a head of their own", async () => {
    const model = await opened(untied);
    const head = intxWeightOnly({ ...scheme, ranges: [{ rows: 64, bits: 5 }] });
    quantize(model, [embedding({ ...scheme, ranges })], { head });
    const expected = await opened(untied);
    for (const name of [TABLE, HEAD]) await copyAsFloats(expected, model, name);
    const floats = await logitsOf(expected, scalarCpu);
    for (const cpu of cpus) expectNear(await logitsOf(model, cpu), floats, 2e-5, cpu.name);
  });

  it("are those of a table that is the head, of one buffer for each range", async () => {
    const model = await opened(tied);
    quantize(model, [sharedEmbedding({ ...scheme, ranges })]);
    const expected = await opened(tied);
    await copyAsFloats(expected, model, TABLE);
    const floats = await logitsOf(expected, scalarCpu);
    const reference = await logitsOf(model, scalarCpu);
    expectNear(reference, floats, 0.05, "beside activations of 8 bits");
    for (const cpu of cpus) expectNear(await logitsOf(model, cpu), reference, 2e-5, cpu.name);
    const names = listWeights(compileModel(model)).map(({ name, shape }) => `${name} ${shape}`);
    expect(names.filter((name) => name.startsWith(TABLE))).toEqual([
      `${TABLE}[0:32] 32,32`,
      `${TABLE}[32:128] 96,32`,
      `${TABLE}[128:282] 154,32`,
    ]);
  });

  it("are in recipes", async () => {
    const model = await opened(tied);
    quantize(model, [sharedEmbedding({ ...scheme, ranges })]);
    const written = formatRecipe(model);
    const other = await opened(tied);
    quantizeByRecipe(other, parseRecipe(written, "plan.json"));
    expect(other.configOf(TABLE)).toEqual(model.configOf(TABLE));
    expect(formatRecipe(other)).toBe(written);
  });

  it.each<[string, object, string]>([
    ["no list", { ranges: 6 }, "expected a list of 1 to 4 objects with rows and bits, got 6"],
    ["rows that cut a panel", { ranges: [{ rows: 40, bits: 6 }] }, "expected rows that are a multiple of 32, got 40"],
    ["bits", { ranges: [{ rows: 32, bits: 9 }] }, "ranges: bits must be a whole number from 1 to 8, got 9"],
    ["groups", { ranges: [{ rows: 32, bits: 6, groupSize: 64 }] }, 'scaleDType "i8" is for groups of 16 or 32, got 64'],
    ["fields", { ranges: [{ rows: 32, bits: 6, algorithm: "mse" }] }, 'groupSize, mappingType, got "algorithm"'],
    ["algorithms", { ranges, algorithm: "awq" }, 'algorithm "awq" has no ranges; choose "imatrix" or "gptq"'],
  ])("refuses other %s", (_, options, message) => {
    expect(() => sharedEmbedding({ ...scheme, ...options })).toThrow(message);
  });

  it("refuses as many rows as there are, and other layers, with nothing set", async () => {
    const model = await opened(tied);
    const most = sharedEmbedding({ ...scheme, ranges: [{ rows: 288, bits: 6 }] });
    expect(() => quantize(model, [most])).toThrow(`${TABLE}: ranges: expected fewer than its 282 rows but found 288`);
    const gate = "model.layers.0.mlp.gate_proj";
    const recipe = makeRecipe([[gate, intxWeightOnly({ ...scheme, ranges })]]);
    expect(() => quantizeByRecipe(model, recipe)).toThrow(`${gate}.weight: ranges are of tables and output layers`);
    expect(model.configs.size).toBe(0);
  });

  it("are refused by files of others, and by the head of a smoothed model", async () => {
    const model = await opened(untied);
    const of = { ...scheme, scaleDType: "f16", groupSize: 32, mappingType: "symmetric", ranges } as const;
    quantize(model, [], { head: intxWeightOnly({ ...of, ranges: [{ rows: 32, bits: 8 }] }) });
    await expect(saveGguf(model, join(folder, "ranges.gguf"))).rejects.toThrow(`${HEAD}: cannot be written as blocks`);
    await expect(saveTorchao(model, join(folder, "torchao"))).rejects.toThrow(
      `${HEAD}: TorchAO's integers cannot hold`,
    );
    expect(() => compileModel(model, { target: "executorch" })).toThrow(`${HEAD}: ranges: layout`);
    await expect(calibrate(model, "a text to read", { smoothQuant: 0.5 })).rejects.toThrow(`${HEAD}: ranges`);
  });
});
