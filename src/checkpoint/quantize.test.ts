/** Which weights a configuration or a recipe claims, and in which format they run. */
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { goldenFolder } from "../../test/support/text-models.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { InvalidArgumentError } from "../errors.ts";
import {
  embedding,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  type QuantizationConfig,
  sharedEmbedding,
} from "../quantize/config.ts";
import { makeRecipe, parseRecipe } from "../quantize/recipe.ts";
import { dequantize, type QuantizedWeights } from "../quantized.ts";
import { loadCheckpoint } from "./load.ts";
import type { Model } from "./model.ts";
import { quantize, quantizeByRecipe } from "./quantize.ts";

const folder = await temporaryFolder();
let tied: Model;
let untied: Model;
beforeAll(async () => {
  const config = { hidden_size: 64, head_dim: 16, num_hidden_layers: 1 };
  await writeTinyCheckpoint(join(folder, "tied"), { config });
  await writeTinyCheckpoint(join(folder, "untied"), { config: { ...config, tie_word_embeddings: false } });
  tied = await loadCheckpoint(join(folder, "tied"));
  untied = await loadCheckpoint(join(folder, "untied"));
});
beforeEach(() => {
  quantize(tied, []);
  quantize(untied, []);
});
afterAll(async () => {
  await tied.close();
  await untied.close();
});

const EMBEDDING = "model.embed_tokens.weight";
const HEAD = "lm_head.weight";
const GATE = "model.layers.0.mlp.gate_proj.weight";
const linear = int8DynamicActivationIntxWeight({ bits: 4 });
const rows = embedding({ bits: 3 });
const shared = sharedEmbedding({ bits: 2 });

/** Bits of embedding, a linear layer and head; null where they stay float. */
const bitsOf = (model: Model) => [EMBEDDING, GATE, HEAD].map((name) => model.configs.get(name)?.bits ?? null);

describe("quantize", () => {
  it.each<[string, () => Model, QuantizationConfig[], object, (number | null)[]]>([
    ["nothing", () => tied, [], {}, [null, null, null]],
    ["linear layers, the head with them", () => untied, [linear], {}, [null, 4, 4]],
    ["linear layers without the head", () => untied, [linear], { quantizeHead: false }, [null, 4, null]],
    ["an embedding of its own", () => untied, [linear, rows], {}, [3, 4, 4]],
    ["only the embedding", () => untied, [rows], {}, [3, null, null]],
    ["a tied head apart from its embedding", () => tied, [linear, rows], {}, [3, 4, 4]],
    ["a shared embedding", () => tied, [linear, shared], {}, [2, 4, 2]],
    ["a shared embedding, whatever is said of the head", () => tied, [shared], { quantizeHead: false }, [2, null, 2]],
  ])("%s", (_, model, configs, options, expected) => {
    expect(bitsOf(quantize(model(), configs, options))).toEqual(expected);
    expect([...model().configs.keys()].filter((name) => /norm/.test(name))).toEqual([]);
  });

  it("layers of encoders that spare least keep 8 bits, and values float inputs; a recipe gives them what it says", async () => {
    const model = await loadCheckpoint(goldenFolder("bert-bge"));
    onTestFinished(() => model.close());
    const layer = "encoder.layer.1.";
    const found = () =>
      Object.fromEntries(
        [...model.configs]
          .filter(([name]) => name.startsWith(layer))
          .map(([name, { kind, bits }]) => [name.slice(layer.length), `${kind} ${bits}`]),
      );
    const all = "int8DynamicActivationIntxWeight";
    quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, mappingType: "asymmetric" })]);
    expect(found()).toEqual({
      "attention.self.query.weight": `${all} 4`,
      "attention.self.key.weight": `${all} 4`,
      "attention.self.value.weight": "intxWeightOnly 8",
      "attention.output.dense.weight": `${all} 8`,
      "intermediate.dense.weight": `${all} 8`,
      "output.dense.weight": `${all} 4`,
    });
    expect(model.configs.get(`${layer}attention.self.value.weight`)).toMatchObject({
      groupSize: 32,
      mappingType: "asymmetric",
    });
    quantizeByRecipe(model, makeRecipe([["_default", linear]]));
    expect(new Set(Object.values(found()))).toEqual(new Set([`${all} 4`]));
  });

  it("replaces what was set before", () => {
    quantize(tied, [linear, shared]);
    expect(bitsOf(quantize(tied, [intxWeightOnly({ bits: 8 })]))).toEqual([null, 8, 8]);
  });

  it("two configurations for the same weights, or a shared one for weights apart, are errors", () => {
    expect(() => quantize(tied, [linear, intxWeightOnly()])).toThrow(InvalidArgumentError);
    expect(() => quantize(tied, [linear, intxWeightOnly()])).toThrow(/one linear configuration .* use a recipe/);
    expect(() => quantize(tied, [rows, shared])).toThrow(/one embedding configuration/);
    expect(() => quantize(untied, [shared])).toThrow(InvalidArgumentError);
    expect(() => quantize(untied, [shared])).toThrow(/the lm_head of untied has weights of its own; use embedding\(\)/);
  });
});

it.each([
  [undefined, "a list of configurations but found undefined; give [configuration]"],
  [embedding(), /a list of configurations but found {"kind":"embedding",.*; give \[configuration\]/],
  [["8da4w"], /configurations, as int8DynamicActivationIntxWeight, .* make them, but found "8da4w"/],
  [[null], /configurations, as .* make them, but found null/],
  [[{ kind: "toString" }], /configurations, as .* make them, but found {"kind":"toString"}/],
])("what is no configuration is an error: %j", (configs, problem) => {
  expect(() => quantize(tied, configs as never)).toThrow(InvalidArgumentError);
  expect(() => quantize(tied, configs as never)).toThrow(problem);
  expect(tied.configs.size).toBe(0);
});

it("keeps delicate layers of an encoder at 8 bits, with weights alone quantized, too", async () => {
  const model = await loadCheckpoint(goldenFolder("bert-bge"));
  quantize(model, [intxWeightOnly({ bits: 4 })]);
  const layer = "encoder.layer.0.attention";
  const configs = ["self.query", "self.value", "output.dense"].map((module) =>
    model.configs.get(`${layer}.${module}.weight`),
  );
  expect(configs).toMatchObject([4, 8, 8].map((bits) => ({ kind: "intxWeightOnly", bits })));
  await model.close();
});

describe("quantizeByRecipe", () => {
  const apply = (model: Model, recipe: object) =>
    bitsOf(quantizeByRecipe(model, parseRecipe(JSON.stringify(recipe), "r")));
  const int = (bits: number) => ({ kind: "intxWeightOnly", bits });

  it("exact names before patterns before the default; null stays float", () => {
    const recipe = { _default: int(8), "re:.*mlp.*": int(5), [GATE.replace(".weight", "")]: int(6), lm_head: null };
    expect(apply(untied, recipe)).toEqual([null, 6, null]);
    expect(untied.configs.get("model.layers.0.mlp.up_proj.weight")!.bits).toBe(5);
    expect(untied.configs.get("model.layers.0.self_attn.q_proj.weight")!.bits).toBe(8);
  });

  it("names that the model lacks are refused", () => {
    const message =
      'recipe: "lm_haed": expected the name of a module of untied, such as model.embed_tokens, "re:" and a regular expression, or "_default"';
    expect(() => apply(untied, { lm_haed: int(4) })).toThrow(new InvalidArgumentError(message));
    expect(() => apply(untied, { [GATE]: int(4), "re:nothing": int(4), _default: int(8) })).not.toThrow();
  });

  it("a shared embedding takes the tied head along", () => {
    const recipe = { "model.embed_tokens": { kind: "sharedEmbedding", bits: 2 }, _default: int(8) };
    expect(apply(tied, recipe)).toEqual([2, 8, 2]);
    expect(() => apply(untied, recipe)).toThrow(InvalidArgumentError);
  });
});

describe("weights of a model", () => {
  it("stay float, in the stored type, where nothing is said", async () => {
    const weight = untied.weight(GATE);
    expect([weight.format, weight.shape]).toEqual([{ kind: "float", dtype: "f32" }, [64, 64]]);
  });

  it("of a tied head are the embedding's very buffer, float or shared; another configuration makes them its own", () => {
    expect(tied.weight(HEAD).name).toBe(EMBEDDING);
    quantize(tied, [linear, shared]);
    expect([tied.weight(HEAD).name, tied.weight(EMBEDDING).name]).toEqual([EMBEDDING, EMBEDDING]);
    quantize(tied, [linear, rows]);
    expect(tied.weight(HEAD).name).toBe(HEAD);
  });

  it("run in TorchAO's embedding format where it can hold them", () => {
    quantize(untied, [embedding({ bits: 4, groupSize: 32 })]);
    expect(untied.weight(EMBEDDING).format.kind).toBe("embedding");
    quantize(untied, [embedding({ bits: 4, groupSize: 24 })]);
    expect(untied.weight(EMBEDDING).format.kind).toBe("affine");
  });

  it("are near the float ones, nearer with more bits", async () => {
    const exact = (await untied.checkpoint.tensors.read(GATE)).data as Float32Array;
    const errors: number[] = [];
    for (const bits of [1, 2, 3, 4, 5, 6, 7, 8]) {
      quantize(untied, [intxWeightOnly({ bits, groupSize: 32 })]);
      const values = dequantize((await untied.weight(GATE).load()) as QuantizedWeights);
      errors.push(Math.hypot(...values.map((value, i) => value - exact[i]!)) / Math.hypot(...exact));
    }
    expect(errors).toEqual([...errors].sort((a, b) => b - a));
    expect(errors[0]).toBeLessThan(0.6);
    expect(errors[7]).toBeLessThan(0.006);
  });

  it("an unknown name is an error with the architecture", () => {
    expect(() => tied.weight("model.bias")).toThrow(/weight model.bias: LlamaForCausalLM has none of that name/);
  });
});
