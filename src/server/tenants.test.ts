/** Keys: what one has asked is nothing to another, but for what whoever runs the server shares. */
import { beforeAll, describe, expect, it } from "vitest";
import { post, servedApp, tinyModel, tinySource } from "../../test/support/served.ts";
import { InvalidFileError } from "../errors.ts";
import type { LanguageModel } from "../language/language-model.ts";
import type { ServerOptions } from "./listen.ts";
import { parsePrompts, warmPrompts } from "./named-prompts.ts";
import type { App } from "./routes/route.ts";

/** Two that have asked nothing yet. */
let number = 0;
const newKeys = () => [`key-of-anna-${number++}`, `key-of-ben-${number}`];
let llm: LanguageModel;
beforeAll(async () => {
  llm = await tinyModel({ contextLength: 2048 });
});

const served = (keys: readonly string[], options: Partial<ServerOptions> = {}) =>
  servedApp({ models: [tinySource(llm)], keys, ...options });

/** Texts that no other test asks about. */
let texts = 0;
const newText = (length = 60) => Array.from({ length }, (_, i) => `${texts}-${(i * 7919) % 97}`).join(` ${texts++} `);

type Ask = (app: App, key: string, system: string, text: string) => Promise<number>;
const bearer = (key: string) => ({ authorization: `Bearer ${key}` });
const fields = { model: "tiny", max_tokens: 2 };

/** Tokens that were found, by each API. */
const apis: Record<string, Ask> = {
  "/v1/chat/completions": async (app, key, system, text) => {
    const messages = [system, text].map((content, i) => ({ role: i === 0 ? "system" : "user", content }));
    const { body } = await post(app, "/v1/chat/completions", { ...fields, messages }, bearer(key));
    return body.usage.prompt_tokens_details.cached_tokens;
  },
  "/v1/completions": async (app, key, system, text) => {
    const { body } = await post(app, "/v1/completions", { ...fields, prompt: system + text }, bearer(key));
    return body.usage.prompt_tokens_details.cached_tokens;
  },
  "/v1/completions with echo": async (app, key, system, text) => {
    const asked = { ...fields, prompt: system + text, echo: true, logprobs: 1 };
    const found = await apis["/v1/completions"]!(app, key, system, text);
    await post(app, "/v1/completions", asked, bearer(key));
    return found;
  },
  "/v1/responses": async (app, key, instructions, input) => {
    const asked = { model: "tiny", max_output_tokens: 2, instructions, input };
    const { body } = await post(app, "/v1/responses", asked, bearer(key));
    return body.usage.input_tokens_details.cached_tokens;
  },
  "/v1/messages": async (app, key, system, content) => {
    const asked = { ...fields, system, messages: [{ role: "user", content }] };
    const { body } = await post(app, "/v1/messages", asked, { "x-api-key": key });
    return body.usage.cache_read_input_tokens;
  },
};

describe.each(Object.entries(apis))("what was computed of a prompt to %s", (_name, ask) => {
  it("is found by the key that asked, and by no other", async () => {
    const keys = newKeys();
    const app = served(keys);
    const [system, text] = [newText(), newText()];
    await ask(app, keys[0]!, system, text);
    const [own, again] = [await ask(app, keys[0]!, system, text), await ask(app, keys[0]!, system, text)];
    expect(own).toBeGreaterThan(64);
    expect(again).toBe(own);
    expect(await ask(app, keys[1]!, system, text)).toBe(0);
  });

  it("is found by all where keys share, or there are none", async () => {
    for (const options of [{ sharedPrefixes: "all" as const }, { keys: [] }]) {
      const [system, text] = [newText(), newText()];
      const keys = newKeys();
      await ask(served(keys, options), keys[0]!, system, text);
      expect(await ask(served(keys, options), keys[1]!, system, text)).toBeGreaterThan(64);
    }
  });
});

it("a key has as many pages in memory as the server lets it have", async () => {
  const ask = apis["/v1/chat/completions"]!;
  for (const [limits, most] of [
    [{ keyPages: 2 }, 64],
    [{}, Number.POSITIVE_INFINITY],
  ] as const) {
    const [key] = newKeys();
    const app = served([key!], { limits });
    const [system, text] = [newText(), newText()];
    await ask(app, key!, system, text);
    const found = await ask(app, key!, system, text);
    expect(found).toBeLessThanOrEqual(most);
    expect(found).toBeGreaterThan(most === 64 ? 0 : 64);
  }
});

describe("prompts that are shared", () => {
  const ask = apis["/v1/chat/completions"]!;
  it("are found by all keys, and nothing of what follows", async () => {
    const [system, text] = [newText(), newText()];
    const line = JSON.stringify({ messages: [{ role: "system", content: system }] });
    const sharedPrefixes = parsePrompts(`${line}\n\n`, "prompts.jsonl");
    const keys = newKeys();
    const app = served(keys, { sharedPrefixes });
    await ask(app, keys[0]!, system, text);
    const found = await ask(app, keys[1]!, system, text);
    const length = llm.encodeChat([{ role: "system", content: system }]).length;
    expect(found).toBeGreaterThan(length - 40);
    expect(found).toBeLessThanOrEqual(length);
  });

  it("are warmed, in each form, for models that they name", async () => {
    const [system, other] = [newText(), newText()];
    const lines = [
      JSON.stringify({ url: "/v1/messages", body: { system, messages: [{ role: "user", content: "Hi" }] } }),
      JSON.stringify({ model: "another", messages: [{ role: "system", content: other }] }),
    ];
    const warm = parsePrompts(lines.join("\r\n"), "prompts.jsonl");
    const keys = newKeys();
    const app = served(keys, { sharedPrefixes: warm });
    await warmPrompts(warm, "tiny", llm, new AbortController().signal);
    expect(await ask(app, keys[0]!, system, "Hello")).toBeGreaterThan(64);
    // How each prompt begins is that of the one that is shared, too.
    expect(await ask(app, keys[1]!, other, "Hello")).toBeLessThan(16);
  });

  it.each([
    ["nothing", "prompts.jsonl, line 1: expected a request as JSON"],
    ["[]", "prompts.jsonl, line 1: expected a request, which is a JSON object"],
    ['{"messages": []}\n{"messages": [{"role": "me", "content": "Hi"}]}', "prompts.jsonl, line 1: messages: "],
    ['{"url": "/v1/embeddings", "body": {}}', "prompts.jsonl, line 1: url: expected /v1/chat/completions"],
  ])("are refused where a line is none: %s", (text, message) => {
    expect(() => parsePrompts(text, "prompts.jsonl")).toThrow(InvalidFileError);
    expect(() => parsePrompts(text, "prompts.jsonl")).toThrow(message);
  });
});
