/** Contents and histories of all kinds, as the texts that a model reads. */
import { describe, expect, it } from "vitest";
import { asked, hi, user } from "../../test/support/asked.ts";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

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

describe("files and parts of other kinds", () => {
  const csv = `data:text/csv;base64,${btoa("a,b")}`;

  it("that are texts are read", async () => {
    const chat = [
      user([
        { type: "file", file: { filename: "t.csv", file_data: csv } },
        { type: "text", text: "?" },
      ]),
    ];
    expect((await asked("/v1/chat/completions", { messages: chat })).messages).toEqual([user("t.csv\n\na,b\n?")]);
    const input = [user([{ type: "input_file", file_data: csv }])];
    expect((await asked("/v1/responses", { input })).messages).toEqual([user("a,b\n")]);
    const source = { type: "base64", media_type: "application/json", data: btoa("{}") };
    const messages = [user([{ type: "document", source }])];
    expect((await asked("/v1/messages", { messages })).messages).toEqual([user("{}")]);
  });

  it("are named where they were said before, and refused where they are new", async () => {
    const video = { type: "video_url", video_url: { url: "https://example.org/secret" } };
    const said = [user([video]), { role: "assistant", content: "ok" }, user([{ type: "input_text", text: "and?" }])];
    for (const path of ["/v1/chat/completions", "/v1/messages"]) {
      const { messages } = await asked(path, { messages: said });
      const named = "[content video_url not shown: this model reads no content of this kind]";
      expect(messages).toEqual([user(named), { role: "assistant", content: "ok" }, user("and?")]);
      const { status, body } = await asked(path, { messages: [user([video])] });
      const message = "messages.0.content.0: this model reads no content of this kind (found video_url)";
      expect([status, body.error.message]).toEqual([400, message]);
    }
    const item = { type: "function_call_output", call_id: "c", output: [video, { type: "encrypted_content" }] };
    expect((await asked("/v1/responses", { input: [user("hi"), item] })).messages!.at(-1)).toMatchObject({
      content: "[content video_url not shown: this model reads no content of this kind]",
    });
  });

  it("may be none, or null", async () => {
    const messages = [user([]), { role: "assistant", content: [] }, user("hi")];
    for (const path of ["/v1/chat/completions", "/v1/messages"])
      expect((await asked(path, { messages })).messages!.at(-1)).toEqual(user("hi"));
    expect(
      (await asked("/v1/chat/completions", { messages: [...hi, { role: "tool", tool_call_id: "c", content: [] }] }))
        .status,
    ).toBe(200);
    const nulls = ["user", "system", "assistant"].map((role) => ({ role, content: null }));
    expect((await asked("/v1/chat/completions", { messages: [...nulls, ...hi] })).messages!.at(-1)).toEqual(user("hi"));
    const calls = [
      { id: "c", function: { name: "f", arguments: { a: 1 } } },
      { id: "d", function: { name: "g" } },
    ];
    const said = [...hi, { role: "assistant", tool_calls: calls }, { role: "tool", tool_call_id: "c", content: null }];
    expect((await asked("/v1/chat/completions", { messages: said })).messages![1]).toMatchObject({
      toolCalls: [{ arguments: '{"a":1}' }, { name: "g", arguments: "" }],
    });
    const items = [user("hi"), { type: "function_call_output", call_id: "c", output: null }];
    expect((await asked("/v1/responses", { input: items })).messages!.at(-1)).toMatchObject({ content: "" });
  });

  it("are what a model thought, or what was said before it forgot", async () => {
    const content = [
      { type: "thinking", thinking: [{ type: "text", text: "T" }] },
      { type: "text", text: "A" },
    ];
    const chat = await asked("/v1/chat/completions", { messages: [...hi, { role: "assistant", content }, user("?")] });
    expect(chat.messages![1]).toEqual({ role: "assistant", content: "A", reasoning: "T" });
    const summary = { role: "assistant", content: [{ type: "compaction", content: "Summary." }] };
    const said = await asked("/v1/messages", { messages: [...hi, summary, user("?")] });
    expect(said.messages![1]).toEqual({ role: "assistant", content: "Summary." });
  });

  it("say what is wrong in their own kind", async () => {
    const { body } = await asked("/v1/messages", { messages: [user([{ type: "image" }])] });
    expect(body.error.message).toContain("messages.0.content.0.source");
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
