/** Requests in the orders and of the kinds that agents send and templates refuse or leave out: words w0, w1, … are all to reach the model. */
const CHAT = "/v1/chat/completions";
const MESSAGES = "/v1/messages";
const RESPONSES = "/v1/responses";

const message = (role: string, content: unknown, more: object = {}) => ({ role, content, ...more });
const user = (content: unknown) => message("user", content);
const system = (content: unknown) => message("system", content);
const said = (content: unknown, more: object = {}) => message("assistant", content, more);
const call = (id: string, args = "{}") => ({ id, type: "function", function: { name: "read", arguments: args } });
const result = (id: string, content: unknown) => message("tool", content, { tool_call_id: id });
const text = (value: string) => ({ type: "text", text: value });
const use = (id: string, input: object = {}) => ({ type: "tool_use", id, name: "read", input });
const used = (id: string, content: unknown, more: object = {}) => ({
  ...{ type: "tool_result", tool_use_id: id, content },
  ...more,
});
const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "AA==" } };
const item = (role: string, value: string) => ({
  type: "message",
  role,
  content: [{ type: "input_text", text: value }],
});
const schema = { type: "object", properties: { path: { type: "string" } } };
const tools = [{ type: "function", function: { name: "read", description: "Reads.", parameters: schema } }];
const listed = [{ name: "read", description: "Reads.", input_schema: schema }];

/** What is asked, by what it is. */
export const oddRequests: Readonly<Record<string, readonly [path: string, body: object]>> = {
  "several systems": [CHAT, { messages: [system("w0"), system("w1"), message("developer", "w2"), user("w3")] }],
  "a system alone": [CHAT, { messages: [system("w0")] }],
  "later systems": [CHAT, { messages: [system("w0"), user("w1"), system("w2"), said("w3"), system("w4"), user("w5")] }],
  "a system at the end": [CHAT, { messages: [user("w0"), said("w1"), user("w2"), system("w3")] }],
  "a system between a call and its result": [
    CHAT,
    {
      tools,
      messages: [user("w0"), said(null, { tool_calls: [call("a")] }), system("w1"), result("a", "w2"), user("w3")],
    },
  ],
  "users in a row": [CHAT, { messages: [user("w0"), user("w1"), user([])] }],
  "an answer first": [CHAT, { messages: [system("w0"), said("w1"), user("w2")] }],
  "answers in a row, and empty ones": [
    CHAT,
    { messages: [user("w0"), said("w1"), said("w2"), user("w3"), said(""), user("w4"), said(null), user("w5")] },
  ],
  "several calls, with results in another order": [
    CHAT,
    {
      tools,
      messages: [
        ...[user("w0"), said("", { tool_calls: [call("a", '{"path":"w1"}'), call("b", '{"path":"w2"}')] })],
        ...[result("b", "w3"), result("a", "w4"), user("w5")],
      ],
    },
  ],
  "calls without tools": [
    CHAT,
    { messages: [user("w0"), said(null, { tool_calls: [call("a", '{"path":"w1"}')] }), result("a", "w2")] },
  ],
  "arguments that are no JSON, or no object": [
    CHAT,
    {
      tools,
      messages: [
        ...[
          user("w0"),
          said(null, { tool_calls: [call("a", '{"path": w1')] }),
          result("a", "w2"),
          said("w3"),
          user("w4"),
        ],
        ...[said(null, { tool_calls: [call("b", '["w5"]')] }), result("b", "w6")],
      ],
    },
  ],
  "a call without a result": [
    CHAT,
    { tools, messages: [user("w0"), said(null, { tool_calls: [call("a")] }), user("w1")] },
  ],
  "a result without a call": [CHAT, { messages: [user("w0"), result("z", "w1"), said("w2"), user("w3")] }],
  "odd schemas": [
    CHAT,
    {
      messages: [user("w0")],
      tools: [
        { type: "function", function: { name: "bare" } },
        { type: "function", function: { name: "nulls", description: null, parameters: null, strict: null } },
        {
          type: "function",
          function: {
            name: "odd",
            parameters: {
              ...{ $defs: { E: { type: "object", properties: {} } }, required: null },
              properties: {
                ...{
                  a: { type: ["string", "null"] },
                  b: { anyOf: [{ type: "string" }, { type: "array", items: {} }] },
                },
                ...{ c: true, d: {}, e: { $ref: "#/$defs/E" }, f: { enum: ["x", null, 1] }, g: { const: 1 } },
                ...{
                  h: { type: "object", additionalProperties: { type: "number" } },
                  i: { type: "array", items: [{}] },
                },
              },
            },
          },
        },
      ],
    },
  ],
  "a begun answer": [CHAT, { messages: [user("w0"), said("w1")] }],
  "blocks of all kinds": [
    MESSAGES,
    {
      system: [text("x-anthropic-billing-header: cch=none;"), text("w0 "), text("w1")],
      tools: listed,
      messages: [
        user([image, text("w2"), { type: "document", title: "w3", source: { type: "text", data: "w4" } }]),
        said([{ type: "thinking", thinking: "t", signature: "s" }, { type: "redacted_thinking", data: "x" }, use("1")]),
        user([used("1", [text("w5"), image]), text("w6"), { type: "container_upload", file_id: "f" }]),
        said([{ type: "compaction", content: "w7" }, text(" w8")]),
        user("w9"),
      ],
    },
  ],
  "a text in front of a result, and errors": [
    MESSAGES,
    {
      tools: listed,
      messages: [user("w0"), said([use("1")]), user([used("1", "w1", { is_error: true }), text("w2")])],
    },
  ],
  "tools of servers": [
    MESSAGES,
    {
      messages: [
        user("w0"),
        said([
          { type: "server_tool_use", id: "s", name: "web_search", input: { query: "w1" } },
          { type: "web_search_tool_result", tool_use_id: "s", content: [{ type: "web_search_result", title: "w2" }] },
          text("w3"),
        ]),
        user("w4"),
      ],
    },
  ],
  "items of all kinds": [
    RESPONSES,
    {
      instructions: "w0",
      input: [
        ...[item("developer", "w1"), item("user", "w2"), item("developer", "w3"), item("user", "w4")],
        { type: "reasoning", summary: [], encrypted_content: "x" },
        { type: "function_call", call_id: "c", namespace: "files", name: "read", arguments: '{"path":"w5"}' },
        {
          type: "function_call_output",
          call_id: "c",
          output: [{ type: "input_text", text: "w6" }, { type: "input_image" }],
        },
        { type: "local_shell_call", call_id: "d", action: { type: "exec", command: ["w7"] } },
        { type: "local_shell_call_output", call_id: "d", output: "w8" },
        { type: "web_search_call", id: "ws", status: "completed" },
        item("developer", "w9"),
        item("user", "w10"),
      ],
    },
  ],
};
