/** A recipe beside an AQLM mode: layers that AQLM cannot have, or that are to be otherwise, and all modes of running them. */
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  cpuWith,
  EagerModel,
  exportProgram,
  hostCpu,
  loadCheckpoint,
  loadCompiled,
  loadProgram,
  parseRecipe,
  quantizeByRecipe,
} from "../../../src/index.ts";
import { wasmFeatures } from "../../../src/kernels/wasm/features.ts";
import { dequantize } from "../../../src/quantized.ts";
import { type QuantizedWeights, weightsInRecipe } from "../../../src/tools/index.ts";
import { writeAqlmCheckpoint } from "../../../test/support/aqlm-checkpoint.ts";
import { lowbit } from "../../../test/support/command-line.ts";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../../test/support/tiny-checkpoint.ts";
import { encodeAqlm } from "./checkpoint/encode.ts";
import type { AqlmWeights } from "./form.ts";
import { dequantizeAqlm } from "./reference.ts";

const folder = await temporaryFolder();
const out = join(folder, "out.pte");
const recipe = join(folder, "recipe.json");
const text = join(folder, "text.txt");
await writeFile(text, "To be, or not to be, that is the question. ".repeat(3));
/** Inputs of down_proj are no whole groups of 8. */
const uneven = { intermediate_size: 43 };
const tied = { name: "tied", path: join(folder, "tied"), config: uneven };
const untied = { name: "untied", path: join(folder, "untied"), config: { ...uneven, tie_word_embeddings: false } };
for (const { path, config } of [tied, untied]) await writeTinyCheckpoint(path, { config });

const down = "model.layers.0.mlp.down_proj.weight";
const fourBit = { kind: "int8DynamicActivationIntxWeight", bits: 4 };
const aqlm = ["--qmode", "aqlm-1x4"];
/** GPTQ reads a text of the model beside the one that is given. */
const WROTE = expect.stringMatching(/^lowbit: the model wrote \d+ characters to calibrate with: .*\n$/);

/** `lowbit quantize` with AQLM and a recipe. */
async function quantized(entries: unknown, checkpoint = tied.path, ...options: string[]) {
  await writeFile(recipe, JSON.stringify(entries));
  return lowbit(["quantize", checkpoint, "-o", out, ...aqlm, "--recipe", recipe, ...options]);
}

/** Formats that `lowbit inspect` tells of, by weight. */
async function formats(): Promise<Record<string, string>> {
  const { weights } = JSON.parse((await lowbit(["inspect", out, "--json"])).stdout);
  return Object.fromEntries(
    weights.map(({ name, layout, bits }: { name: string; layout: string; bits: number }) => [
      name.replace(/^model\.|\.weight(:codes)?$/g, ""),
      `${layout} ${bits}`,
    ]),
  );
}

it("a layer without whole groups is refused, and the way out is named", async () => {
  const { code, stderr } = await lowbit(["quantize", tied.path, "-o", out, ...aqlm]);
  const problem = `${down}: expected in groups of 8 and out groups of 1 to divide [32, 43]`;
  const way = "--recipe beside --qmode aqlm-1x4 gives such layers another configuration";
  expect([code, stderr]).toEqual([1, `lowbit: ${problem}; ${way}\n`]);
  expect(existsSync(`${out}.parts`)).toBe(false);
});

it("a checkpoint of AQLM keeps its weights, and takes the rest from the recipe", async () => {
  const path = join(folder, "stored");
  await writeAqlmCheckpoint(path, {
    codebooks: 1,
    bits: 4,
    inGroup: 8,
    outGroup: 1,
    plain: ["model.layers.1.self_attn.q_proj"],
  });
  const entries = { "re:.*1.*q_proj": { ...fourBit, algorithm: "gptq" }, lm_head: fourBit };
  expect(await quantized(entries, path, "--calibrate", text)).toMatchObject({ code: 0, stderr: WROTE });
  expect(await formats()).toMatchObject({
    "layers.0.mlp.down_proj": "aqlm_tiles 0.5",
    "layers.1.self_attn.q_proj": "panel16 4",
    lm_head: "panel16 4",
  });
  const { code, stderr } = await quantized({ "re:.*down_proj": fourBit }, path);
  expect([code, stderr]).toEqual([1, expect.stringContaining(`${down}: is stored as aqlm and is not quantized again`)]);
});

describe.each([tied, untied])("the checkpoint $name", ({ path }) => {
  it("has layers, head and embedding as the recipe says, and others as AQLM", async () => {
    const entries = {
      "re:.*down_proj": fourBit,
      "model.layers.1.self_attn.q_proj": null,
      "model.embed_tokens": { kind: "embedding", bits: 8 },
      lm_head: { ...fourBit, bits: 8 },
    };
    expect(await quantized(entries, path)).toMatchObject({ code: 0, stderr: "" });
    expect(await formats()).toMatchObject({
      "layers.0.self_attn.q_proj": "aqlm_tiles 0.5",
      "layers.1.self_attn.q_proj": "null 32",
      "layers.1.self_attn.k_proj": "aqlm_tiles 0.5",
      "layers.1.mlp.down_proj": "panel16 4",
      embed_tokens: "torchao_embedding 8",
      lm_head: "panel16 8",
    });
  });

  it("leaves to AQLM what an entry for embeddings alone matches, and refuses one that leaves nothing", async () => {
    const rows = { kind: "embedding", bits: 8 };
    expect(await quantized({ "re:.*down_proj": null, _default: rows }, path)).toMatchObject({ code: 0 });
    expect(await formats()).toMatchObject({
      "layers.1.self_attn.q_proj": "aqlm_tiles 0.5",
      "layers.0.mlp.down_proj": "null 32",
    });
    expect(await quantized({ "re:.*down_proj": fourBit }, path, "--layout", "torchao_universal")).toMatchObject({
      code: 0,
    });
    expect(await formats()).toMatchObject({ "layers.0.mlp.down_proj": "torchao_universal 4" });
    const { code, stderr } = await quantized({ _default: fourBit }, path);
    const problem = `--recipe ${recipe} says what every linear layer is: nothing is left to --qmode aqlm-1x4`;
    expect([code, stderr]).toEqual([2, expect.stringContaining(problem)]);
  });

  it("is calibrated where the recipe asks for it, after the text has weighed the errors of AQLM", async () => {
    const entries = { "re:.*down_proj": { ...fourBit, algorithm: "gptq" } };
    const missing = await quantized(entries, path);
    expect([missing.code, missing.stderr]).toEqual([
      2,
      expect.stringContaining("algorithm gptq looks at the activations of a text"),
    ]);
    expect(existsSync(`${out}.parts`)).toBe(false);
    expect(await quantized(entries, path, "--calibrate", text)).toMatchObject({ code: 0, stderr: WROTE });
    expect(await formats()).toMatchObject({
      "layers.0.mlp.up_proj": "aqlm_tiles 0.5",
      "layers.0.mlp.down_proj": "panel16 4",
    });
    expect(existsSync(`${out}.parts`)).toBe(false);
  });

  it("gives the logits of what its weights stand for in every mode", async () => {
    const model = await loadCheckpoint(path);
    const entries = parseRecipe('{"re:.*down_proj": {"kind": "intxWeightOnly", "bits": 4}}', "recipe");
    quantizeByRecipe(model, entries);
    const others = weightsInRecipe(model, entries);
    expect([...others]).toEqual([down, down.replace("0", "1")]);
    await encodeAqlm(model, { codebooks: 2, bits: 8, skip: (name) => others.has(name) });
    const values = new Map<string, Float32Array>();
    for (const { name } of model.decoder.slots) {
      if (model.storedFormat(name) !== null)
        values.set(name, dequantizeAqlm((await model.weight(name).load()) as AqlmWeights));
      else if (others.has(name)) values.set(name, dequantize((await model.weight(name).load()) as QuantizedWeights));
    }
    const plain = `${path}-plain`;
    const config = path === tied.path ? tied.config : untied.config;
    await writeTinyCheckpoint(plain, { config, edit: (name, floats) => floats.set(values.get(name) ?? floats) });
    const ids = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    const float = await loadCheckpoint(plain);
    const expected = (await EagerModel.load(float, { cpu: cpuWith("scalar") })).forward(ids, 0).data as Float32Array;
    await float.close();
    const scalar = cpuWith("scalar");
    const eager = await EagerModel.load(model, { cpu: scalar });
    expect(relativeError(eager.forward(ids, 0).data as Float32Array, expected)).toBeLessThan(1e-5);
    for (const cpu of [scalar, hostCpu(), { name: "wasm", features: new Set(wasmFeatures()) }]) {
      const bound = cpu === scalar ? 1e-5 : 8e-3;
      const program = join(folder, `${cpu.name}.pte`);
      await exportProgram(model, program, { cpu });
      for (const llm of [await loadCompiled(model, { cpu }), await loadProgram(program, { cpu })]) {
        expect(relativeError(await llm.createDecoder().prefill(ids), expected), cpu.name).toBeLessThan(bound);
        const decoder = llm.createDecoder();
        let logits = await decoder.prefill(ids.slice(0, 1));
        for (const id of ids.slice(1)) logits = await decoder.step(id);
        expect(relativeError(logits, expected), `${cpu.name}, token by token`).toBeLessThan(bound);
        await llm.dispose();
      }
    }
    await model.close();
  });
});

/** Of the last row, where there are several. */
function relativeError(found: Float32Array, expected: Float32Array): number {
  const last = (values: Float32Array) => values.subarray(values.length - 282);
  const differences = last(found).map((value, i) => value - last(expected)[i]!);
  return Math.hypot(...differences) / Math.hypot(...last(expected));
}
