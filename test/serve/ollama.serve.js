/** Clients of Ollama's API: its own for JavaScript, and LangChain's. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { HumanMessage } from "@langchain/core/messages";
import { ChatOllama, OllamaEmbeddings } from "@langchain/ollama";
import { Ollama } from "ollama";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { z } from "zod";
import { serveHub } from "../support/hub-server.ts";
import { startServer, untilIdle } from "./process.js";

const url = inject("url");
const headers = { Authorization: `Bearer ${inject("key")}` };
const man = z.object({ name: z.enum(["Brutus", "Cassius"]), isHonourable: z.boolean() });
const prompt = "What news from Rome?";
const messages = [{ role: "user", content: prompt }];
const options = { num_predict: 12, temperature: 0 };
const tools = [
  {
    type: "function",
    function: { name: "oracle", description: "Asks.", parameters: z.toJSONSchema(man) },
  },
];

describe("ollama", () => {
  const ollama = new Ollama({ host: url, headers });

  it("streams the text that it gets whole", async () => {
    const whole = await ollama.chat({ model: "demo", messages, options });
    let text = "";
    for await (const part of await ollama.chat({ model: "demo", messages, options, stream: true }))
      text += part.message.content;
    expect(text).toBe(whole.message.content);
    expect([whole.done, whole.eval_count > 0]).toEqual([true, true]);
    const generated = await ollama.generate({ model: "demo", prompt, options });
    let streamed = "";
    for await (const part of await ollama.generate({ model: "demo", prompt, options, stream: true }))
      streamed += part.response;
    expect(streamed).toBe(generated.response);
    expect(generated.response).toBe(whole.message.content);
  });

  it("answers by a schema, thinks and takes tools", async () => {
    const long = { num_predict: 300, temperature: 1, seed: 1 };
    const format = z.toJSONSchema(man);
    const { message } = await ollama.chat({ model: "demo", messages, format, options: long });
    man.parse(JSON.parse(message.content));
    const { message: thought } = await ollama.chat({ model: "demo", messages, think: true, options });
    expect(thought.thinking.length).toBeGreaterThan(0);
    const history = [
      ...messages,
      { role: "assistant", content: "", tool_calls: [{ function: { name: "oracle", arguments: { name: "Brutus" } } }] },
      { role: "tool", tool_name: "oracle", content: "Brutus will fall." },
    ];
    const answer = await ollama.chat({ model: "demo", messages: history, tools, options });
    expect(answer.prompt_eval_count).toBeGreaterThan(100);
  });

  it("lists, shows, embeds, and is told what there is not", async () => {
    const { models } = await ollama.list();
    expect(models.map(({ name }) => name)).toEqual(["demo:latest", "bge:latest"]);
    const shown = await ollama.show({ model: "demo" });
    expect(shown.capabilities).toEqual(["completion", "tools", "thinking"]);
    expect(shown.model_info["unknown.context_length"]).toBeGreaterThan(100);
    expect(shown.details.quantization_level).toMatch(/^4\.\d bits$/);
    const { embeddings } = await ollama.embed({ model: "bge", input: ["Rome", "a dagger"] });
    expect(embeddings.map(({ length }) => length)).toEqual([embeddings[0].length, embeddings[0].length]);
    expect((await ollama.ps()).models.map(({ name }) => name)).toContain("bge:latest");
    expect((await ollama.version()).version).toMatch(/^\d+\.\d+/);
    await expect(ollama.chat({ model: "nope", messages })).rejects.toMatchObject({
      ...{ status_code: 404, error: "model 'nope' not found" },
    });
  });

  it("aborts, which ends the computation", async () => {
    const stream = await ollama.chat({ model: "demo", messages, options: { num_predict: 400 }, stream: true });
    const read = async () => {
      let parts = 0;
      for await (const _ of stream) if (++parts === 3) stream.abort();
    };
    await read().catch(() => {});
    await untilIdle(url);
  });
});

describe("ollama that manages models", () => {
  const folder = mkdtempSync(join(tmpdir(), "lowbit-pull-"));
  let hub;
  let server;
  let ollama;
  beforeAll(async () => {
    hub = await serveHub(fileURLToPath(new URL("../../models/shakespeare", import.meta.url)));
    const env = { HF_ENDPOINT: hub.endpoint, HF_HOME: join(folder, "hub"), LOWBIT_CACHE: join(folder, "programs") };
    server = await startServer([inject("program")], env);
    ollama = new Ollama({ host: server.url, headers });
  });
  afterAll(async () => {
    await server.stop();
    hub.close();
    rmSync(folder, { recursive: true });
  });

  it("pulls a model with progress, copies it, and deletes both", async () => {
    const statuses = [];
    for await (const part of await ollama.pull({ model: "org/name", stream: true })) statuses.push(part);
    expect(statuses[0].status).toBe("pulling manifest");
    expect(statuses.some(({ total, completed }) => total > 0 && completed === total)).toBe(true);
    expect(statuses.at(-1).status).toBe("success");
    await ollama.copy({ source: "org/name", destination: "mine" });
    const { response } = await ollama.generate({ model: "mine", prompt: "ROMEO:", options });
    expect(response.length).toBeGreaterThan(0);
    const names = async () => (await ollama.list()).models.map(({ name }) => name);
    expect(await names()).toEqual(["demo:latest", "org/name:latest", "mine:latest"]);
    await ollama.delete({ model: "mine" });
    await ollama.delete({ model: "org/name" });
    expect(await names()).toEqual(["demo:latest"]);
    await expect(ollama.pull({ model: "llama3.2" })).rejects.toThrow(/^pull model manifest: file does not exist/);
    await expect(ollama.pull({ model: "org/other" })).rejects.toThrow(/^pull model manifest: org\/other cannot be had/);
  });
});

describe("@langchain/ollama", () => {
  const settings = { model: "demo", baseUrl: url, headers, temperature: 0, maxRetries: 0 };
  const chat = new ChatOllama({ ...settings, numPredict: 12, keepAlive: "5m" });

  it("streams the text that it gets whole", async () => {
    const whole = await chat.invoke([new HumanMessage(prompt)]);
    let text = "";
    for await (const { content } of await chat.stream([new HumanMessage(prompt)])) text += content;
    expect(text).toBe(whole.content);
    expect(whole.usage_metadata.input_tokens).toBeGreaterThan(0);
  });

  it("answers by a schema, offers tools and embeds", async () => {
    const long = new ChatOllama({ ...settings, temperature: 1, seed: 1, numPredict: 300 });
    const value = await long.withStructuredOutput(man, { name: "man", method: "jsonSchema" }).invoke(prompt);
    expect(man.parse(value)).toEqual(value);
    const bound = chat.bindTools([{ name: "oracle", description: "Asks.", schema: man }]);
    expect((await bound.invoke(prompt)).usage_metadata.input_tokens).toBeGreaterThan(100);
    const embeddings = new OllamaEmbeddings({ model: "bge", baseUrl: url, headers });
    expect((await embeddings.embedQuery("Rome")).length).toBeGreaterThan(10);
  });
});
