/** Calls of the AI SDK's specification for documents by relevance. */
import { expect, it, onTestFinished } from "vitest";
import { tinyModel } from "../../test/support/served.ts";
import { writeClassifier } from "../../test/support/text-models.ts";
import { loadCompiled } from "../api/load-compiled.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { UnsupportedError } from "../errors.ts";
import { createLowbit } from "./provider.ts";

it("a ranking is that of the library's scores", async () => {
  const head = {
    ...{ "bert.pooler.dense.weight": [64, 64], "bert.pooler.dense.bias": [64] },
    ...{ "classifier.weight": [1, 64], "classifier.bias": [1] },
  };
  const given = { architecture: "BertForSequenceClassification", prefix: "bert.", head };
  const { folder } = await writeClassifier("bert-bge", given);
  const checkpoint = await loadCheckpoint(folder);
  const llm = await loadCompiled(checkpoint);
  await checkpoint.close();
  onTestFinished(() => llm.dispose());
  const model = createLowbit({ models: { small: llm } }).rerankingModel("small");
  expect(model).toMatchObject({ specificationVersion: "v3", provider: "lowbit", modelId: "small" });
  const query = "What is the capital of France?";
  const values = ["A baguette is a bread.", "Paris is the capital of France.", "Rome", "Paris"];
  const scores = await llm.rank(query, values);
  const expected = scores.map((relevanceScore, index) => ({ index, relevanceScore }));
  expected.sort((a, b) => b.relevanceScore - a.relevanceScore);
  const texts = { type: "text", values } as const;
  expect(await model.doRerank({ query, documents: texts })).toEqual({ ranking: expected, warnings: [] });
  const lowbit = { truncate: true, topK: 1 };
  const two = await model.doRerank({ query, documents: texts, topN: 2, providerOptions: { lowbit } });
  expect(two.ranking).toEqual(expected.slice(0, 2));
  expect(two.warnings).toEqual([{ type: "unsupported", feature: "providerOptions.lowbit.topK" }]);
  const objects = values.map((text) => ({ text }));
  const written = await llm.rank(
    query,
    objects.map((value) => JSON.stringify(value)),
  );
  const { ranking } = await model.doRerank({ query, documents: { type: "object", values: objects } });
  for (const { index, relevanceScore } of ranking) expect(relevanceScore).toBe(written[index]);
  expect(await model.doRerank({ query, documents: { type: "text", values: [] } })).toMatchObject({ ranking: [] });
  const reason = new Error("enough");
  const aborted = model.doRerank({ query, documents: texts, abortSignal: AbortSignal.abort(reason) });
  await expect(aborted).rejects.toBe(reason);
});

it("a model that generates text ranks nothing", async () => {
  const llm = await tinyModel();
  onTestFinished(() => llm.dispose());
  const model = createLowbit({ models: { small: llm } }).rerankingModel("small");
  await expect(model.doRerank({ query: "a", documents: { type: "text", values: ["b"] } })).rejects.toThrow(
    UnsupportedError,
  );
});
