/** Requests as coding agents and SDKs send them: each is answered, or refused in words that its client knows. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { beforeAll, describe, expect, it } from "vitest";
import { scriptedModel, toolScript } from "../../test/support/scripted-model.ts";
import {
  JSON_HEADERS,
  parseEvents,
  post,
  postStream,
  servedApp,
  tinyModel,
  tinySource,
} from "../../test/support/served.ts";
import { toolTemplate } from "../../test/support/tiny-checkpoint.ts";
import type { LanguageModel } from "../language/language-model.ts";
import type { App } from "./routes/route.ts";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const CONTEXT = 4096;

/** By zstd 1.5.7: the body below without its size, with it and a checksum, as two frames with one to be skipped; and a window of 2 GB. */
const ZSTD = {
  streamed:
    "28b52ffd00500d0200b2440f1290cf01ece66260b3291ae7ee1397a9ebbf9437f0a3ebf524a1a51d8c7b95ce97aea57be6e0b0e33cbfd983b7821f1b9518bb1dbc3a25cf677d5ebb0d00",
  sized:
    "28b52ffd244b2d0200b244101890a72d06b455bf8d651b99a2ca6fd646ee27b3ab38ffb9048bb0158f907b180a9a186b33d85ebcc5044c4ea785ed3b995685ad2728aa87261fd0ecf6b940a25500c42b2579",
  frames:
    "28b52ffd0458a100007b226d6f64656c223a2274696e79222c226d657366555df9502a4d1804000000deadbeef28b52ffd0058b901007361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a226869227d5d2c226d61785f746f6b656e73223a347d",
  window: "28b52ffd00a8010000",
};

let llm: LanguageModel;
let app: App;
const lines: { warnings?: string[] }[] = [];
beforeAll(async () => {
  llm = await tinyModel({ contextLength: CONTEXT, chatTemplate: toolTemplate });
  app = servedApp({ models: [tinySource(llm)], log: (line) => lines.push(JSON.parse(line)) });
});

const user = (content: unknown) => ({ role: "user", content });
const hi = [user("hi")];

/** What the model of a script is asked by a request. */
async function asked(path: string, body: object, options: object = {}) {
  const { model, asked } = scriptedModel(toolScript);
  const served = servedApp({ models: [tinySource(model)], ...options });
  const answer = await post(served, path, {
    model: "tiny",
    ...(path === "/v1/messages" && { max_tokens: 9 }),
    ...body,
  });
  return { ...answer, messages: asked[0]?.messages, options: asked[0]?.options };
}

const folder = new URL("../../../shared/cases/agents/", import.meta.url);
const cases = existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith(".json")) : [];

describe.skipIf(cases.length === 0)("recorded cases (needs ../shared)", () => {
  /** Those whose request is refused, and how. */
  const refused: Record<string, [number, RegExp]> = {
    "anthropic-image.json": [400, /this model reads no images/],
    "chat-image-url.json": [400, /this model reads no images/],
    "responses-previous-id.json": [400, /'resp_1' not found/],
    "completions-suffix.json": [400, /suffix/],
    "ollama-api.json": [404, /no such endpoint/],
  };
  it.each(cases.filter((name) => !/overflow|idle|encoding/.test(name)))("%s", async (name) => {
    const { path, request } = JSON.parse(readFileSync(new URL(name, folder), "utf8"));
    const response = await app.request(path, {
      method: "POST",
      headers: JSON_HEADERS,
      body: JSON.stringify({ max_output_tokens: 8, ...request }),
    });
    const text = await response.text();
    const [status, message] = refused[name] ?? [200, /./];
    expect([response.status, text]).toEqual([status, expect.stringMatching(message)]);
    expect(text).not.toMatch(/citations|response\.failed/);
  });
});

describe("metadata of clients", () => {
  it.each<[string, object]>([
    [
      "/v1/messages",
      {
        system: [
          { type: "text", text: "x-anthropic-billing-header: cch=1;" },
          { type: "text", text: "Be brief." },
        ],
        messages: hi,
      },
    ],
    ["/v1/messages", { system: "x-anthropic-billing-header: cch=1;\nBe brief.", messages: hi }],
    [
      "/v1/chat/completions",
      {
        messages: [
          {
            role: "system",
            content: [
              { type: "text", text: "x-anthropic-a: 1" },
              { type: "text", text: "Be brief." },
            ],
          },
          ...hi,
        ],
      },
    ],
    ["/v1/responses", { instructions: "x-anthropic-a: 1\nx-anthropic-b: 2\nBe brief.", input: "hi" }],
  ])("is no part of prompts: %s", async (path, body) => {
    const { messages } = await asked(path, body);
    expect(messages).toEqual([{ role: "system", content: "Be brief." }, ...hi]);
  });

  it("leaves no system message behind where there is no more, and texts of users alone", async () => {
    const system = [{ type: "text", text: "x-anthropic-billing-header: cch=1;" }];
    expect((await asked("/v1/messages", { system, messages: [user("x-anthropic-a: 1")] })).messages).toEqual([
      user("x-anthropic-a: 1"),
    ]);
  });
});

describe("tools", () => {
  const fn = { name: "read", description: "Reads.", parameters: { type: "object" } };
  it.each<[string, object[], string[]]>([
    [
      "/v1/messages",
      [
        { name: "read", input_schema: {} },
        { type: "web_search_20250305", name: "web_search" },
        { type: "computer_20250124", name: "c", display_width_px: 1 },
      ],
      ["web_search_20250305", "computer_20250124"],
    ],
    ["/v1/chat/completions", [{ type: "function", function: fn }, { type: "web_search" }], ["web_search"]],
    [
      "/v1/responses",
      [
        { type: "function", ...fn },
        { type: "web_search" },
        { type: "image_generation" },
        { type: "local_shell" },
        { type: "mcp", server_label: "x" },
      ],
      ["web_search", "image_generation", "local_shell", "mcp"],
    ],
  ])("that %s cannot run are left out with a warning", async (path, tools, types) => {
    const input = path === "/v1/responses" ? { input: "hi" } : { messages: hi };
    const logged: string[] = [];
    const { options, headers, status } = await asked(
      path,
      { ...input, tools },
      { log: (line: string) => logged.push(line) },
    );
    expect([status, options!.tools!.map(({ name }) => name)]).toEqual([200, ["read"]]);
    for (const type of types) {
      expect(headers.get("lowbit-warning")).toContain(`tools of type ${type} are left out`);
      expect(logged.join("")).toContain(`tools of type ${type} are left out`);
    }
  });

  it("that are chosen but left out are left to the model", async () => {
    const tools = [{ type: "web_search" }];
    expect((await asked("/v1/responses", { input: "a", tools, tool_choice: "required" })).options!.toolChoice).toBe(
      "auto",
    );
    const chosen = { input: "a", tools: [...tools, { type: "function", ...fn }], tool_choice: { type: "web_search" } };
    expect((await asked("/v1/responses", chosen)).options!.toolChoice).toBe("auto");
  });

  it("of a namespace are called back with it, and their calls are read back", async () => {
    const tools = [
      {
        type: "namespace",
        name: "city",
        tools: [{ type: "function", ...fn, name: "weather" }, { type: "web_search" }],
      },
      { type: "function", ...fn, name: "weather" },
    ];
    const events = [
      { type: "toolCall", index: 0, id: "c1", name: "city__weather" },
      { type: "toolArguments", index: 0, text: "{}" },
      { type: "toolCall", index: 1, id: "c2", name: "weather" },
      { type: "toolArguments", index: 1, text: "{}" },
    ] as const;
    const { model, asked } = scriptedModel({ events, finishReason: "toolCalls" });
    const served = servedApp({ models: [tinySource(model)] });
    const { body } = await post(served, "/v1/responses", { model: "tiny", input: "hi", tools });
    expect(asked[0]!.options.tools!.map(({ name }) => name)).toEqual(["city__weather", "weather"]);
    expect(body.output).toMatchObject([
      { type: "function_call", name: "weather", namespace: "city" },
      { name: "weather" },
    ]);
    expect(body.output[1]).not.toHaveProperty("namespace");
    const input = [user("hi"), ...body.output, { type: "function_call_output", call_id: "c1", output: "rain" }];
    await post(served, "/v1/responses", { model: "tiny", input, tools });
    expect(asked[1]!.messages[1]).toMatchObject({ toolCalls: [{ name: "city__weather" }, { name: "weather" }] });
  });

  it("that are custom take a text, on both APIs, whole and streamed", async () => {
    const script = {
      events: [
        { type: "toolCall", index: 0, id: "c1", name: "patch" },
        { type: "toolArguments", index: 0, text: '{"input": "*** Be' },
        { type: "toolArguments", index: 0, text: 'gin\\n+a"}' },
      ],
      finishReason: "toolCalls",
    } as const;
    const served = servedApp({ models: [tinySource(scriptedModel(script).model)] });
    const input = "*** Begin\n+a";
    const responses = {
      model: "tiny",
      input: "hi",
      tools: [{ type: "custom", name: "patch", description: "Patches." }],
    };
    const { body } = await post(served, "/v1/responses", responses);
    expect(body.output).toMatchObject([
      { type: "custom_tool_call", call_id: "c1", name: "patch", input, status: "completed" },
    ]);
    const { events } = await postStream(served, "/v1/responses", { ...responses, stream: true });
    expect(events.find(({ event }) => event === "response.custom_tool_call_input.done")!.data.input).toBe(input);
    expect(events.at(-1)!.data.response.output).toMatchObject([{ type: "custom_tool_call", input }]);
    const chat = { model: "tiny", messages: hi, tools: [{ type: "custom", custom: { name: "patch" } }] };
    const { choices } = (await post(served, "/v1/chat/completions", chat)).body;
    expect(choices[0].message.tool_calls).toEqual([{ id: "c1", type: "custom", custom: { name: "patch", input } }]);
    const deltas = (await postStream(served, "/v1/chat/completions", { ...chat, stream: true })).events
      .flatMap(({ data }) => data.choices ?? [])
      .flatMap(({ delta }) => delta.tool_calls ?? []);
    expect(deltas).toEqual([
      { index: 0, id: "c1", type: "custom", custom: { name: "patch", input: "" } },
      { index: 0, custom: { input } },
    ]);
    const history = {
      input: [user("hi"), ...body.output, { type: "custom_tool_call_output", call_id: "c1", output: "done" }],
    };
    expect((await asked("/v1/responses", history)).messages).toMatchObject([
      {},
      { toolCalls: [{ name: "patch", arguments: JSON.stringify({ input }) }] },
      { role: "tool", content: "done" },
    ]);
  });

  it("that take texts of a regular expression are held to it", async () => {
    const format = { type: "grammar", syntax: "regex", definition: "[ab]{3}" };
    const body = {
      ...{ model: "tiny", input: "hi", temperature: 1, max_output_tokens: 400, tool_choice: "required" },
      tools: [{ type: "custom", name: "code", format }],
    };
    for (let seed = 0; seed < 3; seed++) {
      const { output } = (await post(app, "/v1/responses", { ...body, seed })).body;
      const calls = output.filter(({ type }: { type: string }) => type === "custom_tool_call");
      expect(calls.length).toBeGreaterThan(0);
      for (const { input } of calls) expect(input).toMatch(/^[ab]{3}$/);
    }
  });

  it("may be 1,024, and those that may be called fewer", async () => {
    const tools = Array.from({ length: 1024 }, (_, i) => ({ type: "function", function: { ...fn, name: `read${i}` } }));
    const allowed_tools = { mode: "required", tools: [{ type: "function", function: { name: "read7" } }] };
    const { options } = await asked("/v1/chat/completions", {
      messages: hi,
      tools,
      tool_choice: { type: "allowed_tools", allowed_tools },
    });
    expect([options!.tools!.length, options!.toolChoice]).toEqual([1024, { names: ["read7"], mode: "required" }]);
    expect((await asked("/v1/chat/completions", { messages: hi, tools: [...tools, tools[0]!] })).status).toBe(400);
  });

  it("that may be called are the ones that are", async () => {
    const tools = ["alpha", "beta", "gamma"].map((name) => ({
      type: "function",
      name,
      parameters: { type: "object" },
    }));
    const tool_choice = { type: "allowed_tools", mode: "required", tools: [{ type: "function", name: "beta" }] };
    const body = {
      model: "tiny",
      input: "hi",
      temperature: 1,
      max_output_tokens: 60,
      tools,
      tool_choice,
      reasoning: { effort: "none" },
    };
    for (let seed = 0; seed < 3; seed++) {
      const { output } = (await post(app, "/v1/responses", { ...body, seed })).body;
      expect(output).toMatchObject([{ type: "function_call", name: "beta" }]);
    }
  });
});

describe("images and documents", () => {
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data: PNG } };
  const named = "[image image/png not shown: this model reads no images]";
  const text = { type: "text", text: "See:" };
  const result = [
    user("hi"),
    { role: "assistant", content: [{ type: "tool_use", id: "t1", name: "r", input: {} }] },
    user([{ type: "tool_result", tool_use_id: "t1", content: [text, image] }]),
  ];

  it("are named in results of tools and in what was said before, and refused where they are new", async () => {
    expect((await asked("/v1/messages", { messages: result })).messages!.at(-1)).toMatchObject({
      content: `See:\n${named}`,
    });
    const before = [user([image, text]), { role: "assistant", content: "ok" }, user("and?")];
    expect((await asked("/v1/messages", { messages: before })).messages![0]).toEqual(user(`${named}\nSee:`));
    const { status, body } = await asked("/v1/messages", { messages: [user([text, image])] });
    expect([status, body.error.message]).toEqual([
      400,
      "messages.0.content.1: this model reads no images (found image/png)",
    ]);
    const items = [
      user("hi"),
      { type: "function_call", call_id: "c", name: "r", arguments: "{}" },
      {
        type: "function_call_output",
        call_id: "c",
        output: [{ type: "input_image", image_url: `data:image/png;base64,${PNG}` }],
      },
    ];
    expect((await asked("/v1/responses", { input: items })).messages!.at(-1)).toMatchObject({ content: named });
    expect(
      (await asked("/v1/responses", { input: [user([{ type: "input_image", image_url: "https://x" }])] })).status,
    ).toBe(400);
    const tool = {
      role: "tool",
      tool_call_id: "c",
      content: [{ type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } }],
    };
    expect((await asked("/v1/chat/completions", { messages: [...hi, tool] })).messages!.at(-1)).toMatchObject({
      content: named,
    });
  });

  it("are named or refused everywhere by an option", async () => {
    expect((await asked("/v1/messages", { messages: [user([text, image])] }, { unseen: "name" })).messages).toEqual([
      user(`See:\n${named}`),
    ]);
    expect((await asked("/v1/messages", { messages: result }, { unseen: "refuse" })).status).toBe(400);
  });

  it("that have a text are that", async () => {
    const document = (source: object) => ({ type: "document", title: "Notes", context: "Old.", source });
    const found = async (block: object) =>
      (await asked("/v1/messages", { messages: [user([block, { type: "text", text: "x" }])] })).messages![0]!.content;
    expect(await found(document({ type: "text", media_type: "text/plain", data: "hello" }))).toBe(
      "Notes\n\nOld.\n\nhello\nx",
    );
    expect(await found(document({ type: "base64", media_type: "text/csv", data: btoa("a,b") }))).toContain("a,b");
    expect(await found(document({ type: "content", content: [{ type: "text", text: "c1" }, image] }))).toContain(
      `c1\n${named}`,
    );
    expect(
      await found({ type: "search_result", source: "s", title: "t", content: [{ type: "text", text: "u" }] }),
    ).toBe("t\ns\nu\nx");
    const pdf = document({ type: "base64", media_type: "application/pdf", data: "JVBERi0=" });
    const { status, body } = await asked("/v1/messages", { messages: [user([pdf])] });
    expect([status, body.error.message]).toEqual([400, expect.stringContaining("reads no documents but their text")]);
  });
});

describe("histories", () => {
  it("of messages have all kinds of blocks", async () => {
    const content = [
      { type: "text", text: "I look." },
      { type: "server_tool_use", id: "s1", name: "web_search", input: { query: "q" } },
      {
        type: "web_search_tool_result",
        tool_use_id: "s1",
        content: [{ type: "web_search_result", title: "T", url: "u", encrypted_content: "E" }],
      },
      { type: "text", text: "Found.", citations: null },
      { type: "redacted_thinking", data: "x" },
      { type: "mcp_tool_use", id: "m1", name: "m", server_name: "s", input: {} },
      { type: "mcp_tool_result", tool_use_id: "m1", is_error: false, content: [{ type: "text", text: "R" }] },
      { type: "something_new", a: 1 },
    ];
    const { messages, headers } = await asked("/v1/messages", {
      messages: [...hi, { role: "assistant", content }, user("and?")],
    });
    expect(messages).toEqual([
      ...hi,
      {
        role: "assistant",
        content: "I look.",
        toolCalls: [{ id: "s1", name: "web_search", arguments: '{"query":"q"}' }],
      },
      { role: "tool", toolCallId: "s1", content: '[{"type":"web_search_result","title":"T","url":"u"}]' },
      { role: "assistant", content: "Found.", toolCalls: [{ id: "m1", name: "m", arguments: "{}" }] },
      { role: "tool", toolCallId: "m1", content: "R" },
      user("and?"),
    ]);
    expect(headers.get("lowbit-warning")).toContain("something_new");
  });

  it("of responses have all kinds of items", async () => {
    const input = [
      { type: "message", role: "developer", content: [{ type: "input_text", text: "D" }] },
      { type: "message", role: "user", content: "hi", id: "msg_1" },
      { type: "reasoning", id: "rs_1", summary: [{ type: "summary_text", text: "S" }], encrypted_content: null },
      {
        type: "local_shell_call",
        id: "l",
        call_id: "c1",
        status: "completed",
        action: { type: "exec", command: ["ls"] },
      },
      { type: "local_shell_call_output", id: "c1", call_id: "c1", output: "a b" },
      { type: "web_search_call", id: "w", status: "completed", action: { type: "search", query: "q" } },
      { type: "mcp_call", id: "m", name: "f", server_label: "s", arguments: "{}", output: "O" },
      { type: "message", role: "assistant", content: [{ type: "refusal", refusal: "No." }] },
      { type: "compaction", encrypted_content: "x" },
      user([{ type: "input_text", text: "and?" }]),
    ];
    const { messages, headers } = await asked("/v1/responses", { input });
    expect(messages).toEqual([
      { role: "system", content: "D" },
      ...hi,
      {
        role: "assistant",
        content: null,
        reasoning: "S",
        toolCalls: [{ id: "c1", name: "local_shell", arguments: '{"type":"exec","command":["ls"]}' }],
      },
      { role: "tool", toolCallId: "c1", content: "a b" },
      { role: "assistant", content: null, toolCalls: [{ id: "m", name: "f", arguments: "{}" }] },
      { role: "tool", toolCallId: "m", content: "O" },
      { role: "assistant", content: "No." },
      user("and?"),
    ]);
    expect(headers.get("lowbit-warning")).toContain("web_search_call");
  });

  it("of chats have refusals, functions and predictions", async () => {
    const messages = [
      ...hi,
      { role: "assistant", content: null, refusal: "No." },
      { role: "assistant", content: "", function_call: { name: "f", arguments: "{}" } },
      { role: "function", name: "f", content: "R" },
    ];
    const prediction = { type: "content", content: "x" };
    const found = await asked("/v1/chat/completions", { messages, prediction, reasoning_effort: "max" });
    expect([found.status, found.messages!.slice(1)]).toEqual([
      200,
      [
        { role: "assistant", content: "No." },
        { role: "assistant", content: "", toolCalls: [{ id: "f", name: "f", arguments: "{}" }] },
        { role: "tool", content: "R", toolCallId: "f", name: "f" },
      ],
    ]);
  });
});

describe("an answer that is begun", () => {
  it.each(["/v1/messages", "/v1/chat/completions"])("by %s is gone on with", async (path) => {
    const plain = await tinyModel();
    const messages = [...hi, { role: "assistant", content: "The answer" }];
    const body = { model: "tiny", max_tokens: 12, temperature: 0, messages };
    const { body: answer } = await post(servedApp({ models: [tinySource(plain)] }), path, body);
    const text = answer.content?.[0]?.text ?? answer.choices?.[0].message.content;
    const prompt = plain.encodeChat([{ role: "user", content: "hi" }]);
    const ids = [...prompt, ...plain.tokenizer.encode("The answer", { addSpecialTokens: false })];
    let expected = "";
    for await (const piece of plain.generate(ids, { maxTokens: 12, temperature: 0 })) expected += piece;
    expect([text, answer.usage.input_tokens ?? answer.usage.prompt_tokens]).toEqual([expected, ids.length]);
  });

  it("is held to a constraint with what it began with", async () => {
    const structured_outputs = { choice: ["yes indeed", "no never"] };
    const body = { model: "tiny", max_tokens: 20, temperature: 1, structured_outputs };
    const messages = [...hi, { role: "assistant", content: "no" }];
    const { choices } = (await post(app, "/v1/chat/completions", { ...body, messages })).body;
    expect(choices[0].message.content).toBe(" never");
    const wrong = [...hi, { role: "assistant", content: "maybe" }];
    expect((await post(app, "/v1/chat/completions", { ...body, messages: wrong })).status).toBe(400);
  });
});

describe("a full context", () => {
  const long = "hello ".repeat(CONTEXT);
  it("is told in the words of each API, with how long the prompt is", async () => {
    const count = (await post(app, "/v1/messages/count_tokens", { model: "tiny", messages: [user(long)] })).body
      .input_tokens;
    expect(count).toBeGreaterThan(CONTEXT);
    for (const stream of [false, true]) {
      const { status, body } = await post(app, "/v1/messages", {
        model: "tiny",
        max_tokens: 5,
        messages: [user(long)],
        stream,
      });
      expect([status, body.error]).toEqual([
        400,
        { type: "invalid_request_error", message: `prompt is too long: ${count} tokens > ${CONTEXT} maximum` },
      ]);
      for (const [path, input] of [
        ["/v1/chat/completions", { messages: [user(long)] }],
        ["/v1/responses", { input: long }],
      ] as const) {
        const { status, body } = await post(app, path, { model: "tiny", ...input, stream });
        expect([status, body.error.code]).toEqual([400, "context_length_exceeded"]);
        expect(body.error.message).toMatch(new RegExp(`context.*\\b${CONTEXT}\\b`));
      }
    }
  });
});

describe("responses that are kept", () => {
  const first = { model: "tiny", input: "hi", instructions: "Brief." };
  function kept(options: object = {}) {
    const { model, asked } = scriptedModel({ events: [{ type: "text", text: "Yes." }] });
    return { served: servedApp({ models: [tinySource(model)], ...options }), asked };
  }

  it("are gone on from, without their instructions", async () => {
    const { served, asked } = kept();
    const { id } = (await post(served, "/v1/responses", first)).body;
    const { body } = await post(served, "/v1/responses", { model: "tiny", input: "more", previous_response_id: id });
    expect(body.previous_response_id).toBe(id);
    await postStream(served, "/v1/responses", {
      model: "tiny",
      input: "end",
      previous_response_id: body.id,
      stream: true,
    });
    expect(asked[2]!.messages).toEqual([
      ...hi,
      { role: "assistant", content: "Yes." },
      user("more"),
      { role: "assistant", content: "Yes." },
      user("end"),
    ]);
  });

  it("are read, listed, referred to and forgotten", async () => {
    const { served, asked } = kept();
    const { body } = await post(served, "/v1/responses", first);
    const path = `/v1/responses/${body.id}`;
    expect(await (await served.request(path)).json()).toEqual(body);
    const { data } = await (await served.request(`${path}/input_items`)).json();
    expect(data).toMatchObject([{ type: "message", role: "user", content: "hi", id: expect.any(String) }]);
    await post(served, "/v1/responses", {
      model: "tiny",
      input: [{ type: "item_reference", id: body.output[0].id }, user("x")],
    });
    expect(asked[1]!.messages).toEqual([{ role: "assistant", content: "Yes." }, user("x")]);
    expect(await (await served.request(path, { method: "DELETE" })).json()).toMatchObject({ deleted: true });
    expect((await served.request(path)).status).toBe(404);
    const { status, body: refused } = await post(served, "/v1/responses", { ...first, previous_response_id: body.id });
    expect([status, refused.error.code]).toEqual([400, "previous_response_not_found"]);
  });

  it("are not those that must not be stored, nor those of other keys", async () => {
    const { served } = kept({ keys: ["sk-a", "sk-b"] });
    const as = (key: string) => ({ "x-api-key": key });
    const { body } = await post(served, "/v1/responses", { ...first, store: false }, as("sk-a"));
    expect(body.store).toBe(false);
    expect((await served.request(`/v1/responses/${body.id}`, { headers: as("sk-a") })).status).toBe(404);
    const { id, output } = (await post(served, "/v1/responses", first, as("sk-a"))).body;
    expect((await served.request(`/v1/responses/${id}`, { headers: as("sk-b") })).status).toBe(404);
    for (const fields of [{ previous_response_id: id }, { input: [{ type: "item_reference", id: output[0].id }] }])
      expect((await post(served, "/v1/responses", { ...first, ...fields }, as("sk-b"))).status).toBeGreaterThanOrEqual(
        400,
      );
    expect((await post(served, "/v1/responses", { ...first, previous_response_id: id }, as("sk-a"))).status).toBe(200);
  });

  it("are bounded, and those in use are not forgotten", async () => {
    const { served } = kept({ limits: { responses: 3 } });
    const root = (await post(served, "/v1/responses", first)).body.id;
    const ids: string[] = [];
    for (let i = 0; i < 4; i++)
      ids.push((await post(served, "/v1/responses", { ...first, previous_response_id: root })).body.id);
    expect((await served.request(`/v1/responses/${root}`)).status).toBe(200);
    expect((await served.request(`/v1/responses/${ids[0]}`)).status).toBe(404);
  });

  it("count their tokens without answering", async () => {
    const { served, asked } = kept();
    const { body } = await post(served, "/v1/responses/input_tokens", first);
    expect([body, asked.length]).toEqual([{ object: "response.input_tokens", input_tokens: 7 }, 0]);
  });
});

it("pings on /v1/responses are events, numbered with the others", async () => {
  const { model } = scriptedModel({ events: [{ type: "text", text: "Yes." }] });
  const { chat } = model;
  const late = (...given: Parameters<typeof chat>) => {
    const stream = chat.call(model, ...given);
    const events = (async function* () {
      await new Promise((resolve) => setTimeout(resolve, 3500));
      yield* stream;
    })();
    return Object.assign(events, { promptTokens: 7, result: stream.result });
  };
  const served = servedApp({ models: [tinySource(Object.assign(model, { chat: late }))], limits: { pingSeconds: 1 } });
  const body = JSON.stringify({ model: "tiny", input: "hi", stream: true });
  const text = await (await served.request("/v1/responses", { method: "POST", headers: JSON_HEADERS, body })).text();
  expect(text).not.toContain(": ping");
  const events = parseEvents(text);
  expect(events.map(({ data }) => data.sequence_number)).toEqual(events.map((_, i) => i));
  expect(events.filter(({ event }) => event === "response.created")).toHaveLength(1);
  expect(events.filter(({ event }) => event === "response.in_progress").length).toBeGreaterThanOrEqual(2);
  expect(events.at(-1)!.event).toBe("response.completed");
});

describe("bodies that are compressed", () => {
  const body = Buffer.from(JSON.stringify({ model: "tiny", messages: hi, max_tokens: 4 }));
  const zstd = (hex: string) => Buffer.from(hex, "hex");
  const send = (bytes: Uint8Array, encoding: string, served = app) =>
    served.request("/v1/chat/completions", {
      method: "POST",
      headers: { ...JSON_HEADERS, "content-encoding": encoding },
      body: bytes as BodyInit,
    });

  it.each<[string, Buffer]>([
    ["gzip", gzipSync(body)],
    ["x-gzip", gzipSync(body)],
    ["br", brotliCompressSync(body)],
    ["deflate", deflateSync(body)],
    ["identity", body],
    ["br, gzip", gzipSync(brotliCompressSync(body))],
    ["zstd", zstd(ZSTD.streamed)],
    ["zstd", zstd(ZSTD.sized)],
    ["zstd", zstd(ZSTD.frames)],
  ])("by %s are read", async (encoding, bytes) => {
    const response = await send(bytes, encoding);
    expect([response.status, (await response.json()).object]).toEqual([200, "chat.completion"]);
  });

  it("are refused where they are no such thing, too large, or of another kind", async () => {
    const small = servedApp({ models: [tinySource(llm)], limits: { bodyBytes: 1000 } });
    const bomb = Buffer.alloc(1_000_000, 0x20);
    for (const [bytes, encoding, status] of [
      [body, "gzip", 400],
      [body, "br", 400],
      [body, "zstd", 400],
      [zstd(ZSTD.streamed).subarray(0, 20), "zstd", 400],
      [zstd(ZSTD.streamed).subarray(0, 6), "zstd", 400],
      [zstd(ZSTD.window), "zstd", 413],
      [gzipSync(bomb), "gzip", 413],
      [brotliCompressSync(bomb), "br", 413],
      [body, "compress", 415],
    ] as const) {
      const response = await send(bytes, encoding, status === 413 ? small : app);
      expect([encoding, response.status]).toEqual([encoding, status]);
    }
  });
});
