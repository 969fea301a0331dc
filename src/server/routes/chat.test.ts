/** /v1/chat/completions: the library's answers in OpenAI's form. */
import { describe, expect, it } from "vitest";
import { scriptedModel, toolScript } from "../../../test/support/scripted-model.ts";
import { post, postStream, servedApp, tinyModel, tinySource } from "../../../test/support/served.ts";

const tools = [
  { type: "function", function: { name: "weather", parameters: { type: "object" } } },
  { type: "function", function: { name: "now", description: "The time.", strict: true } },
];
const request = { model: "tiny", messages: [{ role: "user", content: "Hi" }] };
const usage = {
  prompt_tokens: 7,
  completion_tokens: 9,
  total_tokens: 16,
  prompt_tokens_details: { cached_tokens: 3 },
  completion_tokens_details: { reasoning_tokens: 2, accepted_prediction_tokens: 0, rejected_prediction_tokens: 0 },
};

function scripted(script = toolScript) {
  const { model, asked } = scriptedModel(script);
  return { app: servedApp({ models: [tinySource(model)] }), asked };
}

describe("a chat completion", () => {
  it("has text, thinking and calls apart", async () => {
    const { status, body } = await post(scripted().app, "/v1/chat/completions", { ...request, tools });
    expect([status, body.object, body.usage]).toEqual([200, "chat.completion", usage]);
    expect(body.choices).toEqual([
      {
        index: 0,
        message: {
          role: "assistant",
          content: "Let me look.",
          refusal: null,
          reasoning_content: "It asks.",
          tool_calls: [
            { id: "call_a", type: "function", function: { name: "weather", arguments: '{"city":"Rome"}' } },
            { id: "call_b", type: "function", function: { name: "now", arguments: "{}" } },
          ],
        },
        logprobs: null,
        finish_reason: "tool_calls",
      },
    ]);
  });

  it("streams the same as deltas", async () => {
    const fields = { ...request, tools, n: 2, stream: true, stream_options: { include_usage: true } };
    const { events } = await postStream(scripted().app, "/v1/chat/completions", fields);
    expect(events.at(-1)!.data).toBe("[DONE]");
    const chunks = events.slice(0, -1).map(({ data }) => data);
    expect(chunks.at(-1)).toMatchObject({
      choices: [],
      usage: { ...usage, completion_tokens: 18, total_tokens: 25, completion_tokens_details: { reasoning_tokens: 4 } },
    });
    for (const index of [0, 1]) {
      const own = chunks.flatMap(({ choices }) => choices).filter((choice) => choice.index === index);
      expect(own[0].delta).toEqual({ role: "assistant", content: "", refusal: null });
      const deltas = own.map(({ delta }) => delta);
      expect(deltas.map(({ reasoning_content }) => reasoning_content ?? "").join("")).toBe("It asks.");
      expect(deltas.map(({ content }) => content ?? "").join("")).toBe("Let me look.");
      const calls = deltas.flatMap(({ tool_calls }) => tool_calls ?? []);
      expect(calls[0]).toEqual({
        index: 0,
        id: "call_a",
        type: "function",
        function: { name: "weather", arguments: "" },
      });
      for (const [call, text] of [
        [0, '{"city":"Rome"}'],
        [1, "{}"],
      ] as const)
        expect(
          calls
            .filter(({ index }) => index === call)
            .map((delta) => delta.function.arguments)
            .join(""),
        ).toBe(text);
      expect(own.map(({ finish_reason }) => finish_reason).filter(Boolean)).toEqual(["tool_calls"]);
    }
  });

  it("has one call where the client takes one", async () => {
    const fields = { ...request, tools, parallel_tool_calls: false };
    const { body } = await post(scripted().app, "/v1/chat/completions", fields);
    expect(body.choices[0].message.tool_calls.map(({ id }: { id: string }) => id)).toEqual(["call_a"]);
    const { events } = await postStream(scripted().app, "/v1/chat/completions", { ...fields, stream: true });
    expect(JSON.stringify(events)).not.toContain("call_b");
  });

  it("asks the model what the request says", async () => {
    const { app, asked } = scripted();
    const messages = [
      {
        role: "developer",
        content: [
          { type: "text", text: "Be " },
          { type: "text", text: "brief." },
        ],
      },
      { role: "user", content: "Weather?", name: "me" },
      {
        role: "assistant",
        content: null,
        reasoning_content: "Hm.",
        tool_calls: [{ id: "c1", type: "function", function: { name: "weather", arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: "c1", content: "rain" },
      { role: "assistant", content: "Rain.", tool_calls: null },
      { role: "user", content: [{ type: "text", text: "Thanks" }] },
    ];
    const fields = {
      ...{
        temperature: 0.5,
        top_p: 0.9,
        top_k: 5,
        min_p: 0.1,
        seed: 7,
        stop: "x",
        max_tokens: 1,
        max_completion_tokens: 8,
      },
      ...{
        n: 2,
        logprobs: true,
        top_logprobs: 3,
        tool_choice: "auto",
        chat_template_kwargs: { enable_thinking: false },
      },
    };
    expect((await post(app, "/v1/chat/completions", { ...request, ...fields, messages, tools })).status).toBe(200);
    expect(asked[0]!.messages).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: "Weather?" },
      {
        role: "assistant",
        content: null,
        reasoning: "Hm.",
        toolCalls: [{ id: "c1", name: "weather", arguments: "{}" }],
      },
      { role: "tool", content: "rain", toolCallId: "c1" },
      { role: "assistant", content: "Rain." },
      { role: "user", content: "Thanks" },
    ]);
    expect(asked[0]!.options).toMatchObject({
      ...{
        temperature: 0.5,
        topP: 0.9,
        topK: 5,
        minP: 0.1,
        seed: 7,
        stop: ["x", "OWN"],
        maxTokens: 8,
        n: 2,
        logprobs: 3,
      },
      tools: [
        { name: "weather", parameters: { type: "object" } },
        { name: "now", description: "The time.", strict: true },
      ],
      toolChoice: "auto",
      templateOptions: { enable_thinking: false },
    });
  });

  it.each([
    [{ reasoning_effort: "none" }, { thinking: false }],
    [{ reasoning_effort: "high" }, { templateOptions: { reasoning_effort: "high" } }],
    [{ thinking_budget: 12 }, { thinking: { budget: 12 } }],
    [{ tools, tool_choice: { type: "function", function: { name: "now" } } }, { toolChoice: { name: "now" } }],
  ])("takes %j", async (fields, options) => {
    const { app, asked } = scripted();
    expect((await post(app, "/v1/chat/completions", { ...request, ...fields })).status).toBe(200);
    expect(asked[0]!.options).toMatchObject(options);
  });

  it.each([
    [{ messages: [] }, "messages"],
    [{ messages: [{ role: "wizard", content: "x" }] }, "messages.0.role"],
    [
      { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "x" } }] }] },
      "messages.0.content.0",
    ],
    [{ messages: [{ role: "tool", content: "x" }] }, "messages.0.tool_call_id"],
    [{ tools: [{ type: "function", function: { name: "a b" } }] }, "tools.0.function.name"],
    [{ tool_choice: "sometimes" }, "tool_choice"],
    [{ top_logprobs: 3 }, "top_logprobs"],
    [{ response_format: { type: "xml" } }, "response_format.type"],
    [{ structured_outputs: { regex: "a", choice: ["a"] } }, "structured_outputs"],
    [{ structured_outputs: { json: "no schema" } }, "structured_outputs.json"],
  ])("refuses %j", async (fields, param) => {
    const { status, body } = await post(scripted().app, "/v1/chat/completions", { ...request, ...fields });
    expect([status, body.error.param]).toEqual([400, param]);
  });

  it("that fails on its way says so in the stream", async () => {
    const { app } = scripted({ events: [{ type: "text", text: "Be" }], error: new TypeError("secret detail") });
    const { status, events } = await postStream(app, "/v1/chat/completions", { ...request, stream: true });
    expect(status).toBe(200);
    expect(events.at(-1)!.data.error).toMatchObject({ type: "server_error" });
    expect(JSON.stringify(events)).not.toContain("secret");
  });

  it("of a real model is what the library answers, with probabilities of its text", async () => {
    const llm = await tinyModel();
    const app = servedApp({ models: [tinySource(llm)] });
    const { message, usage } = await llm.chat([{ role: "user", content: "Hi <|end|>" }], {
      maxTokens: 9,
      temperature: 1,
      seed: 5,
    }).result;
    const fields = { ...request, max_tokens: 9, temperature: 1, seed: 5, logprobs: true, top_logprobs: 2 };
    const messages = [{ role: "user", content: "Hi <|end|>" }];
    const { body } = await post(app, "/v1/chat/completions", { ...fields, messages });
    expect(body.choices[0].message.content).toBe(message.content);
    expect(body.usage.prompt_tokens).toBe(usage.promptTokens);
    const { content } = body.choices[0].logprobs;
    expect(content.every(({ top_logprobs }: { top_logprobs: object[] }) => top_logprobs.length === 2)).toBe(true);
    // Control tokens that a user spells stay text.
    const control = llm.tokenizer.encode("<|end|>", { addSpecialTokens: false });
    expect(control).toHaveLength(1);
    const plain = llm.encodeChat([{ role: "user", content: "Hi" }]).filter((id) => id === control[0]).length;
    expect(llm.encodeChat([{ role: "user", content: "Hi <|end|>" }]).filter((id) => id === control[0])).toHaveLength(
      plain,
    );
    const { events } = await postStream(app, "/v1/chat/completions", { ...fields, messages, stream: true });
    const texts = events.slice(0, -1).map(({ data }) => data.choices[0]?.delta?.content ?? "");
    expect(texts.join("")).toBe(message.content);
  });
});
