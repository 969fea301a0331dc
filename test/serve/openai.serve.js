/** OpenAI's client for JavaScript. */
import OpenAI from "openai";
import { describe, expect, inject, it } from "vitest";
import { untilIdle } from "./process.js";

const url = inject("url");
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: inject("key"), maxRetries: 0 });
const model = "demo";
const messages = [{ role: "user", content: "What news from Rome?" }];
const schema = {
  type: "object",
  properties: { name: { enum: ["Brutus", "Cassius"] }, age: { type: "integer", minimum: 1, maximum: 99 } },
  required: ["name", "age"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "ask_oracle", description: "Asks.", parameters: schema } }];

describe("openai", () => {
  it("lists models", async () => {
    const names = [];
    for await (const { id } of client.models.list()) names.push(id);
    expect(names).toEqual([model, "bge"]);
    expect((await client.models.retrieve(model)).id).toBe(model);
  });

  it("streams the chat that it gets whole", async () => {
    const request = { model, messages, max_tokens: 12, temperature: 0, seed: 1 };
    const whole = await client.chat.completions.create(request);
    const stream = await client.chat.completions.create({
      ...request,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = "";
    let usage;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    expect(text).toBe(whole.choices[0].message.content);
    expect(usage.completion_tokens).toBe(whole.usage.completion_tokens);
    expect(usage.total_tokens).toBe(whole.usage.total_tokens);
  });

  it("completes text, with probabilities", async () => {
    const { choices } = await client.completions.create({ model, prompt: "ROMEO:", n: 2, logprobs: 2, max_tokens: 4 });
    expect(choices.map(({ logprobs }) => logprobs.tokens.length)).toEqual([4, 4]);
  });

  it("embeds texts, as floats, in base64 and shorter", async () => {
    const embeddings = { model: "bge", input: ["What is the capital of France?", "Paris"] };
    const floats = await client.embeddings.create({ ...embeddings, encoding_format: "float" });
    expect(floats.data.map(({ index }) => index)).toEqual([0, 1]);
    const [question, answer] = floats.data.map(({ embedding }) => embedding);
    const norm = Math.hypot(...question);
    expect(norm).toBeCloseTo(1, 4);
    expect(question).not.toEqual(answer);
    // The client asks for base64 of itself, and gives numbers.
    const { data, usage } = await client.embeddings.create(embeddings);
    for (const [i, { embedding }] of data.entries())
      for (const [j, value] of embedding.entries()) expect(value).toBeCloseTo(floats.data[i].embedding[j], 6);
    expect(usage.prompt_tokens).toBeGreaterThan(4);
    const dimensions = question.length / 2;
    const short = await client.embeddings.create({ ...embeddings, dimensions });
    expect(short.data[0].embedding).toHaveLength(dimensions);
    await expect(client.embeddings.create({ model, input: "x" })).rejects.toThrow(/400/);
  });

  it("says of each of several choices how it ended when it ends", async () => {
    // Some end at once, and some go on.
    const structured_outputs = { regex: "[a-h]{1,3}|[i-z]{400}" };
    const request = { model, n: 8, temperature: 2, seed: 5, max_tokens: 30, structured_outputs };
    const whole = await client.chat.completions.create({ ...request, messages });
    const chat = await client.chat.completions.create({ ...request, messages, stream: true });
    const text = await client.completions.create({ ...request, prompt: "ROMEO:", stream: true });
    for (const stream of [chat, text]) {
      const ends = new Map();
      const last = new Map();
      let at = 0;
      for await (const { choices } of stream)
        for (const { index, delta, text, finish_reason } of choices) {
          at++;
          if (delta?.content || text) {
            expect(ends.has(index)).toBe(false);
            last.set(index, at);
          }
          if (finish_reason) ends.set(index, { at, finish_reason });
        }
      expect(ends.size).toBe(8);
      const reasons = [...ends].sort(([a], [b]) => a - b).map(([, { finish_reason }]) => finish_reason);
      expect(new Set(reasons).size).toBe(2);
      if (stream === chat) expect(reasons).toEqual(whole.choices.map(({ finish_reason }) => finish_reason));
      const first = Math.min(...Array.from(ends.values(), ({ at }) => at));
      expect(first).toBeLessThan(Math.max(...last.values()) - 8);
    }
  });

  it("answers by a schema", async () => {
    const response_format = { type: "json_schema", json_schema: { name: "man", strict: true, schema } };
    const answer = await client.chat.completions.create({ model, messages, response_format, temperature: 1, seed: 3 });
    const value = JSON.parse(answer.choices[0].message.content);
    expect(["Brutus", "Cassius"]).toContain(value.name);
    expect(value.age >= 1 && value.age <= 99).toBe(true);
  });

  it("calls a tool, in a stream and whole", async () => {
    const tool_choice = { type: "function", function: { name: "ask_oracle" } };
    const request = { model, messages, tools, tool_choice, temperature: 1, seed: 2 };
    const whole = (await client.chat.completions.create(request)).choices[0];
    expect(whole.finish_reason).toBe("tool_calls");
    const [call] = whole.message.tool_calls;
    expect(call.function.name).toBe("ask_oracle");
    expect(Object.keys(JSON.parse(call.function.arguments)).sort()).toEqual(["age", "name"]);
    const runner = client.chat.completions.stream(request);
    const streamed = (await runner.finalChatCompletion()).choices[0].message.tool_calls[0];
    expect(streamed.function).toMatchObject({ name: call.function.name, arguments: call.function.arguments });
    const result = { role: "tool", tool_call_id: call.id, content: "The die is cast." };
    const next = await client.chat.completions.create({
      ...{ model, messages: [...messages, whole.message, result], tools, tool_choice: "none", max_tokens: 5 },
    });
    expect(next.choices[0].message.tool_calls).toBe(undefined);
  });

  it("answers as a response, in a stream and whole", async () => {
    const request = { model, input: "What news?", max_output_tokens: 8, temperature: 0 };
    const whole = await client.responses.create(request);
    let text = "";
    let last;
    for await (const event of await client.responses.create({ ...request, stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
      last = event;
    }
    expect(text).toBe(whole.output_text);
    expect(last.type).toMatch(/^response\.(completed|incomplete)$/);
    expect(last.response.usage.total_tokens).toBe(whole.usage.total_tokens);
  });

  it("aborts, which ends the computation", async () => {
    const controller = new AbortController();
    // Letters alone, so that no answer ends by itself.
    const structured_outputs = { regex: "[a-z]{2000}" };
    const fields = { model, messages, max_tokens: 400, structured_outputs, stream: true, n: 4 };
    const stream = await client.chat.completions.create(fields, { signal: controller.signal });
    let pieces = 0;
    for await (const _ of stream) if (++pieces === 10) controller.abort();
    expect(pieces).toBeLessThan(100);
    await untilIdle(url);
  });

  it("tells errors apart", async () => {
    await expect(client.chat.completions.create({ model: "none", messages })).rejects.toBeInstanceOf(
      OpenAI.NotFoundError,
    );
    const long = [{ role: "user", content: "word ".repeat(2000) }];
    await expect(client.chat.completions.create({ model, messages: long })).rejects.toMatchObject({
      status: 400,
      code: "context_length_exceeded",
    });
    const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "sk-wrong", maxRetries: 0 });
    await expect(stranger.models.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
    await expect(client.embeddings.create({ model, input: "x" })).rejects.toBeInstanceOf(OpenAI.BadRequestError);
  });
});
