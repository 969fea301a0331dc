/** Anthropic's /v1/messages: the library's answers in that form. */
import { describe, expect, it } from "vitest";
import { type Script, scriptedModel, toolScript } from "../../../test/support/scripted-model.ts";
import { post, postStream, servedApp, tinySource } from "../../../test/support/served.ts";

const tools = [{ name: "weather", description: "Of a city.", input_schema: { type: "object" } }];
const request = { model: "tiny", max_tokens: 50, messages: [{ role: "user", content: "Hi" }] };
const usage = { input_tokens: 4, cache_creation_input_tokens: 0, cache_read_input_tokens: 3, output_tokens: 9 };
const content = [
  { type: "thinking", thinking: "It asks.", signature: "" },
  { type: "text", text: "Let me look." },
  { type: "tool_use", id: "call_a", name: "weather", input: { city: "Rome" } },
  { type: "tool_use", id: "call_b", name: "now", input: {} },
];

function scripted(script: Script = toolScript) {
  const { model, asked } = scriptedModel(script);
  return { app: servedApp({ models: [tinySource(model)] }), asked };
}

describe("a message", () => {
  it("has blocks of thinking, text and calls", async () => {
    const { status, body } = await post(scripted().app, "/v1/messages", { ...request, tools });
    expect(status).toBe(200);
    expect(body).toMatchObject({ type: "message", role: "assistant", model: "tiny", stop_sequence: null, usage });
    expect([body.content, body.stop_reason]).toEqual([content, "tool_use"]);
  });

  it("streams the same, block by block", async () => {
    const { events } = await postStream(scripted().app, "/v1/messages", { ...request, tools, stream: true });
    expect(events.every(({ event, data }) => event === data.type)).toBe(true);
    const [start] = events;
    expect(start!.data.message).toMatchObject({
      type: "message",
      content: [],
      stop_reason: null,
      usage: { input_tokens: 7 },
    });
    const blocks: { start: { type: string }; text: string; isOver: boolean }[] = [];
    for (const { data } of events) {
      if (data.type === "content_block_start") {
        expect(data.index).toBe(blocks.length);
        blocks.push({ start: data.content_block, text: "", isOver: false });
      } else if (data.type === "content_block_delta") {
        const { text, thinking, partial_json } = data.delta;
        blocks[data.index]!.text += text ?? thinking ?? partial_json;
        expect(blocks[data.index]!.isOver).toBe(false);
      } else if (data.type === "content_block_stop") blocks[data.index]!.isOver = true;
    }
    expect(blocks.map(({ start, text }) => [start.type, text])).toEqual([
      ["thinking", "It asks."],
      ["text", "Let me look."],
      ["tool_use", '{"city":"Rome"}'],
      ["tool_use", "{}"],
    ]);
    expect(blocks.every(({ isOver }) => isOver)).toBe(true);
    expect(events.slice(-2).map(({ data }) => data)).toEqual([
      { type: "message_delta", delta: { stop_reason: "tool_use", stop_sequence: null }, usage },
      { type: "message_stop" },
    ]);
  });

  it.each([
    [{ finishReason: "length" }, "max_tokens", null],
    [{ stopString: "END" }, "stop_sequence", "END"],
    [{ stopString: "OWN" }, "end_turn", null],
    [{}, "end_turn", null],
  ] as const)("that ends with %j says so", async (end, stop_reason, stop_sequence) => {
    const { app } = scripted({ events: [{ type: "text", text: "Hi" }], ...end });
    const { body } = await post(app, "/v1/messages", { ...request, stop_sequences: ["END"] });
    expect(body).toMatchObject({ stop_reason, stop_sequence });
  });

  it("asks the model what the request says", async () => {
    const { app, asked } = scripted();
    const messages = [
      { role: "user", content: [{ type: "text", text: "Weather?", cache_control: { type: "ephemeral" } }] },
      { role: "assistant", content: content.slice(0, 3) },
      {
        role: "user",
        content: [
          { type: "tool_result", tool_use_id: "call_a", content: [{ type: "text", text: "rain" }] },
          { type: "tool_result", tool_use_id: "call_b", content: "none", is_error: true },
          { type: "text", text: "And?" },
        ],
      },
    ];
    const fields = {
      ...{
        system: [{ type: "text", text: "Brief." }],
        temperature: 0.2,
        top_p: 0.5,
        top_k: 4,
        stop_sequences: ["END"],
      },
      ...{
        tool_choice: { type: "auto", disable_parallel_tool_use: true },
        thinking: { type: "enabled", budget_tokens: 9 },
      },
    };
    const { status, body } = await post(app, "/v1/messages", { ...request, ...fields, messages, tools });
    expect([status, body.content.length]).toEqual([200, 3]);
    expect(asked[0]!.messages).toEqual([
      { role: "system", content: "Brief." },
      { role: "user", content: "Weather?" },
      {
        role: "assistant",
        content: "Let me look.",
        reasoning: "It asks.",
        toolCalls: [{ id: "call_a", name: "weather", arguments: '{"city":"Rome"}' }],
      },
      { role: "tool", content: "rain", toolCallId: "call_a" },
      { role: "tool", content: "Error: none", toolCallId: "call_b" },
      { role: "user", content: "And?" },
    ]);
    expect(asked[0]!.options).toMatchObject({
      ...{
        temperature: 0.2,
        topP: 0.5,
        topK: 4,
        stop: ["END", "OWN"],
        maxTokens: 50,
        toolChoice: "auto",
        thinking: { budget: 9 },
      },
      tools: [{ name: "weather", description: "Of a city.", parameters: { type: "object" } }],
    });
  });

  it.each([
    [{}, false],
    [{ thinking: { type: "disabled" } }, false],
    [{ thinking: { type: "adaptive" } }, undefined],
  ])("thinks only where that is asked for: %j", async (fields, thinking) => {
    const { app, asked } = scripted();
    await post(app, "/v1/messages", { ...request, ...fields });
    expect(asked[0]!.options.thinking).toBe(thinking);
  });

  it("has what the system says behind the first question in front of what is asked, and later systems where they are", async () => {
    const { app, asked } = scripted();
    const text = (value: string) => ({ type: "text", text: value });
    const messages = [
      { role: "user", content: [text("Today."), text("Why?")] },
      { role: "system", content: "Skills." },
      { role: "assistant", content: "So." },
      { role: "user", content: "And?" },
      { role: "system", content: "Left: 9" },
    ];
    await post(app, "/v1/messages", { ...request, messages });
    const said = asked[0]!.messages.map(({ role, content }) => [role, content]);
    const start = [
      ["user", "Today."],
      ["system", "Skills."],
      ["user", "Why?"],
      ["assistant", "So."],
    ];
    expect(said).toEqual([...start, ["user", "And?"], ["system", "Left: 9"]]);
  });

  it("has the state of the repository in front of what is asked", async () => {
    const { app, asked } = scripted();
    const status =
      "gitStatus: This is the git status at the start of the conversation. It is a snapshot.\n\nStatus:\nM a.py";
    const text = (value: string) => ({ type: "text", text: value });
    const system = [text("You help."), text(`Be brief.\n\n${status}`)];
    const said = async (messages: object[]) => {
      await post(app, "/v1/messages", { ...request, system, messages });
      return asked.at(-1)!.messages.map(({ role, content }) => [role, content]);
    };
    const noted = `<system-reminder>\n${status}\n</system-reminder>\n\nWhy?`;
    expect(await said([{ role: "user", content: "Why?" }])).toEqual([
      ["system", "You help.Be brief."],
      ["user", noted],
    ]);
    const talk = [
      { role: "user", content: [text("Today."), text("Why?")] },
      { role: "system", content: "Skills." },
      { role: "assistant", content: "So." },
      { role: "user", content: "And?" },
    ];
    expect(await said(talk)).toEqual([
      ["system", "You help.Be brief."],
      ["user", "Today."],
      ["system", "Skills."],
      ["user", noted],
      ["assistant", "So."],
      ["user", "And?"],
    ]);
    const result = { role: "user", content: [{ type: "tool_result", tool_use_id: "x", content: "R" }] };
    expect((await said([result]))[0]).toEqual(["system", `You help.Be brief.\n\n${status}`]);
  });

  it("shows arguments that are no object as they are", async () => {
    const { app } = scripted({
      events: [
        { type: "toolCall", index: 0, id: "c", name: "f" },
        { type: "toolArguments", index: 0, text: '{"a":' },
      ],
      finishReason: "length",
    });
    const { body } = await post(app, "/v1/messages", request);
    expect(body.content).toEqual([{ type: "tool_use", id: "c", name: "f", input: { invalid_json: '{"a":' } }]);
  });

  it("shows a call that was cut before its arguments as none without arguments", async () => {
    const { app } = scripted({
      events: [{ type: "toolCall", index: 0, id: "c", name: "f" }],
      finishReason: "length",
    });
    const { body } = await post(app, "/v1/messages", request);
    expect(body.content).toEqual([{ type: "tool_use", id: "c", name: "f", input: { invalid_json: "" } }]);
  });

  it("keeps all digits of arguments, and what they are made of, both ways", async () => {
    const input = '{"2": 12345678901234567890, "1": 1.0}';
    const { app, asked } = scripted({
      events: [
        { type: "toolCall", index: 0, id: "c", name: "f" },
        { type: "toolArguments", index: 0, text: input },
      ],
      finishReason: "toolCalls",
    });
    const messages = `[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [
      {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "c", "name": "f", "input": ${input}},
      {"type": "text", "text": "Now I list."}]}, {"role": "user", "content": "Go on."}]`;
    const body = `{"model": "tiny", "max_tokens": 5, "messages": ${messages}}`;
    const headers = { "content-type": "application/json" };
    const response = await app.request("/v1/messages", { method: "POST", headers, body });
    expect(await response.text()).toContain(`"input":${input}`);
    expect(asked[0]!.messages[1]).toEqual({
      role: "assistant",
      content: "I look.\n\nNow I list.",
      toolCalls: [{ id: "c", name: "f", arguments: input }],
    });
  });

  it.each([
    [{ max_tokens: undefined }, 400, "invalid_request_error"],
    [{ messages: [{ role: "user", content: [{ type: "image", source: {} }] }] }, 400, "invalid_request_error"],
    [{ model: "other" }, 404, "not_found_error"],
  ])("refuses %j in the form of the API", async (fields, status, type) => {
    for (const stream of [false, true]) {
      const answer = await post(scripted().app, "/v1/messages", { ...request, ...fields, stream });
      expect([answer.status, answer.body]).toEqual([
        status,
        { type: "error", error: { type, message: expect.any(String) }, request_id: answer.headers.get("request-id") },
      ]);
    }
  });

  it("that fails on its way says so in an event", async () => {
    const { app } = scripted({ events: [{ type: "text", text: "Be" }], error: new TypeError("secret detail") });
    const { events } = await postStream(app, "/v1/messages", { ...request, stream: true });
    expect(events.at(-1)).toMatchObject({ event: "error", data: { type: "error", error: { type: "api_error" } } });
  });

  it("is counted without being answered", async () => {
    const { app, asked } = scripted();
    const { body } = await post(app, "/v1/messages/count_tokens", { ...request, max_tokens: undefined });
    expect([body, asked.length]).toEqual([{ input_tokens: 7 }, 0]);
  });
});
