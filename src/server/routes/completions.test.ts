/** /v1/completions against what the library itself generates and scores. */
import { beforeAll, describe, expect, it } from "vitest";
import { post, postStream, servedApp, tinyModel, tinySource } from "../../../test/support/served.ts";
import { evaluatePerplexity } from "../../language/evaluate.ts";
import type { LanguageModel } from "../../language/language-model.ts";
import type { App } from "./route.ts";

let llm: LanguageModel;
let app: App;
beforeAll(async () => {
  llm = await tinyModel();
  app = servedApp({ models: [tinySource(llm)] });
});

const prompt = "The quick brown fox";
const request = { model: "tiny", prompt, max_tokens: 12, temperature: 1, seed: 3, ignore_eos: true };

async function textOf(options: object, text: string | readonly number[] = prompt): Promise<string> {
  let generated = "";
  for await (const piece of llm.generate(text, { temperature: 1, seed: 3, ignoreEos: true, maxTokens: 12, ...options }))
    generated += piece;
  return generated;
}

describe("a completion", () => {
  it("is what the library generates, with how many tokens that took", async () => {
    const { status, body } = await post(app, "/v1/completions", request);
    const promptTokens = llm.tokenizer.encode(prompt).length;
    expect([status, body.object, body.model]).toEqual([200, "text_completion", "tiny"]);
    expect(body.choices).toEqual([{ index: 0, text: await textOf({}), logprobs: null, finish_reason: "length" }]);
    expect(body.usage).toMatchObject({
      prompt_tokens: promptTokens,
      completion_tokens: 12,
      total_tokens: promptTokens + 12,
    });
  });

  it.each([
    [{ top_k: 3 }, { topK: 3 }],
    [{ top_k: -1, top_p: 0.5 }, { topP: 0.5 }],
    [{ min_p: 0.2 }, { minP: 0.2 }],
    [{ temperature: 0 }, { temperature: 0 }],
    [
      { presence_penalty: 2, frequency_penalty: 1 },
      { presencePenalty: 2, frequencyPenalty: 1 },
    ],
    [{ repetition_penalty: 1.8 }, { repetitionPenalty: 1.8 }],
    [{ logit_bias: { 65: 100 } }, { logitBias: { 65: 100 } }],
    [{ seed: -1 }, { seed: Number.MAX_SAFE_INTEGER - 1 }],
    [{ max_tokens: null }, { maxTokens: 16 }],
    [{ stop: null, n: null, stream: null, logprobs: null }, {}],
  ])("takes %j", async (fields, options) => {
    const { body } = await post(app, "/v1/completions", { ...request, ...fields });
    expect(body.choices[0].text).toBe(await textOf(options));
  });

  it("ends at a stop string, of one or of a list", async () => {
    const whole = await textOf({});
    const stop = whole.slice(4, 6);
    for (const given of [stop, ["~never~", stop]]) {
      const { body } = await post(app, "/v1/completions", { ...request, stop: given });
      expect(body.choices[0]).toMatchObject({ text: whole.slice(0, whole.indexOf(stop)), finish_reason: "stop" });
    }
  });

  it("of several prompts and choices has them in order", async () => {
    const ids = llm.tokenizer.encode("Another");
    const several = { ...request, prompt: [ids, ids], n: 2 };
    const { body } = await post(app, "/v1/completions", several);
    const texts = [await textOf({}, ids), await textOf({ seed: 4 }, ids)];
    expect(body.choices.map(({ text }: { text: string }) => text)).toEqual([...texts, ...texts]);
    expect(body.choices.map(({ index }: { index: number }) => index)).toEqual([0, 1, 2, 3]);
    expect(body.usage.completion_tokens).toBe(48);
  });

  it("echoes the prompt with probabilities that add up to those of the whole text", async () => {
    const { body } = await post(app, "/v1/completions", { ...request, max_tokens: 0, echo: true, logprobs: 2 });
    const { text, logprobs } = body.choices[0];
    const { natsPerToken, tokens } = await evaluatePerplexity(llm, prompt);
    expect(text).toBe(prompt);
    expect(logprobs.token_logprobs[0]).toBe(null);
    const sum = logprobs.token_logprobs.reduce((total: number, value: number | null) => total + (value ?? 0), 0);
    expect(-sum / tokens).toBeCloseTo(natsPerToken, 4);
    expect(logprobs.tokens.join("")).toContain(prompt);
    expect(Object.keys(logprobs.top_logprobs[1])).toHaveLength(2);
    expect(body.choices[0].finish_reason).toBe("length");
  });

  it("has the probabilities of its own tokens behind those of the prompt", async () => {
    const greedy = { ...request, temperature: 0, max_tokens: 3, logprobs: 1 };
    const { logprobs } = (await post(app, "/v1/completions", { ...greedy, echo: true })).body.choices[0];
    const own = (await post(app, "/v1/completions", greedy)).body.choices[0].logprobs;
    expect(logprobs.token_logprobs.slice(-3)).toEqual(own.token_logprobs);
    expect(own.token_logprobs).toEqual(own.top_logprobs.map((top: object) => Math.max(...Object.values(top))));
  });

  it("streams the same, with its usage at the end", async () => {
    const stream_options = { include_usage: true };
    const fields = { ...request, n: 2, logprobs: 1, stop: "~never~" };
    const { events } = await postStream(app, "/v1/completions", { ...fields, stream: true, stream_options });
    const { body } = await post(app, "/v1/completions", fields);
    expect(events.at(-1)!.data).toBe("[DONE]");
    const chunks = events.slice(0, -1).map(({ data }) => data);
    for (const index of [0, 1]) {
      const parts = chunks.flatMap(({ choices }) => choices).filter((choice) => choice.index === index);
      expect(parts.map(({ text }) => text).join("")).toBe(body.choices[index].text);
      const lists = parts.flatMap(({ logprobs }) => logprobs?.token_logprobs ?? []);
      expect(lists).toEqual(body.choices[index].logprobs.token_logprobs);
      expect(parts.map(({ finish_reason }) => finish_reason).filter(Boolean)).toEqual(["length"]);
    }
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 24 } });
    expect(chunks.slice(0, -1).every(({ usage }) => usage === null)).toBe(true);
  });

  it.each([
    [{ prompt: "" }, 400, "prompt"],
    [{ prompt: [] }, 400, "prompt"],
    [{ prompt: [1, 2.5] }, 400, "prompt.1"],
    [{ prompt: [99999] }, 400, null],
    [{ n: 0 }, 400, "n"],
    [{ n: 33 }, 400, "n"],
    [{ n: 20, prompt: ["a", "b"] }, 400, "n"],
    [{ best_of: 3 }, 400, "best_of"],
    [{ suffix: "x" }, 400, "suffix"],
    [{ guided_choice: ["yes", "no"] }, 400, "guided_choice"],
    [{ grammar: 'root ::= "a"' }, 400, "grammar"],
    [{ response_format: { type: "json_object" } }, 400, "response_format"],
    [{ temperature: 3 }, 400, "temperature"],
    [{ top_p: 0 }, 400, "top_p"],
    [{ logprobs: 1000 }, 400, "logprobs"],
    [{ logit_bias: { x: 1 } }, 400, "logit_bias.x"],
    [{ logit_bias: { 99999: 1 } }, 400, null],
    [{ stop: [""] }, 400, "stop.0"],
    [{ max_tokens: -1 }, 400, "max_tokens"],
    [{ model: undefined }, 400, "model"],
    [{ model: "other" }, 404, "model"],
    [{ stream: true, echo: true, logprobs: 1 }, 400, "stream"],
  ])("refuses %j", async (fields: Record<string, unknown>, status, param) => {
    for (const stream of fields.stream ? [true] : [false, true]) {
      const answer = await post(app, "/v1/completions", { ...request, stream, ...fields });
      expect([answer.status, answer.body.error?.param]).toEqual([status, param]);
      expect(answer.body.error).toMatchObject({ type: "invalid_request_error", message: expect.any(String) });
    }
  });

  it("says when a prompt is longer than the context", async () => {
    const answer = await post(app, "/v1/completions", { ...request, prompt: "word ".repeat(600) });
    expect([answer.status, answer.body.error.code]).toEqual([400, "context_length_exceeded"]);
  });
});

describe("tokens", () => {
  it("of a text are the tokenizer's, and give the text back", async () => {
    const fields = { model: "tiny", prompt: "Hello 漢", return_token_strs: true };
    const { body } = await post(app, "/tokenize", fields);
    expect(body.tokens).toEqual(llm.tokenizer.encode(fields.prompt));
    expect([body.count, body.token_strs.length, body.max_model_len]).toEqual([
      body.tokens.length,
      body.tokens.length,
      512,
    ]);
    const plain = (await post(app, "/tokenize", { ...fields, add_special_tokens: false })).body.tokens;
    expect((await post(app, "/detokenize", { model: "tiny", tokens: plain })).body).toEqual({ prompt: fields.prompt });
    expect((await post(app, "/detokenize", { model: "tiny", tokens: [99999] })).status).toBe(400);
  });
});
