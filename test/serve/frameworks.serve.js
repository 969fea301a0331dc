/** The AI SDK and LangChain. */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { HumanMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { generateObject, generateText, streamText, tool } from "ai";
import { describe, expect, inject, it } from "vitest";
import { z } from "zod";
import { untilIdle } from "./process.js";

const url = inject("url");
const apiKey = inject("key");
const man = z.object({ name: z.enum(["Brutus", "Cassius"]), isHonourable: z.boolean() });
const prompt = "What news from Rome?";

describe("ai with @ai-sdk/openai-compatible", () => {
  const provider = createOpenAICompatible({
    name: "lowbit",
    baseURL: `${url}/v1`,
    apiKey,
    supportsStructuredOutputs: true,
  });
  const model = provider("demo");
  const settings = { model, prompt, maxRetries: 0, temperature: 0, maxOutputTokens: 12 };

  it("streams the text that it gets whole", async () => {
    const whole = await generateText(settings);
    let text = "";
    const { textStream } = streamText(settings);
    for await (const piece of textStream) text += piece;
    expect(text).toBe(whole.text);
    expect(whole.usage.outputTokens).toBeGreaterThan(0);
  });

  it("answers by a schema", async () => {
    const { object } = await generateObject({ ...settings, maxOutputTokens: 300, temperature: 1, schema: man });
    expect(man.parse(object)).toEqual(object);
  });

  it("calls tools", async () => {
    const oracle = tool({ description: "Asks.", inputSchema: man, execute: async ({ name }) => `${name} will fall.` });
    const fields = { ...settings, maxOutputTokens: 300, temperature: 1, tools: { oracle }, toolChoice: "required" };
    const { toolCalls, toolResults } = await generateText(fields);
    expect(toolCalls[0].toolName).toBe("oracle");
    expect(toolResults[0].output).toMatch(/^(Brutus|Cassius) will fall\.$/);
  });

  it("aborts, which ends the computation", async () => {
    const controller = new AbortController();
    const { textStream } = streamText({ ...settings, maxOutputTokens: 400, abortSignal: controller.signal });
    let pieces = 0;
    for await (const _ of textStream) if (++pieces === 3) controller.abort();
    await untilIdle(url);
  });
});

describe("@langchain/openai", () => {
  const settings = { model: "demo", apiKey, configuration: { baseURL: `${url}/v1` }, maxRetries: 0, temperature: 0 };
  const chat = new ChatOpenAI({ ...settings, maxTokens: 12 });

  it("streams the text that it gets whole", async () => {
    const whole = await chat.invoke([new HumanMessage(prompt)]);
    let text = "";
    for await (const { content } of await chat.stream([new HumanMessage(prompt)])) text += content;
    expect(text).toBe(whole.content);
    expect(whole.usage_metadata.input_tokens).toBeGreaterThan(0);
  });

  it("answers by a schema and calls tools", async () => {
    const long = new ChatOpenAI({ ...settings, maxTokens: 300 });
    const value = await long
      .withStructuredOutput(man, { name: "man", method: "jsonSchema", strict: true })
      .invoke(prompt);
    expect(man.parse(value)).toEqual(value);
    const bound = long.bindTools([{ name: "oracle", description: "Asks.", schema: man }], { tool_choice: "oracle" });
    const { tool_calls } = await bound.invoke(prompt);
    expect([tool_calls[0].name, man.safeParse(tool_calls[0].args).success]).toEqual(["oracle", true]);
  });

  it("aborts, which ends the computation", async () => {
    const long = new ChatOpenAI({ ...settings, maxTokens: 400 });
    const controller = new AbortController();
    const stream = await long.stream([new HumanMessage(prompt)], { signal: controller.signal });
    const read = async () => {
      let pieces = 0;
      for await (const _ of stream) if (++pieces === 3) controller.abort();
    };
    await read().catch(() => {});
    await untilIdle(url);
  });
});
