/** Requests of coding agents on templates of published models: all are taken, and prompts begin as those before them did. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { recordedRequests } from "../../test/support/agent-requests.ts";
import { chatTemplate, templateNames } from "../../test/support/chat-templates.ts";
import { oddRequests } from "../../test/support/odd-requests.ts";
import { scriptedModel, toolScript } from "../../test/support/scripted-model.ts";
import { JSON_HEADERS, servedApp, tinyModel, tinySource } from "../../test/support/served.ts";
import { toolTemplate } from "../../test/support/tiny-checkpoint.ts";
import { encodePrompt } from "../language/chat-prompt.ts";
import type { ChatTemplate } from "../text/chat-template.ts";
import { Tokenizer } from "../text/tokenizer.ts";

const golden = new URL("../text/byte-level-tokenizer.json.golden", import.meta.url);
const tokenizer = new Tokenizer(JSON.parse(readFileSync(golden, "utf8")), {
  bos_token: "<|bos|>",
  eos_token: "<|end|>",
});

/** Ids of the prompt that a request becomes. */
async function promptOf(template: ChatTemplate, path: string, request: object): Promise<number[]> {
  const { model, asked } = scriptedModel(toolScript);
  const app = servedApp({ models: [tinySource(Object.assign(model, { template }))] });
  const response = await app.request(path, { method: "POST", headers: JSON_HEADERS, body: JSON.stringify(request) });
  const text = await response.text();
  expect([response.status, text]).toEqual([200, expect.not.stringContaining('"error":{')]);
  const { messages, options } = asked[0]!;
  const settings = {
    name: "model",
    tokenizer,
    template,
    samplingDefaults: {},
    draft: "off" as const,
    eosIds: [],
    stopStrings: [],
  };
  return encodePrompt(settings, messages, options, Number.POSITIVE_INFINITY);
}

/** The share of a prompt that another begins with. */
function shared(a: readonly number[], b: readonly number[]): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return length / a.length;
}

describe.each(templateNames)("by %s", (name) => {
  const template = chatTemplate(name);

  it.each(recordedRequests)(
    "$client is answered, and its prompts begin alike",
    async ({ path, first, second, other }) => {
      const ids = await promptOf(template, path, first);
      expect(shared(ids, await promptOf(template, path, second))).toBeGreaterThanOrEqual(0.99);
      expect(shared(ids, await promptOf(template, path, other))).toBeGreaterThanOrEqual(0.92);
    },
  );

  it.each(Object.keys(oddRequests))("%s: all is told to the model", async (what) => {
    const [path, body] = oddRequests[what]!;
    const prompt = tokenizer.decode(await promptOf(template, path, { model: "tiny", max_tokens: 9, ...body }));
    const words = new Set(JSON.stringify(body).match(/\bw\d+\b/g));
    expect([...words].filter((word) => !new RegExp(`(?:\\b|\\\\n)${word}\\b`).test(prompt))).toEqual([]);
    expect(prompt).not.toContain("x-anthropic");
  });
});

describe("a model that answers", () => {
  it("says so in its usage", async () => {
    const llm = await tinyModel({ contextLength: 32768, chatTemplate: toolTemplate });
    const app = servedApp({ models: [tinySource(llm)] });
    const { path, first, second, other } = recordedRequests[0]!;
    const usage = async (request: object) => {
      const body = JSON.stringify({ ...request, stream: false, max_tokens: 2 });
      const response = await app.request(path, { method: "POST", headers: JSON_HEADERS, body });
      return (await response.json()).usage;
    };
    const { input_tokens } = await usage(first);
    expect(input_tokens).toBeGreaterThan(5000);
    expect((await usage(second)).cache_read_input_tokens / input_tokens).toBeGreaterThanOrEqual(0.99);
    expect((await usage(other)).cache_read_input_tokens / input_tokens).toBeGreaterThanOrEqual(0.92);
  });
});
