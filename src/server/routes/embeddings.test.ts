/** /v1/embeddings and /v1/rerank over small models of ../shared. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { post, servedApp, tinySource } from "../../../test/support/served.ts";
import { goldenFolder, goldenItems, hasGoldens, writeClassifier } from "../../../test/support/text-models.ts";
import { loadCompiled } from "../../api/load-compiled.ts";
import { loadCheckpoint } from "../../checkpoint/load.ts";
import type { LanguageModel } from "../../language/language-model.ts";
import type { App } from "./route.ts";

const PATH = "/v1/embeddings";

async function load(folder: string): Promise<LanguageModel> {
  const model = await loadCheckpoint(folder);
  const loaded = await loadCompiled(model);
  await model.close();
  return loaded;
}

describe.skipIf(!hasGoldens)("models that read whole texts (skipped without ../shared)", () => {
  let app: App;
  let models: LanguageModel[];

  beforeAll(async () => {
    const head = {
      ...{ "bert.pooler.dense.weight": [64, 64], "bert.pooler.dense.bias": [64] },
      ...{ "classifier.weight": [1, 64], "classifier.bias": [1] },
    };
    const given = { architecture: "BertForSequenceClassification", prefix: "bert.", head };
    models = [
      await load(goldenFolder("embeddinggemma")),
      await load((await writeClassifier("bert-minilm", given)).folder),
    ];
    app = servedApp({ models: [tinySource(models[0]!, "embed"), tinySource(models[1]!, "rank")] });
  });

  afterAll(async () => {
    for (const model of models) await model.dispose();
  });

  it("gives a vector of each text, as numbers and in base64, and counts tokens", async () => {
    const items = goldenItems("embeddinggemma")
      .filter((item) => item.prompt_name === "query")
      .slice(0, 3);
    const input = items.map(({ text }) => text);
    const { status, body } = await post(app, PATH, { model: "embed", input, prompt_name: "query", truncate: true });
    expect([status, body.object, body.model]).toEqual([200, "list", "embed"]);
    const tokens = items.reduce((sum, { input_ids: ids }) => sum + ids.length, 0);
    expect(body.usage).toEqual({ prompt_tokens: tokens, total_tokens: tokens });
    for (const [i, { embedding }] of items.entries()) {
      expect([body.data[i].object, body.data[i].index]).toEqual(["embedding", i]);
      for (const [c, value] of embedding.entries()) expect(body.data[i].embedding[c]).toBeCloseTo(value, 4);
    }
    const packed = await post(app, PATH, {
      ...{ model: "embed", input: items.map((item) => item.input_ids), encoding_format: "base64" },
    });
    for (const [i, { embedding }] of packed.body.data.entries()) {
      const bytes = Buffer.from(embedding, "base64");
      const floats = Array.from({ length: bytes.length / 4 }, (_, c) => bytes.readFloatLE(4 * c));
      expect(floats).toEqual(body.data[i].embedding);
    }
  });

  it("gives as many dimensions as are asked for, of one text or its ids", async () => {
    const { body } = await post(app, PATH, { model: "embed", input: "light", dimensions: 8 });
    expect(body.data).toHaveLength(1);
    expect(Math.hypot(...body.data[0].embedding)).toBeCloseTo(1, 5);
    expect(body.data[0].embedding).toHaveLength(8);
    const ids = models[0]!.embedding!.encode("light");
    const byIds = await post(app, PATH, { model: "embed", input: ids, dimensions: 8 });
    expect(byIds.body.data[0].embedding).toEqual(body.data[0].embedding);
  });

  it.each([
    [{ input: "light ".repeat(400) }, "context_length_exceeded", "at most 128 tokens"],
    [{ input: "light", dimensions: 65 }, null, "dimensions"],
    [{ input: "light", prompt_name: "nothing" }, null, "one of query, document"],
    [{ input: [4000] }, null, "token ids from 0 to 339"],
    [{ input: "" }, null, "input"],
    [{ input: [] }, null, "input"],
    [{ input: "light", encoding_format: "hex" }, null, "encoding_format"],
  ])("refuses %j", async (fields, code, message) => {
    const { status, body } = await post(app, PATH, { model: "embed", ...fields });
    expect(status).toBe(400);
    if (code !== null) expect(body.error.code).toBe(code);
    expect(body.error.message).toContain(message);
  });

  it("ranks documents, the best first", async () => {
    const documents = ["From light.", "By train.", "With water and sugar, as plants do."];
    const query = "How do plants make food?";
    const scores = await models[1]!.rank(query, documents);
    const { status, body } = await post(app, "/v1/rerank", { model: "rank", query, documents, return_documents: true });
    const order = [0, 1, 2].sort((a, b) => scores[b]! - scores[a]!);
    expect(status).toBe(200);
    expect(body.results).toEqual(
      order.map((index) => ({ index, relevance_score: scores[index], document: { text: documents[index] } })),
    );
    const top = await post(app, "/v1/rerank", { model: "rank", query, documents, top_n: 1 });
    expect(top.body.results).toEqual([{ index: order[0], relevance_score: scores[order[0]!] }]);
  });

  it("refuses what a model is not for", async () => {
    const chat = await post(app, "/v1/chat/completions", {
      model: "embed",
      messages: [{ role: "user", content: "Hi" }],
    });
    expect([chat.status, chat.body.error.message]).toEqual([400, expect.stringContaining("it generates no text")]);
    const rank = await post(app, "/v1/rerank", { model: "embed", query: "a", documents: ["b"] });
    expect([rank.status, rank.body.error.code]).toEqual([400, "unsupported_model"]);
    const embed = await post(app, PATH, { model: "rank", input: "a" });
    expect([embed.status, embed.body.error.code]).toEqual([400, "unsupported_model"]);
  });
});
