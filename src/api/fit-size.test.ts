import { readFileSync, statSync, writeFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { tinyConfig, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { meanDivergence } from "../checkpoint/calibrate/sensitivity.ts";
import { calibrationIds } from "../checkpoint/calibrate/walk.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import type { Model } from "../checkpoint/model.ts";
import { formatRecipe, quantize, quantizeByRecipe } from "../checkpoint/quantize.ts";
import { buildDecoder } from "../model/architectures.ts";
import { int8DynamicActivationIntxWeight, intxWeightOnly, sharedEmbedding } from "../quantize/config.ts";
import { parseRecipe } from "../quantize/recipe.ts";
import { schemesOfRows } from "../quantize/scheme.ts";
import { EagerModel } from "./eager-model.ts";
import { exportProgram } from "./export-program.ts";
import { fitSize } from "./fit-size.ts";

const folder = await temporaryFolder();
const checkpoint = join(folder, "tiny");
await writeTinyCheckpoint(checkpoint, { dtype: "bf16" });
const text = readFileSync(new URL("../../models/shakespeare/heldout.txt", import.meta.url), "utf8").slice(0, 3000);
const reading = { maxTokens: 64, window: 64 };
const weights = { bits: 4, groupSize: 32, mappingType: "codebook", algorithm: "mse", scaleDType: "f16" } as const;

async function opened(path = checkpoint): Promise<Model> {
  const model = await loadCheckpoint(path);
  return quantize(model, [intxWeightOnly(weights), sharedEmbedding(weights)]);
}

/** Bytes of the program with these bits and groups for all. */
async function uniformBytes(bits: number, groupSize: number): Promise<number> {
  const model = await loadCheckpoint(checkpoint);
  const all = { ...weights, bits, groupSize, mappingType: bits > 4 ? "symmetric" : "codebook" } as const;
  quantize(model, [intxWeightOnly(all), sharedEmbedding(all)]);
  const file = join(folder, `uniform-${bits}-${groupSize}.pte`);
  await exportProgram(model, file);
  await model.close();
  return statSync(file).size;
}

async function logitsOf(model: Model) {
  const eager = await EagerModel.load(model, { logits: "all" });
  return eager.forward(calibrationIds(model, text, reading.maxTokens), 0);
}

describe("a size", () => {
  it("is not chosen again where the same call has kept it", async () => {
    const few = { maxTokens: 8, window: 8 };
    const options = { ...few, bytes: await uniformBytes(4, 32), folder: join(folder, "kept") };
    const choose = async (more: Partial<typeof options> = {}) => {
      const model = await opened();
      let measured = 0;
      const fitted = await fitSize(model, text, { ...options, ...more, onProgress: () => void measured++ });
      const found = { fitted, measured, recipe: formatRecipe(model) };
      await model.close();
      return found;
    };
    const first = await choose();
    expect(first.measured).toBeGreaterThan(0);
    expect(await choose()).toEqual({ ...first, measured: 0 });
    const kept = join(options.folder, "size.json");
    const known = readFileSync(kept, "utf8");
    for (const damaged of [known.slice(0, -20), known.replace('"bits":4', '"bits":3')]) {
      writeFileSync(kept, damaged);
      expect(await choose()).toEqual(first);
      expect(readFileSync(kept, "utf8")).toBe(known);
    }
    expect((await choose({ bytes: options.bytes + 1000 })).measured).toBeGreaterThan(0);
  });

  it.each([3, 4, 6])("is what the file takes, near that of %d bits for all, and no worse than those", async (bits) => {
    const bytes = (await uniformBytes(bits, 32)) + 50;
    const model = await opened();
    const fitted = await fitSize(model, text, { ...reading, bytes });
    const file = join(folder, "fitted.pte");
    await exportProgram(model, file);
    expect(statSync(file).size).toBe(fitted.bytes);
    expect(fitted.bytes).toBeLessThanOrEqual(bytes);
    expect(fitted.bytes).toBeGreaterThan(0.98 * bytes);
    expect(fitted.divergence).toBeLessThanOrEqual(fitted.uniform!.divergence);
    expect(fitted.uniform!.bytes).toBe(await uniformBytes(fitted.uniform!.bits, fitted.uniform!.groupSize as number));
    // The predictions of the model itself, by another way.
    const float = await loadCheckpoint(checkpoint);
    const divergence = meanDivergence([await logitsOf(float)], [await logitsOf(model)]);
    expect(fitted.divergence).toBeGreaterThan(0.9 * divergence);
    expect(fitted.divergence).toBeLessThan(1.1 * divergence);
    await float.close();
    await model.close();
  });

  it("has groups of 16 and 32 where scales have 8 bits", async () => {
    const model = await loadCheckpoint(checkpoint);
    const integers = { ...weights, scaleDType: "i8" } as const;
    quantize(model, [intxWeightOnly(integers), sharedEmbedding(integers)]);
    const bytes = (await uniformBytes(4, 32)) + 50;
    const fitted = await fitSize(model, text, { ...reading, bytes });
    const file = join(folder, "integers.pte");
    await exportProgram(model, file);
    expect(statSync(file).size).toBe(fitted.bytes);
    expect(fitted.bytes).toBeLessThanOrEqual(bytes);
    const schemes = new Set(
      [...fitted.configs.values()].map(({ scaleDType, groupSize }) => `${scaleDType} ${groupSize}`),
    );
    expect([...schemes].toSorted()).toEqual(["i8 16", "i8 32"]);
    await model.close();
  });

  it("gives rows of a large table, which is the head, bits by how much their tokens are used", async () => {
    const large = join(folder, "large");
    // Logits of tokens 0 to 319, which the text has, are far from 0, so that some of them are likely.
    const edit = (name: string, values: Float32Array) => {
      const columns = values.length / 4800;
      if (name.includes("embed_tokens")) for (let i = 0; i < 320 * columns; i++) values[i]! *= 20;
    };
    await writeTinyCheckpoint(large, { config: { vocab_size: 4800 }, edit });
    const model = await opened(large);
    const refusal = await fitSize(model, text, { ...reading, bytes: 1000 }).catch((error: Error) => error.message);
    // So few that weights lose much more than the head's activations of 8 bits, which the divergence does not count.
    const bytes = Number(/expected at least (\d+)/.exec(refusal as string)![1]) + 10_000;
    const fitted = await fitSize(model, text, { ...reading, bytes, target: "lowbit" });
    const file = join(folder, "large.pte");
    await exportProgram(model, file);
    expect(statSync(file).size).toBe(fitted.bytes);
    expect(fitted.bytes).toBeLessThanOrEqual(bytes);
    const parts = schemesOfRows(4800, model.configOf("lm_head.weight")!);
    const bitsOf = (row: number) => parts.findLast(({ first }) => first <= row)!.scheme.bits;
    expect(bitsOf(0)).toBeGreaterThan(bitsOf(4799));
    expect(model.configOf("model.embed_tokens.weight")).toBe(model.configOf("lm_head.weight"));
    const float = await loadCheckpoint(large);
    const divergence = meanDivergence([await logitsOf(float)], [await logitsOf(model)]);
    expect(fitted.divergence).toBeGreaterThan(0.8 * divergence);
    expect(fitted.divergence).toBeLessThan(1.2 * divergence);
    expect(fitted.divergence).toBeLessThanOrEqual(fitted.uniform?.divergence ?? Infinity);
    await float.close();
    await model.close();
    const alike = await opened(large);
    const { configs } = await fitSize(alike, text, { maxTokens: 8, window: 8, bytes, ranges: false });
    expect([...configs.values()].filter(({ ranges }) => ranges)).toEqual([]);
    await alike.close();
  });

  it("that cannot be reached is refused with the least that can, which can", async () => {
    const model = await opened();
    const before = [...model.configs];
    const refusal = await fitSize(model, text, { ...reading, bytes: 1000 }).catch((error: Error) => error.message);
    const least = Number(
      /expected at least (\d+) for tiny, \d+ of them for what is not quantized, but found 1000/.exec(
        refusal as string,
      )![1],
    );
    expect([...model.configs]).toEqual(before);
    expect((await fitSize(model, text, { ...reading, bytes: least + 200 })).bytes).toBeLessThanOrEqual(least + 200);
    await model.close();
    const float = await loadCheckpoint(checkpoint);
    await expect(fitSize(float, text, { ...reading, bytes: 1e9 })).rejects.toThrow("quantize first");
    await float.close();
  });

  it("leaves the model as it was where it is aborted", async () => {
    const model = await opened();
    const before = [...model.configs];
    const controller = new AbortController();
    const onProgress = (done: number, total: number) => done > total / 2 && controller.abort(new Error("enough"));
    const options = { ...reading, bytes: 1e6, signal: controller.signal, onProgress };
    await expect(fitSize(model, text, options)).rejects.toThrow("enough");
    expect([...model.configs]).toEqual(before);
    await model.close();
  });

  it("gives experts of a layer one configuration", async () => {
    const experts = join(folder, "experts");
    const mixture = { num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 32, norm_topk_prob: true };
    const config = { ...tinyConfig, ...mixture, architectures: ["Qwen3MoeForCausalLM"] };
    const slots = buildDecoder("config.json", config).slots.filter(({ tiedTo }) => tiedTo === null);
    await writeTinyCheckpoint(experts, { config, shapes: new Map(slots.map(({ name, shape }) => [name, shape])) });
    const model = await opened(experts);
    const bytes = 60_000;
    const { configs, bytes: found } = await fitSize(model, text, { ...reading, bytes });
    const file = join(folder, "experts.pte");
    await exportProgram(model, file);
    expect(statSync(file).size).toBe(found);
    const byLayer = new Map<string, Set<string>>();
    for (const [name, config] of configs) {
      const layer = /^(.*)\.experts\./.exec(name)?.[1];
      if (layer) byLayer.set(layer, (byLayer.get(layer) ?? new Set()).add(JSON.stringify(config)));
    }
    expect([...byLayer.values()].map(({ size }) => size)).toEqual([1, 1]);
    await model.close();
  });
});

it("a recipe of what was chosen is read again, for another model not", async () => {
  const model = await opened();
  const { configs } = await fitSize(model, text, { ...reading, bytes: (await uniformBytes(3, 32)) + 100 });
  const recipe = parseRecipe(formatRecipe(model), "recipe.json");
  const again = quantizeByRecipe(await loadCheckpoint(checkpoint), recipe);
  expect(again.configs).toEqual(configs);
  await again.close();
  await model.close();
  const other = join(folder, "other");
  await writeTinyCheckpoint(other, { config: { ...tinyConfig, num_hidden_layers: 1 } });
  const small = await loadCheckpoint(other);
  expect(() => quantizeByRecipe(small, recipe)).toThrow(
    /recipe: expected one for other \(LlamaForCausalLM: 8 .*but found one for LlamaForCausalLM: 15 matrices, /,
  );
  expect(() => quantizeByRecipe(small, recipe.slice(1))).toThrow(
    /recipe: "model.layers.1.*expected the name of a module of other/,
  );
  expect(() => parseRecipe('{"_model": 1}', "plan.json")).toThrow('plan.json: "_model": expected the description');
  await small.close();
});

it("is given on the command line, and its recipe is kept", async () => {
  const [textFile, out, recipe] = ["text.txt", "sized.pte", "recipe.json"].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  await writeFile(textFile, text);
  const bytes = (await uniformBytes(4, 32)) + 100;
  const source = ["quantize", checkpoint, "--calibrate", textFile, "--calibration-tokens", "64"];
  const { code, stderr } = await lowbit([...source, "--size", `${bytes}`, "--save-recipe", recipe, "-o", out]);
  expect([code, stderr]).toEqual([
    0,
    expect.stringMatching(
      /chose bits for .*: KL divergence [\d.]+ before calibration; the same for all, \d bits in groups of \d+/,
    ),
  ]);
  expect(statSync(out).size).toBeLessThanOrEqual(bytes);
  const first = await readFile(out);
  expect(await lowbit([...source, "--recipe", recipe, "-o", out])).toMatchObject({ code: 0 });
  expect((await readFile(out)).equals(first)).toBe(true);
  const small = await lowbit([...source, "--size", "1kB", "-o", out]);
  expect([small.code, small.stderr]).toEqual([1, expect.stringContaining("bytes: expected at least")]);
  const config = int8DynamicActivationIntxWeight({ ...weights, algorithm: "imatrix" });
  expect(JSON.parse(await readFile(recipe, "utf8"))["model.layers.0.mlp.up_proj"].kind).toBe(config.kind);
});
