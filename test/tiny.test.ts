/** The whole chain in seconds: a checkpoint of random weights, quantized in many ways, exported, loaded, run. */
import { stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import {
  EagerModel,
  embedding,
  exportProgram,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  type KvCacheType,
  loadCheckpoint,
  loadCompiled,
  loadProgram,
  type Model,
  parseRecipe,
  quantize,
  quantizeByRecipe,
  sharedEmbedding,
} from "../src/index.ts";
import { compileModel, loadProgramObject } from "../src/tools/index.ts";
import { temporaryFolder } from "./support/folders.ts";
import { expectSame } from "./support/same.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

// Bit-identical results are a promise of the reference kernels alone.
vi.hoisted(() => {
  process.env.LOWBIT_BACKEND = "reference";
});

const folder = await temporaryFolder();
const tied = join(folder, "tied");
const untied = join(folder, "untied");
const sizes = { hidden_size: 64, intermediate_size: 96, head_dim: 16 };
await writeTinyCheckpoint(tied, { config: sizes });
await writeTinyCheckpoint(untied, {
  config: { ...sizes, tie_word_embeddings: false, attention_bias: true, mlp_bias: true },
  dtype: "bf16",
});

const ids = [72, 101, 108, 108, 111, 44, 32, 119];

const linear = (bits: number) => int8DynamicActivationIntxWeight({ bits, groupSize: 32 });
const allBits = [1, 2, 3, 4, 5, 6, 7, 8];

interface Scheme {
  readonly name: string;
  readonly kvCache?: KvCacheType;
  readonly checkpoint: string;
  apply(model: Model): void;
}

const recipe = parseRecipe(
  JSON.stringify({
    "model.layers.0.self_attn.q_proj": { kind: "intxWeightOnly", bits: 5, groupSize: 16 },
    "re:.*mlp.*": { kind: "int8DynamicActivationIntxWeight", bits: 2, groupSize: 48, mappingType: "asymmetric" },
    "model.embed_tokens": { kind: "embedding", bits: 3 },
    lm_head: null,
    _default: { kind: "int8DynamicActivationIntxWeight", bits: 6, groupSize: "axis" },
  }),
  "recipe.json",
);

const schemes: readonly Scheme[] = [
  { name: "float", checkpoint: tied, apply: () => {} },
  { name: "float bf16, untied, biases", checkpoint: untied, apply: () => {} },
  ...allBits.map((bits) => ({
    name: `8da${bits}w`,
    checkpoint: tied,
    apply: (model: Model) => quantize(model, [linear(bits)]),
  })),
  ...allBits.map((bits) => ({
    name: `weight-only ${bits} bits, untied, biases`,
    checkpoint: untied,
    apply: (model: Model) => quantize(model, [intxWeightOnly({ bits, groupSize: bits % 2 ? 32 : "axis" })]),
  })),
  ...allBits.map((bits) => ({
    name: `embedding ${bits} bits`,
    checkpoint: untied,
    apply: (model: Model) => quantize(model, [linear(4), embedding({ bits, groupSize: 32 })]),
  })),
  ...allBits.map((bits) => ({
    name: `shared embedding ${bits} bits`,
    checkpoint: tied,
    apply: (model: Model) => quantize(model, [linear(4), sharedEmbedding({ bits, groupSize: 64 })]),
  })),
  ...(["f16", "int8", "int4"] as const).map((kvCache) => ({
    name: `KV cache of ${kvCache}`,
    kvCache,
    checkpoint: tied,
    apply: (model: Model) => quantize(model, [linear(4)]),
  })),
  { name: "recipe", checkpoint: untied, apply: (model: Model) => quantizeByRecipe(model, recipe) },
  {
    name: "groups that do not divide k",
    checkpoint: tied,
    apply: (model: Model) => quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 40 })]),
  },
  {
    name: "rows of several numbers of bits",
    checkpoint: tied,
    apply: (model: Model) =>
      quantize(model, [
        linear(4),
        sharedEmbedding({
          bits: 4,
          ranges: [
            { rows: 64, bits: 6 },
            { rows: 32, bits: 5 },
          ],
        }),
      ]),
  },
  {
    name: "TorchAO's layout",
    checkpoint: untied,
    apply: (model: Model) => {
      quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, scaleDType: "f32", mappingType: "asymmetric" })]);
      model.layout = "torchao_universal";
    },
  },
];

describe.each(schemes)("$name", ({ name, checkpoint, kvCache, apply }) => {
  it("gives the same logits eager, compiled and exported", async () => {
    const model = await loadCheckpoint(checkpoint);
    apply(model);
    const options = { maxSeqLen: 16 };
    const eager = await EagerModel.load(model, { contextLength: 64, kvCache });
    const path = join(folder, `${name.replaceAll(/\W/g, "-")}.pte`);
    await exportProgram(model, path, options);
    const compiled = (await loadProgramObject(compileModel(model, options), name, { kvCache })).createDecoder();
    const exported = (await loadProgram(path, { kvCache })).createDecoder();
    await model.close();

    const expected = eager.forward(ids, 0);
    expect(expected.shape).toEqual([1, 282]);
    for (const value of expected.data) expect(Number.isFinite(value)).toBe(true);
    expectSame(await compiled.prefill(ids), expected.data as Float32Array);
    expectSame(await exported.prefill(ids), expected.data as Float32Array);
    const next = eager.forward([33], ids.length).data as Float32Array;
    expectSame(await compiled.step(33), next);
    expectSame(await exported.step(33), next);
  });
});

describe("a program file", () => {
  it("is enough to generate text, the same for the same seed", async () => {
    const model = await loadCheckpoint(tied);
    quantize(model, [linear(4), sharedEmbedding({ bits: 4, groupSize: 32 })]);
    const path = join(folder, "generate.pte");
    await exportProgram(model, path);
    await model.close();
    const llm = await loadProgram(path);
    const options = { maxTokens: 20, temperature: 1, seed: 7, ignoreEos: true };
    const texts = await Promise.all(
      [1, 2].map(async () => {
        let text = "";
        for await (const piece of llm.generate("Hello, w", options)) text += piece;
        return text;
      }),
    );
    expect(texts[0]).not.toBe("");
    expect(texts[1]).toBe(texts[0]);
    const prompt = llm.tokenizer.encode("Hello, w");
    const stream = llm.generate(prompt, options);
    let whole = "";
    for await (const piece of stream) whole += piece;
    expect(whole).toBe(texts[0]);
    expect(await stream.result).toMatchObject({
      finishReason: "length",
      promptTokens: prompt.length,
      generatedTokens: 20,
    });
  });

  it("generates though its model suppresses a token beyond the vocabulary", async () => {
    const suppressing = join(folder, "suppressing");
    await writeTinyCheckpoint(suppressing);
    await writeFile(join(suppressing, "generation_config.json"), JSON.stringify({ suppress_tokens: [5, 282] }));
    const model = await loadCheckpoint(suppressing);
    const llm = await loadCompiled(model);
    await model.close();
    expect(llm.samplingDefaults.suppressTokens).toEqual([5]);
    const stream = llm.generate(ids, { maxTokens: 2, ignoreEos: true });
    for await (const _ of stream);
    expect((await stream.result).generatedTokens).toBe(2);
  });

  it("is smaller with fewer bits, and with one buffer for embedding and head", async () => {
    const wide = join(folder, "wide");
    await writeTinyCheckpoint(wide, { config: { hidden_size: 256, intermediate_size: 512 } });
    const sizeOf = async (name: string, apply: (model: Model) => void) => {
      const model = await loadCheckpoint(wide);
      apply(model);
      const path = join(folder, `${name}.pte`);
      await exportProgram(model, path);
      await model.close();
      return (await stat(path)).size;
    };
    const float = await sizeOf("size-float", () => {});
    const eight = await sizeOf("size-8", (model) => quantize(model, [linear(8), sharedEmbedding({ bits: 8 })]));
    const four = await sizeOf("size-4", (model) => quantize(model, [linear(4), sharedEmbedding({ bits: 4 })]));
    const apart = await sizeOf("size-apart", (model) => quantize(model, [linear(4), embedding({ bits: 4 })]));
    expect(eight / float).toBeLessThan(0.4);
    expect(four / eight).toBeLessThan(0.7);
    // Embedding and head apart: another 282 x 256 weights of 4 bits.
    expect(apart - four).toBeGreaterThan((282 * 256 * 4) / 8);
  });
});
