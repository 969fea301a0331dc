/** Calls of the AI SDK's specification: what the model is asked, and what comes back, whole and as a stream. */
import type { LanguageModelV3CallOptions, LanguageModelV3Prompt, LanguageModelV3StreamPart } from "@ai-sdk/provider";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { type Script, scriptedModel, toolScript } from "../../test/support/scripted-model.ts";
import { toolTemplate, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCompiled } from "../api/load-compiled.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { ContextLengthError, InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { LanguageModel } from "../language/language-model.ts";
import { createLowbit } from "./provider.ts";

const prompt: LanguageModelV3Prompt = [{ role: "user", content: [{ type: "text", text: "Hi" }] }];

function scripted(script: Script = toolScript) {
  const { model, asked } = scriptedModel(script);
  return { model: createLowbit({ models: { scripted: model } })("scripted"), asked };
}

async function partsOf(stream: ReadableStream<LanguageModelV3StreamPart>): Promise<LanguageModelV3StreamPart[]> {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

const usage = {
  inputTokens: { total: 7, noCache: 4, cacheRead: 3, cacheWrite: undefined },
  outputTokens: { total: 9, text: 7, reasoning: 2 },
  raw: { promptTokens: 7, cachedTokens: 3, completionTokens: 9, reasoningTokens: 2 },
};
const finish = { finishReason: { unified: "tool-calls", raw: "toolCalls" }, usage };
const calls = [
  { type: "tool-call", toolCallId: "call_a", toolName: "weather", input: '{"city":"Rome"}' },
  { type: "tool-call", toolCallId: "call_b", toolName: "now", input: "{}" },
];

describe("an answer", () => {
  it("has its parts in order, with finish reason and usage", async () => {
    const result = await scripted().model.doGenerate({ prompt });
    expect(result).toMatchObject({ ...finish, warnings: [], response: { modelId: "scripted" } });
    expect(result.content).toEqual([
      { type: "reasoning", text: "It asks." },
      { type: "text", text: "Let me look." },
      ...calls,
    ]);
  });

  it("comes as a stream of the same", async () => {
    const { stream } = await scripted().model.doStream({ prompt });
    const parts = await partsOf(stream);
    expect(parts[1]).toMatchObject({ type: "response-metadata", modelId: "scripted" });
    parts.splice(1, 1);
    expect(parts).toMatchObject([
      { type: "stream-start", warnings: [] },
      { type: "reasoning-start", id: "reasoning-0" },
      { type: "reasoning-delta", id: "reasoning-0", delta: "It " },
      { type: "reasoning-delta", id: "reasoning-0", delta: "asks." },
      { type: "reasoning-end", id: "reasoning-0" },
      { type: "text-start", id: "text-1" },
      { type: "text-delta", id: "text-1", delta: "Let me " },
      { type: "text-delta", id: "text-1", delta: "look." },
      { type: "text-end", id: "text-1" },
      { type: "tool-input-start", id: "call_a", toolName: "weather" },
      { type: "tool-input-delta", id: "call_a", delta: '{"city":' },
      { type: "tool-input-delta", id: "call_a", delta: '"Rome"}' },
      { type: "tool-input-end", id: "call_a" },
      calls[0],
      { type: "tool-input-start", id: "call_b", toolName: "now" },
      { type: "tool-input-delta", id: "call_b", delta: "{}" },
      { type: "tool-input-end", id: "call_b" },
      calls[1],
      { type: "finish", ...finish },
    ]);
  });

  it("has the library's events beside its parts where they are asked for", async () => {
    const { stream } = await scripted({ events: [{ type: "text", text: "Yes." }] }).model.doStream({
      prompt,
      includeRawChunks: true,
    });
    const raw = (await partsOf(stream)).filter(({ type }) => type === "raw");
    expect(raw).toMatchObject([{ rawValue: { type: "text", text: "Yes." } }]);
  });

  it("that is empty has no content", async () => {
    const { model } = scripted({ events: [], finishReason: "length" });
    expect(await model.doGenerate({ prompt })).toMatchObject({ content: [], finishReason: { unified: "length" } });
    const { stream } = await model.doStream({ prompt });
    expect((await partsOf(stream)).map(({ type }) => type)).toEqual(["stream-start", "response-metadata", "finish"]);
  });

  it("that fails on its way says so, and ends", async () => {
    const error = new UnsupportedError("no more");
    const { model } = scripted({ events: [{ type: "text", text: "Yes" }], error });
    await expect(model.doGenerate({ prompt })).rejects.toBe(error);
    const { stream } = await model.doStream({ prompt });
    const parts = await partsOf(stream);
    expect(parts.slice(-2)).toMatchObject([{ type: "error", error }, { type: "finish" }]);
    expect(parts.at(-1)).toMatchObject({ finishReason: { unified: "error" } });
    await expect(scripted({ events: [], error }).model.doStream({ prompt })).rejects.toBe(error);
  });
});

describe("what the model is asked", () => {
  async function askedFor(call: Partial<LanguageModelV3CallOptions> & { reasoning?: string }, template = "") {
    const { model, asked } = scriptedModel({ events: [] });
    Object.assign(model, { template: { source: template } });
    const provider = createLowbit({ models: { scripted: model } });
    const { warnings } = await provider("scripted").doGenerate({ prompt, ...call });
    // What is not given is not there.
    return { ...(JSON.parse(JSON.stringify(asked[0])) as (typeof asked)[number]), warnings };
  }

  it("are messages of every kind", async () => {
    const { messages } = await askedFor({
      prompt: [
        { role: "system", content: "Be brief." },
        {
          role: "user",
          content: [
            { type: "text", text: "What is " },
            { type: "file", mediaType: "text/plain", data: new TextEncoder().encode("é ") },
            { type: "file", mediaType: "text/markdown", data: Buffer.from("*b* ").toString("base64") },
            { type: "file", mediaType: "text/plain", data: { type: "text", text: "c?" } as never },
          ],
        },
        {
          role: "assistant",
          content: [
            { type: "reasoning", text: "Hm." },
            { type: "text", text: "Let me see." },
            { type: "tool-call", toolCallId: "1", toolName: "look", input: { at: "a" } },
            { type: "tool-call", toolCallId: "2", toolName: "look", input: "no JSON" },
            { type: "tool-result", toolCallId: "0", toolName: "old", output: { type: "text", value: "Found." } },
          ],
        },
        {
          role: "tool",
          content: [
            { type: "tool-result", toolCallId: "1", toolName: "look", output: { type: "json", value: { n: 1 } } },
            { type: "tool-approval-response", approvalId: "x", approved: true },
            { type: "tool-result", toolCallId: "2", toolName: "look", output: { type: "error-text", value: "No." } },
            { type: "tool-result", toolCallId: "3", toolName: "look", output: { type: "execution-denied" } },
            {
              ...{ type: "tool-result", toolCallId: "4", toolName: "look" },
              output: { type: "content", value: [{ type: "text", text: "Both." }] },
            },
          ],
        },
        { role: "assistant", content: [{ type: "tool-call", toolCallId: "5", toolName: "now", input: undefined }] },
      ],
    });
    const result = (toolCallId: string, content: string, name = "look") => ({
      role: "tool",
      content,
      toolCallId,
      name,
    });
    expect(messages).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: "What is é *b* c?" },
      {
        ...{ role: "assistant", content: "Let me see.", reasoning: "Hm." },
        toolCalls: [
          { id: "1", name: "look", arguments: '{"at":"a"}' },
          { id: "2", name: "look", arguments: "no JSON" },
        ],
      },
      result("0", "Found.", "old"),
      result("1", '{"n":1}'),
      result("2", "No."),
      result("3", "The user did not let the tool run."),
      result("4", "Both."),
      { role: "assistant", content: null, toolCalls: [{ id: "5", name: "now", arguments: "{}" }] },
    ]);
  });

  it("is not asked what is no text", async () => {
    const file = (mediaType: string, data: Uint8Array | URL) =>
      askedFor({ prompt: [{ role: "user", content: [{ type: "file", mediaType, data }] }] });
    await expect(file("image/png", new Uint8Array(4))).rejects.toThrow(UnsupportedError);
    await expect(file("image/png", new Uint8Array(4))).rejects.toThrow(/^prompt\[0\].content\[0\]: expected text but/);
    await expect(file("text/plain", new URL("https://example.com/a"))).rejects.toThrow(
      /found https:\/\/example.com\/a/,
    );
    const value = [{ type: "image-data" as const, data: "", mediaType: "image/png" }];
    const output = { type: "content" as const, value };
    const result = { type: "tool-result" as const, toolCallId: "1", toolName: "look", output };
    await expect(askedFor({ prompt: [{ role: "tool", content: [result] }] })).rejects.toThrow(
      "prompt[0].content[0].output.value[0]: expected text but found image-data",
    );
  });

  it("has the settings of the call, and the model's own stop strings", async () => {
    const schema = { type: "object" as const, properties: { n: { type: "integer" as const } } };
    const { options, warnings } = await askedFor({
      ...{ maxOutputTokens: 5, temperature: 0.5, topP: 0.9, topK: 3, presencePenalty: 1, frequencyPenalty: 2, seed: 4 },
      stopSequences: ["END"],
      tools: [{ type: "function", name: "now", description: "The time.", inputSchema: schema, strict: true }],
      toolChoice: { type: "tool", toolName: "now" },
      responseFormat: { type: "json", schema, name: "n" },
      headers: { "user-agent": "ai/6" },
      providerOptions: {
        lowbit: { thinking: { budget: 5 }, minP: 0.1, templateOptions: { a: 1 }, logitBias: { 3: -1 } },
        other: { x: 1 },
      },
    });
    expect(options).toEqual({
      ...{ maxTokens: 5, temperature: 0.5, topP: 0.9, topK: 3, presencePenalty: 1, frequencyPenalty: 2, seed: 4 },
      stop: ["END", "OWN"],
      tools: [{ name: "now", description: "The time.", parameters: schema, strict: true }],
      toolChoice: { name: "now" },
      constraint: { kind: "jsonSchema", schema },
      thinking: { budget: 5 },
      minP: 0.1,
      templateOptions: { a: 1 },
      logitBias: { 3: -1 },
    });
    expect(warnings).toEqual([]);
    const { options: few } = await askedFor({ responseFormat: { type: "json" }, toolChoice: { type: "required" } });
    expect(few).toEqual({ tools: [], toolChoice: "required", constraint: { kind: "json" } });
    expect((await askedFor({ responseFormat: { type: "text" } })).options).toEqual({ tools: [] });
  });

  it("comes with a warning for each setting without effect", async () => {
    const { options, warnings } = await askedFor({
      tools: [
        { type: "provider", id: "openai.web_search", name: "search", args: {} },
        { type: "function", name: "now", inputSchema: {}, inputExamples: [{ input: {} }] },
      ],
      headers: { authorization: "x" },
      providerOptions: { lowbit: { beams: 4, temperature: 1 } },
    });
    expect(options.tools).toEqual([{ name: "now", parameters: {} }]);
    expect(warnings.map((warning) => (warning.type === "unsupported" ? warning.feature : ""))).toEqual([
      "headers",
      "tool openai.web_search",
      "inputExamples",
      "providerOptions.lowbit.beams",
      "providerOptions.lowbit.temperature",
    ]);
  });

  it("is how much to think, in the template's own way", async () => {
    const switched = "{% if enable_thinking %}<think>{% endif %}</think>";
    const { options, warnings } = await askedFor({ reasoning: "high" }, switched);
    expect(options.thinking).toBe(true);
    expect(warnings).toMatchObject([{ type: "compatibility", feature: "reasoning" }]);
    expect((await askedFor({ reasoning: "none" }, switched)).options.thinking).toBe(false);
    expect((await askedFor({ reasoning: "provider-default" }, switched)).options).toEqual({ tools: [] });
    const graded = "{{ reasoning_effort }}<|channel|><|message|>";
    expect((await askedFor({ reasoning: "xhigh" }, graded)).options.templateOptions).toEqual({
      reasoning_effort: "high",
    });
    const plain = await askedFor({ reasoning: "low" }, "{{ messages }}");
    expect([plain.options, plain.warnings]).toMatchObject([{}, [{ type: "unsupported", feature: "reasoning" }]]);
  });
});

describe("a real model", () => {
  let llm: LanguageModel;
  beforeAll(async () => {
    const folder = await temporaryFolder();
    await writeTinyCheckpoint(folder, { config: { max_position_embeddings: 512 }, chatTemplate: toolTemplate });
    const checkpoint = await loadCheckpoint(folder);
    llm = await loadCompiled(checkpoint);
    await checkpoint.close();
  });
  afterAll(() => llm.dispose());

  const short = { prompt, temperature: 0, maxOutputTokens: 9 };
  const model = () => createLowbit({ models: { tiny: llm } })("tiny");

  it("answers as the library does, whole and as a stream", async () => {
    const { message, usage } = await llm.chat([{ role: "user", content: "Hi" }], { temperature: 0, maxTokens: 9 })
      .result;
    const { content, usage: counted } = await model().doGenerate(short);
    expect(content).toEqual([{ type: "text", text: message.content }]);
    expect(counted.inputTokens.total).toBe(usage.promptTokens);
    const { stream } = await model().doStream(short);
    const texts = (await partsOf(stream)).map((part) => (part.type === "text-delta" ? part.delta : ""));
    expect(texts.join("")).toBe(message.content);
  });

  it("thinks, and counts its thinking", async () => {
    const providerOptions = { lowbit: { thinking: { budget: 4 } } };
    const { content, usage } = await model().doGenerate({ ...short, maxOutputTokens: 30, providerOptions });
    expect(content[0]).toMatchObject({ type: "reasoning" });
    expect(usage.outputTokens.reasoning).toBeGreaterThan(0);
    expect(usage.outputTokens.text! + usage.outputTokens.reasoning!).toBe(usage.outputTokens.total);
  });

  it("refuses what the library refuses, before a stream begins", async () => {
    const long = [{ role: "user" as const, content: [{ type: "text" as const, text: "word ".repeat(600) }] }];
    await expect(model().doStream({ prompt: long })).rejects.toThrow(ContextLengthError);
    await expect(model().doGenerate({ ...short, temperature: -1 })).rejects.toThrow(InvalidArgumentError);
    const schema = { not: {} };
    await expect(model().doStream({ ...short, responseFormat: { type: "json", schema } })).rejects.toThrow(
      UnsupportedError,
    );
  });

  it("is stopped by a signal, by leaving its stream, and without anyone reading", async () => {
    const running = () => llm.program.sequenceStatistics!.sequences;
    const before = running();
    const long = { prompt, temperature: 0, maxOutputTokens: 400 };
    const reason = new Error("enough");
    await expect(model().doGenerate({ ...long, abortSignal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    const { stream } = await model().doStream({ ...long, abortSignal: controller.signal });
    const reader = stream.getReader();
    await reader.read();
    expect(running()).toBe(before + 1);
    controller.abort(reason);
    await expect(reader.read()).rejects.toBe(reason);
    await vi.waitUntil(() => running() === before);
    const left = await model().doStream(long);
    await left.stream.cancel();
    expect(running()).toBe(before);
    const unread = new AbortController();
    await model().doStream({ ...long, abortSignal: unread.signal });
    unread.abort(reason);
    await vi.waitUntil(() => running() === before);
  });
});
