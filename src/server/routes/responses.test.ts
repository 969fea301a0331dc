/** /v1/responses: the library's answers as items. */
import { describe, expect, it } from "vitest";
import { type Script, scriptedModel, toolScript } from "../../../test/support/scripted-model.ts";
import { post, postStream, servedApp, tinySource } from "../../../test/support/served.ts";

const request = { model: "tiny", input: "Hi" };
const tools = [{ type: "function", name: "weather", parameters: { type: "object" }, strict: false }];
const usage = {
  input_tokens: 7,
  input_tokens_details: { cached_tokens: 3 },
  output_tokens: 9,
  output_tokens_details: { reasoning_tokens: 2 },
  total_tokens: 16,
};
const output = [
  { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "It asks." }] },
  { type: "message", role: "assistant", content: [{ type: "output_text", text: "Let me look.", annotations: [] }] },
  { type: "function_call", call_id: "call_a", name: "weather", arguments: '{"city":"Rome"}', status: "completed" },
  { type: "function_call", call_id: "call_b", name: "now", arguments: "{}", status: "completed" },
];

function scripted(script: Script = toolScript) {
  const { model, asked } = scriptedModel(script);
  return { app: servedApp({ models: [tinySource(model)] }), asked };
}

describe("a response", () => {
  it("has items of thinking, text and calls", async () => {
    const { status, body } = await post(scripted().app, "/v1/responses", { ...request, tools });
    expect(status).toBe(200);
    expect(body).toMatchObject({ object: "response", status: "completed", store: true, output, usage, tools });
    expect(new Set(body.output.map(({ id }: { id: string }) => id)).size).toBe(4);
  });

  it("streams the same, each event with its number", async () => {
    const { events } = await postStream(scripted().app, "/v1/responses", { ...request, tools, stream: true });
    expect(events.map(({ data }) => data.sequence_number)).toEqual(events.map((_, i) => i));
    expect(events.every(({ event, data }) => event === data.type)).toBe(true);
    const texts = new Map<string, string>();
    for (const { data } of events)
      if (data.delta !== undefined) texts.set(data.item_id, (texts.get(data.item_id) ?? "") + data.delta);
    expect([...texts.values()]).toEqual(["It asks.", "Let me look.", '{"city":"Rome"}', "{}"]);
    const { type, response } = events.at(-1)!.data;
    expect([type, response.status, response.usage]).toEqual(["response.completed", "completed", usage]);
    expect(response.output.map(({ id }: { id: string }) => id)).toEqual([...texts.keys()]);
    expect(response.output).toMatchObject(output);
    expect(events.slice(0, 6).map(({ event }) => event)).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      "response.reasoning_text.delta",
      "response.reasoning_text.delta",
    ]);
  });

  it("that was cut is incomplete", async () => {
    const script: Script = { events: [{ type: "text", text: "Be" }], finishReason: "length" };
    const { body } = await post(scripted(script).app, "/v1/responses", request);
    expect([body.status, body.incomplete_details]).toEqual(["incomplete", { reason: "max_output_tokens" }]);
    const { events } = await postStream(scripted(script).app, "/v1/responses", { ...request, stream: true });
    expect(events.at(-1)!.event).toBe("response.incomplete");
  });

  it.each([
    ['{"a":', "incomplete"],
    ['{"a":1}', "completed"],
  ])("that was cut behind the arguments %s of a call says that these are %s", async (text, status) => {
    const script: Script = {
      events: [
        { type: "toolCall", index: 0, id: "c", name: "f" },
        { type: "toolArguments", index: 0, text },
      ],
      finishReason: "length",
    };
    const { body } = await post(scripted(script).app, "/v1/responses", request);
    expect(body.output).toMatchObject([{ type: "function_call", status, arguments: text }]);
    const { events } = await postStream(scripted(script).app, "/v1/responses", { ...request, stream: true });
    const done = events.filter(({ event }) => event === "response.function_call_arguments.done");
    expect(done).toHaveLength(status === "completed" ? 1 : 0);
    const item = events.find(({ event }) => event === "response.output_item.done")!.data.item;
    expect(item).toMatchObject({ status, arguments: text });
  });

  it("that fails on its way says so", async () => {
    const { app } = scripted({ events: [{ type: "text", text: "Be" }], error: new TypeError("secret detail") });
    const { events } = await postStream(app, "/v1/responses", { ...request, stream: true });
    expect(events.at(-1)!.data).toMatchObject({ type: "response.failed", response: { status: "failed" } });
    expect(JSON.stringify(events)).not.toContain("secret");
  });

  it("asks the model what the request says, with items of one answer as one message", async () => {
    const { app, asked } = scripted();
    const input = [
      { role: "user", content: [{ type: "input_text", text: "Weather?" }] },
      ...output.slice(0, 3),
      { type: "function_call_output", call_id: "call_a", output: "rain" },
      { type: "message", role: "developer", content: "Go on." },
    ];
    const fields = { instructions: "Brief.", temperature: 0.3, top_p: 0.4, max_output_tokens: 5, tools };
    const options = { tool_choice: "auto", reasoning: { effort: "none" }, stop: "\n\n", seed: -1, top_k: 7 };
    expect((await post(app, "/v1/responses", { model: "tiny", input, ...fields, ...options })).status).toBe(200);
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
      { role: "system", content: "Go on." },
    ]);
    expect(asked[0]!.options).toMatchObject({
      ...{ temperature: 0.3, topP: 0.4, maxTokens: 5, toolChoice: "auto", thinking: false },
      ...{ stop: ["\n\n", "OWN"], seed: Number.MAX_SAFE_INTEGER - 1, topK: 7 },
      tools: [{ name: "weather", parameters: { type: "object" }, strict: false }],
    });
  });

  it.each([
    [{ previous_response_id: "resp_1" }, "previous_response_id"],
    [{ conversation: "conv_1" }, "conversation"],
    [{ background: true }, "background"],
    [{ input: [] }, "input"],
    [{ input: undefined }, "input"],
  ])("refuses %j", async (fields, param) => {
    const { status, body } = await post(scripted().app, "/v1/responses", { ...request, ...fields });
    expect([status, body.error.param]).toEqual([400, param]);
  });
});

it("embeddings and ranks are refused for models that give none", async () => {
  const { app } = scripted();
  for (const [path, fields] of [
    ["/v1/embeddings", { input: "x" }],
    ["/v1/rerank", { query: "x", documents: ["y"] }],
  ] as const) {
    const { status, body } = await post(app, path, { model: "tiny", ...fields });
    expect([status, body.error.code]).toEqual([400, "unsupported_model"]);
    expect((await post(app, path, { model: "other", ...fields })).status).toBe(404);
  }
});
