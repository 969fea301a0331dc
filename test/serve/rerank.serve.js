/** Rankings by the clients of others: Cohere's, and LiteLLM in the forms of Cohere, Jina and vLLM. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CohereClient, CohereClientV2 } from "cohere-ai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { exportProgram, loadCheckpoint, loadProgram } from "../../dist/index.js";
import { writeClassifier } from "../support/text-models.ts";
import { run, startServer } from "./process.js";

const python = process.env.SERVE_PYTHON ?? "";
const hasLitellm = python !== "" && (await run(python, ["-c", "import litellm"])).code === 0;
const query = "How do plants make food?";
const documents = ["From light.", "By train.", "With water, as plants do."];

describe("a ranking", () => {
  const folder = mkdtempSync(join(tmpdir(), "lowbit-serve-rank-"));
  let server;
  /** Places of the documents and their scores, the best first. */
  let expected;

  beforeAll(async () => {
    const head = {
      ...{ "bert.pooler.dense.weight": [64, 64], "bert.pooler.dense.bias": [64] },
      ...{ "classifier.weight": [1, 64], "classifier.bias": [1] },
    };
    const given = { architecture: "BertForSequenceClassification", prefix: "bert.", head };
    const checkpoint = await loadCheckpoint((await writeClassifier("bert-bge", given)).folder);
    const program = join(folder, "rank.pte");
    await exportProgram(checkpoint, program);
    await checkpoint.close();
    const model = await loadProgram(program);
    const scores = await model.rank(query, documents);
    await model.dispose();
    expected = scores.map((score, index) => [index, score]).sort((a, b) => b[1] - a[1]);
    server = await startServer([program]);
  });

  afterAll(async () => {
    const ended = await server?.stop();
    rmSync(folder, { recursive: true });
    expect(ended?.code).toBe(0);
  });

  it.each([
    ["first", CohereClient],
    ["second", CohereClientV2],
  ])("is the library's by Cohere's client of the %s version", async (_, Client) => {
    const client = new Client({ token: server.key, environment: server.url });
    const { results } = await client.rerank({ model: "rank", query, documents, topN: 2 });
    expect(results.map(({ index, relevanceScore }) => [index, relevanceScore])).toEqual(expected.slice(0, 2));
    await expect(client.rerank({ model: "none", query, documents }, { maxRetries: 0 })).rejects.toMatchObject({
      statusCode: 404,
    });
  });

  it("takes documents as objects, and gives them back, as Cohere's first client has them", async () => {
    const client = new CohereClient({ token: server.key, environment: server.url });
    const given = documents.map((text) => ({ text }));
    const { results } = await client.rerank({ model: "rank", query, documents: given, returnDocuments: true });
    expect(results.map(({ document }) => document.text)).toEqual(expected.map(([index]) => documents[index]));
  });

  it.skipIf(!hasLitellm).each([
    ["cohere/rank", ""],
    ["jina_ai/rank", "/v1/rerank"],
    ["hosted_vllm/rank", "/v1"],
  ])("is the library's by LiteLLM as %s (skipped without it)", async (model, path) => {
    const program = `
import json, litellm
found = litellm.rerank(model=${JSON.stringify(model)}, query=${JSON.stringify(query)}, documents=${JSON.stringify(documents)},
    top_n=2, api_key=${JSON.stringify(server.key)}, api_base=${JSON.stringify(server.url + path)})
print(json.dumps([[result["index"], result["relevance_score"]] for result in found.results]))`;
    const env = { ...process.env, LITELLM_LOCAL_MODEL_COST_MAP: "True" };
    const { code, output } = await run(python, ["-c", program], { env });
    expect([code, code === 0 ? "" : output]).toEqual([0, ""]);
    expect(JSON.parse(output.trim().split("\n").at(-1))).toEqual(expected.slice(0, 2));
  });
});
