/** Requests as coding agents and SDKs send them: each is answered, or refused in words that its client knows. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { beforeAll, describe, expect, it } from "vitest";
import { asked, hi, user } from "../../test/support/asked.ts";
import { JSON_HEADERS, post, servedApp, tinyModel, tinySource } from "../../test/support/served.ts";
import { toolTemplate } from "../../test/support/tiny-checkpoint.ts";
import type { LanguageModel } from "../language/language-model.ts";
import type { App } from "./routes/route.ts";

const CONTEXT = 4096;

let llm: LanguageModel;
let app: App;
beforeAll(async () => {
  llm = await tinyModel({ contextLength: CONTEXT, chatTemplate: toolTemplate });
  app = servedApp({ models: [tinySource(llm)] });
});

const folder = new URL("../../../shared/cases/agents/", import.meta.url);
const cases = existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith(".json")) : [];

describe.skipIf(cases.length === 0)("recorded cases (needs ../shared)", () => {
  /** Those whose request is refused, and how. */
  const refused: Record<string, [number, RegExp]> = {
    "anthropic-image.json": [400, /this model reads no images/],
    "chat-image-url.json": [400, /this model reads no images/],
    "responses-previous-id.json": [400, /'resp_1' not found/],
    "completions-suffix.json": [400, /suffix/],
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

  it("keeps a constraint with what it began with", async () => {
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
