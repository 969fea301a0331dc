/** Calls of the AI SDK's specification for embeddings. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { loadCompiled } from "../api/load-compiled.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { InvalidArgumentError } from "../errors.ts";
import { createLowbit } from "./provider.ts";

const folder = join(import.meta.dirname, "../../../shared/golden/models-2026/qwen3-embedding");

it.skipIf(!existsSync(folder))("an embedding is that of the library (skipped without ../shared)", async () => {
  const checkpoint = await loadCheckpoint(folder);
  const llm = await loadCompiled(checkpoint);
  await checkpoint.close();
  onTestFinished(() => llm.dispose());
  const model = createLowbit({ models: { small: llm } }).embeddingModel("small");
  expect(model).toMatchObject({ specificationVersion: "v3", provider: "lowbit", modelId: "small" });
  const values = ["What is the capital of France?", "Paris"];
  const { embeddings, usage, warnings } = await model.doEmbed({ values, headers: { "user-agent": "ai/6" } });
  expect(embeddings).toEqual((await llm.embed(values)).map((vector) => [...vector]));
  expect(usage!.tokens).toBe(values.reduce((sum, text) => sum + llm.embedding!.encode(text).length, 0));
  expect(warnings).toEqual([]);
  const lowbit = { prompt: "query", dimensions: 8, pooling: "cls" };
  const short = await model.doEmbed({ values, providerOptions: { lowbit }, headers: { authorization: "x" } });
  const expected = await llm.embed(values, { prompt: "query", dimensions: 8 });
  expect(short.embeddings).toEqual(expected.map((vector) => [...vector]));
  expect(short.warnings).toEqual([
    { type: "unsupported", feature: "headers" },
    { type: "unsupported", feature: "providerOptions.lowbit.pooling" },
  ]);
  const wrong = model.doEmbed({ values, providerOptions: { lowbit: { prompt: "none of them" } } });
  await expect(wrong).rejects.toThrow(InvalidArgumentError);
  const reason = new Error("enough");
  await expect(model.doEmbed({ values, abortSignal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  expect(await model.doEmbed({ values: [] })).toMatchObject({ embeddings: [], usage: { tokens: 0 } });
});
