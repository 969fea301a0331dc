/** Tools of requests: which models are told of them, and by what names they are called. */
import { beforeAll, describe, expect, it } from "vitest";
import { asked, hi, user } from "../../test/support/asked.ts";
import { scriptedModel } from "../../test/support/scripted-model.ts";
import { post, postStream, servedApp, tinyModel, tinySource } from "../../test/support/served.ts";
import { toolTemplate } from "../../test/support/tiny-checkpoint.ts";
import type { App } from "./routes/route.ts";

/** In the form of the one that Codex gives: files that are added, deleted and changed. */
const PATCH = `start: begin hunk+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?
hunk: add | delete | update
add: "*** Add File: " name LF line+
delete: "*** Delete File: " name LF
update: "*** Update File: " name LF change?
name: /(.+)/
line: "+" /(.*)/ LF -> line
change: (context | changed)+ eof?
context: ("@@" | "@@ " /(.+)/) LF
changed: ("+" | "-" | " ") /(.*)/ LF
eof: "*** End of File" LF
%import common.LF
`;

let app: App;
beforeAll(async () => {
  app = servedApp({ models: [tinySource(await tinyModel({ contextLength: 4096, chatTemplate: toolTemplate }))] });
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

  it("that take texts of a regular expression are constrained to it", async () => {
    const format = { type: "grammar", syntax: "regex", definition: "[ab]{3}" };
    const body = {
      ...{ model: "tiny", input: "hi", temperature: 1, max_output_tokens: 60, tool_choice: "required" },
      reasoning: { effort: "none" },
      tools: [{ type: "custom", name: "code", format }],
    };
    for (let seed = 0; seed < 3; seed++) {
      const { output } = (await post(app, "/v1/responses", { ...body, seed })).body;
      const calls = output.filter(({ type }: { type: string }) => type === "custom_tool_call");
      expect(calls.length).toBeGreaterThan(0);
      for (const { input } of calls) expect(input).toMatch(/^[ab]{3}$/);
    }
  });

  it("that take texts of a Lark grammar are constrained to it", async () => {
    const format = { type: "grammar", syntax: "lark", definition: PATCH };
    const tools = [{ type: "custom", name: "apply_patch", format }];
    const body = {
      model: "tiny",
      input: "hi",
      temperature: 1,
      max_output_tokens: 160,
      tool_choice: "required",
      reasoning: { effort: "none" },
      tools,
    };
    const { output } = (await post(app, "/v1/responses", { ...body, seed: 1 })).body;
    const call = output.find(({ type }: { type: string }) => type === "custom_tool_call");
    // Random weights end few texts: what they began is what a patch begins with.
    expect(call.input.slice(0, 16)).toBe("*** Begin Patch\n");
    const wrong = { ...format, definition: 'start: "a"\n%declare B' };
    const chat = {
      messages: hi,
      tools: [{ type: "custom", custom: { name: "p", format: { type: "grammar", grammar: wrong } } }],
    };
    const refused = await asked("/v1/chat/completions", chat);
    expect([refused.status, refused.body.error.message]).toEqual([
      400,
      expect.stringContaining("lark: line 2: %declare"),
    ]);
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
