/** Anthropic's client for JavaScript. */
import Anthropic from "@anthropic-ai/sdk";
import { describe, expect, inject, it } from "vitest";
import { untilIdle } from "./process.js";

const url = inject("url");
const client = new Anthropic({ baseURL: url, apiKey: inject("key"), maxRetries: 0 });
const model = "demo";
const messages = [{ role: "user", content: "What news from Rome?" }];
const request = { model, messages, max_tokens: 12, temperature: 0 };
const tool = {
  name: "ask_oracle",
  description: "Asks.",
  input_schema: {
    type: "object",
    properties: { god: { enum: ["Mars", "Juno"] } },
    required: ["god"],
    additionalProperties: false,
  },
};

describe("@anthropic-ai/sdk", () => {
  it("streams the message that it gets whole", async () => {
    const whole = await client.messages.create(request);
    const stream = client.messages.stream(request);
    let text = "";
    stream.on("text", (piece) => {
      text += piece;
    });
    const final = await stream.finalMessage();
    expect(text).toBe(whole.content[0].text);
    expect(final.content).toEqual(whole.content);
    expect(final.stop_reason).toBe(whole.stop_reason);
    expect(final.usage.output_tokens).toBe(whole.usage.output_tokens);
    const { input_tokens, cache_read_input_tokens } = whole.usage;
    const counted = await client.messages.countTokens({ model, messages });
    expect(counted.input_tokens).toBe(input_tokens + cache_read_input_tokens);
  });

  it("calls a tool, in a stream and whole", async () => {
    const fields = { ...request, max_tokens: 300, temperature: 1, tools: [tool], tool_choice: { type: "any" } };
    for (const answer of [await client.messages.create(fields), await client.messages.stream(fields).finalMessage()]) {
      expect(answer.stop_reason).toBe("tool_use");
      const call = answer.content.find(({ type }) => type === "tool_use");
      expect(call.name).toBe("ask_oracle");
      expect(["Mars", "Juno"]).toContain(call.input.god);
      const results = [{ type: "tool_result", tool_use_id: call.id, content: "Beware." }];
      const next = { ...request, tools: [tool], tool_choice: { type: "none" } };
      const conversation = [
        ...messages,
        { role: "assistant", content: answer.content },
        { role: "user", content: results },
      ];
      expect((await client.messages.create({ ...next, messages: conversation })).type).toBe("message");
    }
  });

  it("answers by a schema", async () => {
    const format = { type: "json_schema", schema: tool.input_schema };
    const { content } = await client.messages.create({ ...request, max_tokens: 300, output_config: { format } });
    expect(["Mars", "Juno"]).toContain(JSON.parse(content[0].text).god);
  });

  it("aborts, which ends the computation", async () => {
    const stream = client.messages.stream({ ...request, max_tokens: 400, temperature: 1 });
    let pieces = 0;
    stream.on("text", () => {
      if (++pieces === 3) stream.abort();
    });
    await expect(stream.finalMessage()).rejects.toBeInstanceOf(Anthropic.APIUserAbortError);
    await untilIdle(url);
  });

  it("tells errors apart", async () => {
    await expect(client.messages.create({ ...request, model: "none" })).rejects.toBeInstanceOf(Anthropic.NotFoundError);
    await expect(client.messages.create({ ...request, max_tokens: 0 })).rejects.toBeInstanceOf(
      Anthropic.BadRequestError,
    );
    const stranger = new Anthropic({ baseURL: url, apiKey: "sk-wrong", maxRetries: 0 });
    await expect(stranger.messages.create(request)).rejects.toBeInstanceOf(Anthropic.AuthenticationError);
  });

  it("lists models", async () => {
    const names = [];
    for await (const { id, display_name } of client.models.list()) names.push([id, display_name]);
    expect(names).toEqual([
      [model, model],
      ["bge", "bge"],
    ]);
  });
});
