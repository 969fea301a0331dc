/** Vectors and scores of texts against those of sentence-transformers, by tiny random models of every family that embeds. */
import { cpSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  embedding as embeddingConfig,
  exportProgram,
  int8DynamicActivationIntxWeight,
  type LanguageModel,
  loadCheckpoint,
  loadCompiled,
  loadProgram,
  quantize,
} from "../src/index.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { hostCpu } from "../src/kernels/cpu.ts";
import { distance } from "./support/distance.ts";
import { eagerTexts } from "./support/eager-encoder.ts";
import { exactHost, hostHasExceptions } from "./support/exact-rows.ts";
import { temporaryFolder } from "./support/folders.ts";
import { expectSame } from "./support/same.ts";
import { goldenFolder, goldenItems, hasGoldens, writeClassifier } from "./support/text-models.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

const families = ["bert-bge"];
if (hasGoldens) families.push("bert-minilm", "xlm-roberta-e5", "modernbert", "qwen3-embedding", "embeddinggemma");

async function checkpointOf(folder: string) {
  const model = await loadCheckpoint(folder);
  onTestFinished(() => model.close());
  return model;
}

async function compiled(folder: string, cpu: Cpu = hostCpu()): Promise<LanguageModel> {
  const model = await loadCompiled(await checkpointOf(folder), { cpu });
  onTestFinished(() => model.dispose());
  return model;
}

/** By its series, as far as doubles have its digits. */
function erf(x: number): number {
  if (Math.abs(x) > 4) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let n = 1; n < 80; n++) {
    term *= (-x * x) / n;
    sum += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}

function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const dot = (x: ArrayLike<number>, y: ArrayLike<number>) => Array.from(x).reduce((sum, v, i) => sum + v * y[i]!, 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}

describe("vectors of sentence-transformers (without ../shared, of one family)", () => {
  // On a CPU with exceptions, vectors of many rows are near those of few.
  const kinds = [
    { cpu: exactHost(), isExact: true },
    ...(hostHasExceptions ? [{ cpu: hostCpu(), isExact: false }] : []),
  ];
  const cases = families.flatMap((family) => kinds.map((kind) => ({ family, ...kind })));
  test.each(cases)(
    "$family: those vectors, alone and in one step, the same: $isExact",
    async ({ family, cpu, isExact }) => {
      const model = await compiled(goldenFolder(family), cpu);
      const items = goldenItems(family);
      const ids = items.map(({ text, prompt_name: prompt }) =>
        model.embedding!.encode(text, { prompt, truncate: true }),
      );
      expect(ids).toEqual(items.map((item) => item.input_ids));
      const together = await model.embed(ids);
      for (const [i, { text, prompt_name: prompt, embedding }] of items.entries()) {
        expect(distance(together[i]!, embedding).relative).toBeLessThan(1e-4);
        const [alone] = await model.embed([text], { prompt, truncate: true });
        if (isExact) expectSame(alone!, together[i]!, `text ${i} alone`);
        else expect(distance(alone!, together[i]!).relative, `text ${i} alone`).toBeLessThan(1e-5);
      }
    },
  );

  test.each(families)("%s: the same operator by operator", async (family) => {
    const items = goldenItems(family);
    const ids = items.map(({ input_ids }) => input_ids);
    const vectors = await eagerTexts(await checkpointOf(goldenFolder(family)), ids);
    for (const [i, { embedding }] of items.entries())
      expect(distance(vectors[i]!, embedding).relative).toBeLessThan(1e-4);
  });

  test.each(families)(
    "%s: exported and loaded, the same vectors, in 8 bits close ones, in 4 bits near",
    async (family) => {
      const folder = goldenFolder(family);
      const texts = goldenItems(family)
        .slice(0, 4)
        .map(({ text }) => text);
      const path = join(await temporaryFolder(), "model.pte");
      await exportProgram(await checkpointOf(folder), path);
      const exported = await loadProgram(path);
      onTestFinished(() => exported.dispose());
      const inMemory = await compiled(folder);
      const expected = await inMemory.embed(texts);
      for (const [i, vector] of (await exported.embed(texts)).entries()) expectSame(vector, expected[i]!, `text ${i}`);
      for (const [bits, least] of [
        [8, 0.995],
        // Random weights suffer more than trained ones.
        [4, 0.6],
      ] as const) {
        const model = await checkpointOf(folder);
        const options = { bits, groupSize: 16 } as const;
        quantize(model, [int8DynamicActivationIntxWeight(options), embeddingConfig({ ...options, groupSize: 32 })]);
        const quantized = await loadCompiled(model);
        onTestFinished(() => quantized.dispose());
        for (const [i, vector] of (await quantized.embed(texts)).entries())
          expect(cosine(vector, expected[i]!), `${bits} bits, text ${i}`).toBeGreaterThan(least);
      }
    },
  );
});

describe.skipIf(!hasGoldens)("models of ../shared (skipped without it)", () => {
  test("fewer dimensions are the first ones, of length 1 again where vectors are", async () => {
    const model = await compiled(goldenFolder("bert-minilm"));
    const [whole] = await model.embed(["Plants make food from light."]);
    const [cut] = await model.embed(["Plants make food from light."], { dimensions: 16 });
    expect(cut).toHaveLength(16);
    const length = Math.hypot(...whole!.slice(0, 16));
    for (const [i, value] of cut!.entries()) expect(value).toBeCloseTo(whole![i]! / length, 6);
  });

  test("spaces at the ends of texts are read", async () => {
    const model = await compiled(goldenFolder("qwen3-embedding"));
    const text = "  light  ";
    expect(model.embedding!.encode(text)).toEqual(model.tokenizer.encode(text));
    expect(model.embedding!.encode(text)).not.toEqual(model.embedding!.encode(text.trim()));
  });

  test("what cannot be is refused, and says why", async () => {
    const model = await compiled(goldenFolder("qwen3-embedding"));
    const long = "light ".repeat(500);
    await expect(model.embed([long])).rejects.toThrow("expected at most 128 tokens");
    await expect(model.embed(["a"], { prompt: "qeury" })).rejects.toThrow('one of query, document but found "qeury"');
    await expect(model.embed(["a"], { dimensions: 65 })).rejects.toThrow("dimensions");
    await expect(model.embed([[1, 9999]])).rejects.toThrow("token ids from 0 to 319 but found 9999");
    await expect(model.embed([[]])).rejects.toThrow("at least one token");
    await expect(model.embed("text" as never)).rejects.toThrow("list of texts");
    await expect(model.generate("a")[Symbol.asyncIterator]().next()).rejects.toThrow("it generates no text");
    await expect(model.rank("a", ["b"])).rejects.toThrow("it gives no scores");
    await expect(
      exportProgram(await checkpointOf(goldenFolder("bert-bge")), "x.pte", { target: "executorch" }),
    ).rejects.toThrow("target executorch");
  });

  test("calls at the same time share steps and get their own vectors; an abort ends one of them", async () => {
    const model = await compiled(goldenFolder("bert-minilm"), exactHost());
    const texts = goldenItems("bert-minilm")
      .slice(0, 4)
      .map(({ text }) => text);
    const expected = await model.embed(texts);
    const stop = new AbortController();
    const calls = texts.map((text) => model.embed([text]));
    const ended = model.embed(texts, { signal: stop.signal });
    stop.abort(new Error("no longer wanted"));
    await expect(ended).rejects.toThrow("no longer wanted");
    for (const [i, call] of calls.entries()) expectSame((await call)[0]!, expected[i]!, `text ${i}`);
  });

  test.each([
    ["bert-minilm", "BertForSequenceClassification", "bert.", "bert.pooler.dense", "classifier", {}],
    [
      "xlm-roberta-e5",
      "XLMRobertaForSequenceClassification",
      "roberta.",
      "classifier.dense",
      "classifier.out_proj",
      {},
    ],
  ])("%s as a cross-encoder scores by its head", async (family, architecture, prefix, dense, score, config) => {
    const head = {
      [`${dense}.weight`]: [64, 64],
      [`${dense}.bias`]: [64],
      [`${score}.weight`]: [1, 64],
      [`${score}.bias`]: [1],
    };
    const { folder, weights } = await writeClassifier(family, { architecture, prefix, head, config });
    const model = await compiled(folder);
    for (const { input_ids: ids, last_hidden_state_first_and_last: states } of goldenItems(family)) {
      if (!states) continue;
      const [x] = states;
      const row = (name: string, k: number, i: number) => weights[name]!.data.subarray(i * k, (i + 1) * k);
      const linear = (name: string, input: readonly number[], n: number) =>
        Array.from({ length: n }, (_, i) => {
          const sum = row(`${name}.weight`, 64, i).reduce((sum, w, j) => sum + w * input[j]!, 0);
          return sum + weights[`${name}.bias`]!.data[i]!;
        });
      const [logit] = linear(score, linear(dense, x!, 64).map(Math.tanh), 1);
      const [found] = await model.reranker!.score([{ ids, secondFrom: ids.length }]);
      expect(found).toBeCloseTo(1 / (1 + Math.exp(-logit!)), 4);
    }
  });

  test("ModernBERT as a cross-encoder scores by its head", async () => {
    const head = {
      ...{ "head.dense.weight": [64, 64], "head.norm.weight": [64] },
      ...{ "classifier.weight": [1, 64], "classifier.bias": [1] },
    };
    const architecture = "ModernBertForSequenceClassification";
    const { folder, weights } = await writeClassifier("modernbert", { architecture, prefix: "model.", head });
    const model = await compiled(folder);
    const gelu = (x: number) => 0.5 * x * (1 + erf(x / Math.SQRT2));
    for (const { input_ids: ids, last_hidden_state_first_and_last: states } of goldenItems("modernbert")) {
      if (!states) continue;
      const dot = (w: Float32Array, x: readonly number[]) => x.reduce((sum, value, i) => sum + value * w[i]!, 0);
      const dense = weights["head.dense.weight"]!.data;
      const wide = states[0]!.map((_, i) => gelu(dot(dense.subarray(64 * i, 64 * i + 64), states[0]!)));
      const mean = wide.reduce((sum, value) => sum + value, 0) / 64;
      const deviation = Math.sqrt(wide.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 64 + 1e-5);
      const normed = wide.map((value, i) => ((value - mean) / deviation) * weights["head.norm.weight"]!.data[i]!);
      const logit = dot(weights["classifier.weight"]!.data, normed) + weights["classifier.bias"]!.data[0]!;
      const [found] = await model.reranker!.score([{ ids, secondFrom: ids.length }]);
      expect(found).toBeCloseTo(1 / (1 + Math.exp(-logit)), 4);
    }
  });

  test("pairs have the kinds of their tokens; scores are the network's where the config says so", async () => {
    const head = {
      ...{ "bert.pooler.dense.weight": [64, 64], "bert.pooler.dense.bias": [64] },
      ...{ "classifier.weight": [1, 64], "classifier.bias": [1] },
    };
    const given = { architecture: "BertForSequenceClassification", prefix: "bert.", head };
    const model = await compiled((await writeClassifier("bert-minilm", given)).folder);
    const tokenizer = model.tokenizer;
    const first = tokenizer.encode("How do plants make food?");
    const pair = model.reranker!.encode("How do plants make food?", "From light.");
    expect(pair.secondFrom).toBe(first.length);
    expect(pair.ids.slice(0, first.length)).toEqual(first);
    const [score] = await model.rank("How do plants make food?", ["From light."]);
    const [alike] = await model.reranker!.score([{ ids: pair.ids, secondFrom: pair.ids.length }]);
    expect(Math.abs(score! - alike!)).toBeGreaterThan(1e-5);
    const raw = { ...given, config: { sentence_transformers: { activation_fn: "torch.nn.modules.linear.Identity" } } };
    const rawModel = await compiled((await writeClassifier("bert-minilm", raw)).folder);
    const [logit] = await rawModel.rank("How do plants make food?", ["From light."]);
    expect(1 / (1 + Math.exp(-logit!))).toBeCloseTo(score!, 5);
    await expect(model.embed(["a"])).rejects.toThrow("it gives no embeddings");
    // As sentence-transformers 6 writes it: the transformer alone is a module, and the function is beside it.
    const newer = await writeClassifier("bert-minilm", given);
    const transformer = {
      idx: 0,
      name: "0",
      path: "",
      type: "sentence_transformers.base.modules.transformer.Transformer",
    };
    const settings = { activation_fn: "torch.nn.modules.linear.Identity", prompts: {}, model_type: "CrossEncoder" };
    await writeFile(join(newer.folder, "modules.json"), JSON.stringify([transformer]));
    await writeFile(join(newer.folder, "config_sentence_transformers.json"), JSON.stringify(settings));
    const newerModel = await compiled(newer.folder);
    const [newerLogit] = await newerModel.rank("How do plants make food?", ["From light."]);
    expect(newerLogit).toBe(logit);
  });

  test("without a limit of their own, texts have the tokenizer's", async () => {
    const folder = await temporaryFolder();
    cpSync(goldenFolder("bert-minilm"), folder, { recursive: true });
    await writeFile(join(folder, "sentence_bert_config.json"), "{}");
    const limit = async (modelMaxLength: number) => {
      const path = join(folder, "tokenizer_config.json");
      const config = JSON.parse(await readFile(path, "utf8"));
      await writeFile(path, JSON.stringify({ ...config, model_max_length: modelMaxLength }));
      const model = await compiled(folder);
      const [long, cut] = await model.embed(["light ".repeat(500), "light ".repeat(18)], { truncate: true });
      if (modelMaxLength === 20) expectSame(long!, cut!);
      return model.embedding!.maxTokens;
    };
    expect(await limit(20)).toBe(20);
    const positions = JSON.parse(await readFile(join(folder, "config.json"), "utf8")).max_position_embeddings;
    expect(await limit(1e30)).toBe(positions);
  });

  test("classifiers of several labels are refused", async () => {
    const given = {
      architecture: "BertForSequenceClassification",
      prefix: "bert.",
      head: {},
      config: { num_labels: 3 },
    };
    const { folder } = await writeClassifier("bert-minilm", given);
    await expect(loadCheckpoint(folder)).rejects.toThrow("one label, which is a score, but found 3");
  });
});

describe("language models whose logits are scores", () => {
  const [yes, no] = [72, 75];
  const chatTemplate =
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}";

  async function writeReranker(score: object, settings: object = {}): Promise<string> {
    const folder = await temporaryFolder();
    await writeTinyCheckpoint(folder, { config: { max_position_embeddings: 128 }, chatTemplate });
    const modules = [
      { type: "sentence_transformers.base.modules.transformer.Transformer", path: "" },
      { type: "sentence_transformers.cross_encoder.modules.logit_score.LogitScore", path: "1_LogitScore" },
    ];
    const files = {
      "modules.json": modules,
      "1_LogitScore/config.json": score,
      "sentence_bert_config.json": { processing_kwargs: { chat_template: { add_generation_prompt: true } } },
      "config_sentence_transformers.json": { prompts: { web: "Find pages." }, ...settings },
    };
    await mkdir(join(folder, "1_LogitScore"));
    for (const [name, value] of Object.entries(files)) await writeFile(join(folder, name), JSON.stringify(value));
    return folder;
  }

  /** Logits of the last token, by a decoder of the same checkpoint. */
  async function logitsOf(folder: string, ids: readonly number[]): Promise<Float32Array> {
    await rm(join(folder, "modules.json"));
    const decoder = (await compiled(folder)).createDecoder();
    return decoder.prefill(ids);
  }

  test("a score is the sigmoid of the difference of two logits behind the pair", async () => {
    const folder = await writeReranker({ true_token_id: yes, false_token_id: no });
    const model = await compiled(folder);
    const { ids } = model.reranker!.encode("Which?", "This.", { prompt: "web" });
    const text = "<|start|>system\nFind pages.<|end|><|start|>query\nWhich?<|end|><|start|>document\nThis.<|end|>";
    expect(model.tokenizer.decode(ids, { skipSpecialTokens: false })).toBe(`${text}<|start|>assistant\n`);
    const [score] = await model.rank("Which?", ["This."], { prompt: "web" });
    const long = model.reranker!.encode("Which?", "This ".repeat(200), { truncate: true }).ids;
    expect(long).toHaveLength(128);
    expect(long.slice(-12)).toEqual(ids.slice(-12));
    expect(() => model.reranker!.encode("Which?", "This ".repeat(200))).toThrow("expected at most 128 tokens");
    const logits = await logitsOf(folder, ids);
    expect(score).toBeCloseTo(1 / (1 + Math.exp(logits[no]! - logits[yes]!)), 5);
  });

  test("without a false token, and without a sigmoid, it is the logit", async () => {
    const folder = await writeReranker({ true_token_id: yes }, { activation_fn: "torch.nn.modules.linear.Identity" });
    const model = await compiled(folder);
    const [score] = await model.rank("Which?", ["This."]);
    const logits = await logitsOf(folder, model.reranker!.encode("Which?", "This.").ids);
    expect(score).toBeCloseTo(logits[yes]!, 4);
  });

  test("tokens that the vocabulary does not have are refused", async () => {
    const folder = await writeReranker({ true_token_id: 1e6 });
    await expect(loadCheckpoint(folder)).rejects.toThrow("true_token_id: expected a token id from 0 to");
  });
});
