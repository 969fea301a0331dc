/** Ollama's API: the forms of its answers and errors, against what the library itself generates. */
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, it } from "vitest";
import { scriptedModel, toolScript } from "../../../test/support/scripted-model.ts";
import { post, servedApp, tinyModel, tinySource } from "../../../test/support/served.ts";
import { toolTemplate } from "../../../test/support/tiny-checkpoint.ts";
import { loadCompiled } from "../../api/load-compiled.ts";
import { loadCheckpoint } from "../../checkpoint/load.ts";
import { InvalidFileError } from "../../errors.ts";
import type { LanguageModel } from "../../language/language-model.ts";
import type { ServerOptions } from "../listen.ts";
import type { App } from "./route.ts";

let llm: LanguageModel;
let app: App;
beforeAll(async () => {
  llm = await tinyModel({ chatTemplate: toolTemplate });
  app = servedApp({ models: [tinySource(llm)] });
});

const options = { num_predict: 8, temperature: 1, seed: 3 };
const drawn = { maxTokens: 8, temperature: 1, seed: 3 };
const messages = [{ role: "user", content: "Hi" }] as const;

/** Posts as curl does, and gives the lines of the answer. */
async function lines(to: App, path: string, body: object) {
  const response = await to.request(path, { method: "POST", body: JSON.stringify({ model: "tiny", ...body }) });
  const text = await response.text();
  const parsed = text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line)]));
  return { status: response.status, type: response.headers.get("content-type"), lines: parsed };
}

async function said(path: string, body: object, to = app) {
  const { status, body: answer } = await post(to, path, { model: "tiny", stream: false, ...body });
  return { status, ...answer };
}

async function chatText(given: object = {}): Promise<string> {
  const { message } = await llm.chat(messages, { ...drawn, ...given }).result;
  return message.content ?? "";
}

const TIME = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;
const figures = {
  done: true,
  total_duration: expect.any(Number),
  load_duration: expect.any(Number),
  prompt_eval_duration: expect.any(Number),
  eval_duration: expect.any(Number),
};

describe("/api/chat", () => {
  it("streams lines by default, whatever the body is called, and has figures in the last", async () => {
    const { type, lines: parts } = await lines(app, "/api/chat", { messages, options, think: false });
    const result = await llm.chat(messages, { ...drawn, thinking: false }).result;
    expect(type).toBe("application/x-ndjson");
    expect(parts.map(({ message }) => message.content).join("")).toBe(result.message.content);
    for (const { model, created_at, message, done } of parts.slice(0, -1)) {
      expect([model, created_at, message.role]).toEqual(["tiny", expect.stringMatching(TIME), "assistant"]);
      expect(done).toBe(false);
    }
    const { promptTokens, completionTokens } = result.usage;
    expect(parts.at(-1)).toMatchObject({
      ...{ ...figures, done_reason: "length", message: { role: "assistant", content: "" } },
      ...{ prompt_eval_count: promptTokens, eval_count: completionTokens },
    });
  });

  it("answers at once where it is not to stream, as a model of its name with a tag", async () => {
    const answer = await said("/api/chat", { model: "tiny:latest", messages, options, think: false });
    expect(answer).toMatchObject({ ...figures, status: 200, model: "tiny:latest" });
    expect(answer.message).toEqual({ role: "assistant", content: await chatText({ thinking: false }) });
  });

  it("gives thinking and whole calls of tools", async () => {
    const { model, asked } = scriptedModel(toolScript);
    const scripted = servedApp({ models: [tinySource(Object.assign(model, { template: llm.template }))] });
    const parameters = { type: "object", properties: { city: { type: "string" } } };
    const tools = [{ type: "function", function: { name: "weather", description: "Looks.", parameters } }];
    const calls = [
      { id: "call_a", function: { index: 0, name: "weather", arguments: { city: "Rome" } } },
      { id: "call_b", function: { index: 1, name: "now", arguments: {} } },
    ];
    const body = { messages, tools, think: true };
    const answer = await said("/api/chat", body, scripted);
    const message = { role: "assistant", content: "Let me look.", thinking: "It asks.", tool_calls: calls };
    expect(answer).toMatchObject({ done_reason: "stop", message, prompt_eval_count: 7, eval_count: 9 });
    expect(asked[0]!.options).toMatchObject({ tools: [tools[0]!.function], thinking: true });
    const { lines: parts } = await lines(scripted, "/api/chat", body);
    expect(parts.map(({ message: part }) => part.thinking ?? "").join("")).toBe("It asks.");
    expect(parts.flatMap(({ message: part }) => part.tool_calls ?? [])).toEqual(calls);
    expect(parts.at(-1)).toMatchObject({ prompt_eval_duration: 5e8, eval_duration: 2.5e8 });
  });

  it("reads histories with calls by objects, results without ids, and several messages of a user", async () => {
    const { model, asked } = scriptedModel(toolScript);
    const scripted = servedApp({ models: [tinySource(Object.assign(model, { template: llm.template }))] });
    const call = (name: string, n: number) => ({ function: { name, arguments: { n } } });
    const history = [
      { role: "system", content: "Be brief." },
      { role: "user", content: "One" },
      { role: "user", content: "Two", images: [] },
      { role: "assistant", content: "", thinking: "Hm", tool_calls: [call("a", 1), call("b", 2)] },
      { role: "tool", tool_name: "b", content: "second" },
      { role: "tool", content: "first" },
    ];
    expect((await said("/api/chat", { messages: history }, scripted)).status).toBe(200);
    const toolCalls = [
      { id: "call_0", name: "a", arguments: '{"n":1}' },
      { id: "call_1", name: "b", arguments: '{"n":2}' },
    ];
    expect(asked[0]!.messages).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: "One\n\nTwo" },
      { role: "assistant", content: "", reasoning: "Hm", toolCalls },
      { role: "tool", content: "second", toolCallId: "call_1", name: "b" },
      { role: "tool", content: "first", toolCallId: "call_0", name: "a" },
    ]);
  });

  it.each([
    [
      { temperature: 0.5, top_k: 0, top_p: 0.5, min_p: 0.1 },
      { temperature: 0.5, topK: 0, topP: 0.5, minP: 0.1 },
    ],
    [
      { repeat_penalty: 1.3, repeat_last_n: -1 },
      { repetitionPenalty: 1.3, penaltyWindow: Number.POSITIVE_INFINITY },
    ],
    [{ num_predict: -1, num_ctx: 4096, num_gpu: 1, seed: -1, stop: ["", "END"] }, { stop: ["END", "OWN"] }],
    [
      { num_predict: 5, presence_penalty: 0.5, frequency_penalty: 1 },
      { maxTokens: 5, presencePenalty: 0.5, frequencyPenalty: 1 },
    ],
  ])("takes the options %j", async (given, expected) => {
    const { model, asked } = scriptedModel(toolScript);
    const scripted = servedApp({ models: [tinySource(Object.assign(model, { template: llm.template }))] });
    await said("/api/chat", { messages, options: given }, scripted);
    const { prefixScope: _, signal: __, ...rest } = asked[0]!.options;
    expect(rest).toEqual(expected);
  });

  it("holds answers to JSON or a schema", async () => {
    const schema = {
      type: "object",
      properties: { n: { enum: [1, 2] } },
      required: ["n"],
      additionalProperties: false,
    };
    const fields = { messages, think: false, options: { ...options, num_predict: 200 } };
    const { message } = await said("/api/chat", { ...fields, format: schema });
    expect([1, 2]).toContain(JSON.parse(message.content).n);
    const { message: free, done_reason } = await said("/api/chat", { ...fields, format: "json" });
    if (done_reason === "stop") JSON.parse(free.content);
    expect(free.content.trimStart()).toMatch(/^[[{"\dtfn-]/);
  });

  it("gives probabilities of tokens", async () => {
    const { lines: parts } = await lines(app, "/api/chat", { messages, options, logprobs: true, top_logprobs: 2 });
    const [first] = parts.flatMap(({ logprobs }) => logprobs ?? []);
    expect(first).toMatchObject({ token: expect.any(String), logprob: expect.any(Number) });
    expect(first.top_logprobs).toHaveLength(2);
  });
});

describe("/api/generate", () => {
  const prompt = "The quick brown fox";
  it("answers in the chat template, or continues the bare text", async () => {
    const asked = [
      { role: "system", content: "Be brief." },
      { role: "user", content: prompt },
    ] as const;
    const { message } = await llm.chat(asked, { ...drawn, thinking: false }).result;
    const answer = await said("/api/generate", { prompt, system: "Be brief.", think: false, options });
    expect(answer).toMatchObject({ ...figures, response: message.content });
    let text = "";
    for await (const piece of llm.generate(prompt, drawn)) text += piece;
    const ids = llm.tokenizer.encode(prompt);
    expect(await said("/api/generate", { prompt, raw: true, options })).toMatchObject({
      ...{ response: text, prompt_eval_count: ids.length, eval_count: 8, done_reason: "length" },
    });
    const { lines: parts } = await lines(app, "/api/generate", { prompt, raw: true, options });
    expect(parts.map(({ response }) => response).join("")).toBe(text);
  });
});

describe("models", () => {
  const folder = fileURLToPath(new URL("../../../models/tiny-bge", import.meta.url));
  async function twoModels(more: Partial<ServerOptions> = {}) {
    const model = await loadCheckpoint(folder);
    const bge = await loadCompiled(model);
    await model.close();
    const facts = {
      ...{ makes: "text", format: "pte", architecture: "llama", parameters: 1.2345e9, bitsPerWeight: 4.56 },
      ...{ contextLength: 512, template: llm.template!.source },
    } as const;
    const other = await tinyModel({ chatTemplate: toolTemplate });
    const tiny = { ...tinySource(other), bytes: 7, facts, modifiedAt: new Date(0) };
    return servedApp({ models: [tiny, tinySource(bge, "org/bge")], ...more });
  }
  const get = async (to: App, path: string) => (await to.request(path)).json();

  it("are listed with tags, shown and loaded ones told apart", async () => {
    const served = await twoModels();
    const { models } = await get(served, "/api/tags");
    expect(models.map(({ name }: { name: string }) => name)).toEqual(["tiny:latest", "org/bge:latest"]);
    expect(models[0]).toMatchObject({
      ...{ model: "tiny:latest", size: 7, modified_at: "1970-01-01T00:00:00.000Z" },
      ...{ digest: expect.stringMatching(/^[0-9a-f]{64}$/), capabilities: ["completion", "tools", "thinking"] },
      details: { format: "pte", family: "llama", parameter_size: "1.23B", quantization_level: "4.6 bits" },
    });
    expect(await get(served, "/api/ps")).toEqual({ models: [] });
    expect((await post(served, "/api/show", { name: "tiny" })).body).toMatchObject({
      ...{ capabilities: ["completion", "tools", "thinking"], template: llm.template!.source },
      model_info: { "general.architecture": "llama", "llama.context_length": 512, "general.parameter_count": 1.2345e9 },
    });
    expect(await get(served, "/api/ps")).toEqual({ models: [] });
    expect((await post(served, "/api/show", { model: "org/bge" })).body.capabilities).toEqual(["embedding"]);
    const { models: loaded } = await get(served, "/api/ps");
    expect(loaded).toHaveLength(1);
    expect(loaded[0]).toMatchObject({ name: "org/bge:latest", size_vram: 0, size: expect.any(Number) });
    expect((await get(served, "/api/version")).version).toMatch(/^\d+\.\d+\.\d+$/);
  });

  it("are loaded and put away by requests without a prompt, and by keep_alive", async () => {
    const served = await twoModels();
    const names = async () => (await get(served, "/api/ps")).models.map(({ name }: { name: string }) => name);
    expect(await said("/api/generate", {}, served)).toMatchObject({ response: "", done: true, done_reason: "load" });
    expect(await names()).toEqual(["tiny:latest"]);
    await said("/api/chat", { messages: [], keep_alive: "1h" }, served);
    const [{ expires_at }] = (await get(served, "/api/ps")).models;
    expect(Math.abs(Date.parse(expires_at) - Date.now() - 3_600_000)).toBeLessThan(60_000);
    expect(await said("/api/chat", { messages, options, keep_alive: 0 }, served)).toMatchObject({ status: 200 });
    await expect.poll(names).toEqual([]);
    await said("/api/chat", { messages: [] }, served);
    const unloaded = await said("/api/generate", { prompt: "", keep_alive: 0 }, served);
    expect([unloaded.done_reason, await names()]).toEqual(["unload", []]);
  });

  it("are copied and deleted", async () => {
    const served = await twoModels();
    const remove = (name: string) =>
      served.request("/api/delete", { method: "DELETE", body: JSON.stringify({ model: name }) });
    const copied = await post(served, "/api/copy", { source: "tiny", destination: "mine:latest" });
    expect(copied.status).toBe(200);
    const answer = await said("/api/chat", { model: "mine", messages, options, think: false }, served);
    expect(answer.message.content).toBe(await chatText({ thinking: false }));
    expect((await remove("tiny")).status).toBe(200);
    expect((await remove("tiny")).status).toBe(404);
    expect((await said("/api/chat", { model: "mine", messages, options }, served)).status).toBe(200);
    expect((await remove("mine:latest")).status).toBe(200);
    expect((await get(served, "/api/tags")).models).toHaveLength(1);
    expect((await get(served, "/api/ps")).models).toEqual([]);
  });

  it("are pulled, which tells how far it is, and then served", async () => {
    const served = await twoModels({
      async pull(name, { onProgress }) {
        if (!name.includes("/")) throw new InvalidFileError("/secret/folder", "is not there");
        onProgress("downloading", 5, 10);
        await new Promise((resolve) => setTimeout(resolve, 20));
        onProgress("quantizing", 10, 10);
        return { name, bytes: 0, load: () => tinyModel({ chatTemplate: toolTemplate }) };
      },
    });
    const { lines: parts } = await lines(served, "/api/pull", { model: "org/new:latest" });
    expect(parts[0]).toEqual({ status: "pulling manifest" });
    expect(parts[1]).toMatchObject({ status: expect.stringMatching(/^pulling \w{12}$/), completed: 5, total: 10 });
    expect(parts.at(-2)).toMatchObject({ status: expect.stringMatching(/^quantizing/), digest: expect.any(String) });
    expect(parts.at(-1)).toEqual({ status: "success" });
    expect((await said("/api/chat", { model: "org/new", messages, options }, served)).status).toBe(200);
    expect(await said("/api/pull", { model: "org/new" }, served)).toEqual({ status: "success" });
    const { lines: failed } = await lines(served, "/api/pull", { model: "nothing" });
    expect(failed.at(-1).error).toMatch(/^pull model manifest: nothing/);
    expect(JSON.stringify(failed)).not.toContain("secret");
    const own = await post(served, "/v1/models/pull", { model: "org/other" });
    expect(own.body).toEqual({ id: "org/other", object: "model", state: "away" });
    expect((await post(served, "/v1/models/load", { model: "org/other" })).body.state).toBe("loaded");
    expect((await post(served, "/v1/models/unload", { model: "org/other" })).body.state).toBe("away");
  });

  it("are changed by keys that may, and no others", async () => {
    const keys = ["sk-ask", { key: "sk-manage", manages: true }];
    const served = await twoModels({ keys });
    const as = (key: string, path: string, body: object) =>
      post(served, path, { model: "tiny", stream: false, ...body }, { authorization: `Bearer ${key}` });
    for (const [path, body] of [
      ["/api/pull", {}],
      ["/api/copy", { source: "tiny", destination: "mine" }],
      ["/api/generate", { keep_alive: 0 }],
      ["/v1/models/load", {}],
      ["/v1/models/unload", {}],
      ["/v1/models/pull", {}],
    ] as const) {
      expect([path, (await as("sk-ask", path, body)).status]).toEqual([path, 403]);
      expect([path, (await as("sk-manage", path, body)).status]).toEqual([path, 200]);
    }
    const other = servedApp({ models: [tinySource(llm)], keys: ["sk-ask"] });
    const asked = { model: "tiny", messages, options, stream: false, keep_alive: "1s" };
    const kept = await post(other, "/api/chat", asked, { authorization: "Bearer sk-ask" });
    expect([kept.status, kept.headers.get("lowbit-warning")]).toEqual([200, expect.stringContaining("keep_alive")]);
    const open = await twoModels({ host: "0.0.0.0" });
    expect((await post(open, "/api/pull", { model: "tiny", stream: false })).status).toBe(403);
  });

  it("give vectors in both forms", async () => {
    const served = await twoModels();
    const asked = { model: "org/bge", input: ["Paris", "a baguette"] };
    const { body } = await post(served, "/api/embed", asked);
    const { body: openai } = await post(served, "/v1/embeddings", asked);
    expect(body.embeddings).toEqual(openai.data.map(({ embedding }: { embedding: number[] }) => embedding));
    expect(body).toMatchObject({ model: "org/bge", prompt_eval_count: openai.usage.prompt_tokens });
    const one = await post(served, "/api/embeddings", { model: "org/bge", prompt: "Paris" });
    expect(one.body).toEqual({ embedding: body.embeddings[0] });
    const long = { model: "org/bge", input: "word ".repeat(2000) };
    expect((await post(served, "/api/embed", long)).body.embeddings).toHaveLength(1);
    expect((await post(served, "/api/embed", { ...long, truncate: false })).status).toBe(400);
    expect((await post(served, "/api/embed", { model: "org/bge", input: [] })).body.embeddings).toEqual([]);
  });
});

/** Requests as programs send them, with texts of our own. */
describe("requests of", () => {
  /** As Open WebUI sends a conversation on: its own fields are gone, options are what a user has set. */
  const openWebUi = {
    ...{ model: "tiny:latest", stream: true, keep_alive: "5m", format: "", think: false },
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "What is in the file?" },
      { role: "assistant", content: "A list." },
      { role: "user", content: "Of what?" },
    ],
    options: { ...options, num_ctx: 4096, num_gpu: 0, num_thread: 2, mirostat: 0, tfs_z: 1, repeat_last_n: 64 },
  };
  /** As n8n's node for Ollama does, by LangChain: every option that has a default, and some that are null. */
  const n8n = {
    model: "tiny",
    messages: [
      { role: "system", content: "You answer questions about orders." },
      { role: "user", content: "Where is order 17?" },
    ],
    format: "json",
    keep_alive: "5m",
    options: {
      ...{ ...options, num_ctx: 2048, num_batch: 512, num_gpu: -1, main_gpu: 0, low_vram: null, use_mmap: true },
      ...{ f16_kv: true, penalize_newline: true, vocab_only: false, use_mlock: false, top_k: -1, top_p: 1 },
      ...{ presence_penalty: 0, frequency_penalty: 0, repeat_penalty: 1, embedding_only: null, numa: null },
    },
    tools: [
      {
        type: "function",
        function: {
          name: "orders",
          description: "Finds an order.",
          parameters: {
            type: "object",
            properties: { number: { type: "number" } },
            required: ["number"],
            additionalProperties: false,
            $schema: "http://json-schema.org/draft-07/schema#",
          },
        },
      },
    ],
  };
  it.each([
    ["Open WebUI", "/api/chat", openWebUi],
    ["Open WebUI, titles", "/api/chat", { ...openWebUi, stream: false, options: { num_predict: 20, stop: [] } }],
    [
      "Open WebUI, completions",
      "/api/generate",
      { model: "tiny:latest", prompt: "Go on", options, suffix: "", system: "" },
    ],
    ["n8n", "/api/chat", n8n],
  ])("%s", async (_name, path, body) => {
    const { status, lines: parts } = await lines(app, path, body);
    expect([status, parts.at(-1)]).toMatchObject([200, { ...figures, model: body.model }]);
  });

  it("Open WebUI that looks whether a server is there, and loads", async () => {
    for (const path of ["/", "/api/version", "/api/tags", "/api/ps"])
      for (const method of ["GET", "HEAD"]) expect((await app.request(path, { method })).status).toBe(200);
    const { body } = await post(app, "/api/generate", { model: "tiny:latest", prompt: "", keep_alive: -1 });
    expect(body).toMatchObject({ done_reason: "load" });
  });
});

describe("errors", () => {
  const plain = { messages, stream: false };
  it.each([
    ["/api/chat", { ...plain, model: "nope" }, 404, /^model 'nope' not found$/],
    ["/api/show", { model: "nope" }, 404, /^model 'nope' not found$/],
    ["/api/show", { model: null }, 400, /^model is required$/],
    ["/api/chat", { messages: [{ role: "king", content: "" }] }, 400, /^messages\.0\.role: /],
    ["/api/chat", { ...plain, options: { temperature: "hot" } }, 400, /^options\.temperature: /],
    ["/api/chat", { ...plain, keep_alive: "soon" }, 400, /^keep_alive: /],
    ["/api/chat", { messages: [{ ...messages[0], images: ["iVBO"] }] }, 400, /reads no images/],
    ["/api/chat", { messages: [{ role: "user", content: "word ".repeat(2000) }] }, 400, /^the input length exceeds/],
    ["/api/generate", { prompt: "a", suffix: "b", stream: false }, 400, /does not support insert$/],
    ["/api/generate", { prompt: "a", template: "{{ .Prompt }}" }, 400, /^template: /],
    ["/api/embed", { input: "a" }, 400, /does not give embeddings/],
    ["/api/pull", { model: "org/name", stream: false }, 400, /^pull model manifest: /],
    ["/api/create", {}, 404, /no such endpoint/],
  ])("of %s with %j are sentences", async (path, body, status, sentence) => {
    const answer = await post(app, path, { model: "tiny", ...body });
    expect([answer.status, answer.body]).toEqual([status, { error: expect.stringMatching(sentence) }]);
  });

  it("say what a model does not do", async () => {
    const bare = await tinyModel();
    const served = servedApp({ models: [tinySource(bare)] });
    const tools = [{ type: "function", function: { name: "a" } }];
    const cases = [
      ["tools", { tools }],
      ["thinking", { think: true }],
      ["thinking", { think: "high" }],
    ] as const;
    for (const [what, fields] of cases) {
      const answer = await said("/api/chat", { ...plain, ...fields }, served);
      expect(answer).toEqual({ status: 400, error: `"tiny" does not support ${what}` });
    }
    expect((await said("/api/chat", { ...plain, options, think: false }, served)).status).toBe(200);
  });

  it("of a stream that has begun are its last line", async () => {
    const { model } = scriptedModel({ ...toolScript, error: new Error("secret") });
    const scripted = servedApp({ models: [tinySource(Object.assign(model, { template: llm.template }))] });
    const { status, lines: parts } = await lines(scripted, "/api/chat", { messages });
    expect([status, parts.at(-1)]).toEqual([200, { error: expect.stringMatching(/^the server failed/) }]);
  });
});
