/** Generate loop over a scripted decoder: pieces, ends, limits, aborts and statistics. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { ContextLengthError, InvalidArgumentError } from "../errors.ts";
import type { Decoder } from "./decoder.ts";
import { type GenerateOptions, type GenerationResult, generate } from "./generate.ts";
import { Tokenizer } from "./tokenizer.ts";

const read = (path: string) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
const tokenizer = new Tokenizer(read("byte-level-tokenizer.json.golden"), { eos_token: "<|end|>" });
const eos = tokenizer.eos!.id;
const encode = (text: string) => tokenizer.encode(text, { addSpecialTokens: false });

/** Answers with the script's ids one after the other, whatever it is given; then with its last id for ever. */
class ScriptedDecoder implements Decoder {
  position = 0;
  readonly calls: number[][] = [];
  readonly contextLength: number;
  readonly #script: readonly number[];
  #next = 0;

  constructor(script: readonly number[], contextLength = 100) {
    this.#script = script;
    this.contextLength = contextLength;
  }

  async prefill(ids: readonly number[]): Promise<Float32Array> {
    if (this.position + ids.length > this.contextLength) throw new RangeError("the context is overrun");
    this.calls.push([...ids]);
    this.position += ids.length;
    const logits = new Float32Array(tokenizer.vocabSize);
    logits[this.#script[Math.min(this.#next++, this.#script.length - 1)]!] = 1;
    return logits;
  }

  step(id: number): Promise<Float32Array> {
    return this.prefill([id]);
  }
}

async function run(decoder: Decoder, options: GenerateOptions = {}, prompt = encode("in")) {
  const pieces: { id: number; text: string }[] = [];
  const stream = generate(decoder, tokenizer, prompt, { temperature: 0, ...options });
  for (;;) {
    const { done, value } = await stream.next();
    if (done) return { pieces, text: pieces.map((piece) => piece.text).join(""), result: value as GenerationResult };
    pieces.push(value as { id: number; text: string });
  }
}

describe("text", () => {
  it("comes in pieces, whole characters only, until the end token", async () => {
    const script = [...encode("hello 👩‍🚀"), eos];
    const decoder = new ScriptedDecoder(script);
    const { pieces, text, result } = await run(decoder);
    expect(pieces.map((piece) => piece.id)).toEqual(script);
    expect(text).toBe("hello 👩‍🚀");
    expect(pieces.every((piece) => !piece.text.includes("\uFFFD"))).toBe(true);
    expect(result).toMatchObject({ finishReason: "stop", stopString: null, generatedTokens: script.length });
    expect(decoder.calls).toEqual([encode("in"), ...script.slice(0, -1).map((id) => [id])]);
  });

  it("ends at a stop string that spans tokens, and shows nothing of it", async () => {
    const script = encode("hello the end of it");
    const { text, result, pieces } = await run(new ScriptedDecoder(script), { stop: ["the e", "zzz"] });
    expect([text, result.finishReason, result.stopString]).toEqual(["hello ", "stop", "the e"]);
    expect(pieces.map((piece) => piece.text)).toEqual(["hello", " ", ...pieces.slice(2).map(() => "")]);
  });

  it("shows what was held back when the generation ends otherwise", async () => {
    const script = encode("hello the");
    expect((await run(new ScriptedDecoder([...script, eos]), { stop: ["the end"] })).text).toBe("hello the");
    expect((await run(new ScriptedDecoder(script), { stop: ["the end"], maxTokens: 2 })).text).toBe("hello the");
    const cut = await run(new ScriptedDecoder(encode("世")), { maxTokens: 2 });
    expect(cut.text).toBe("\uFFFD");
  });

  it("can find a stop string in the last token", async () => {
    const { text, result } = await run(new ScriptedDecoder(encode("hello")), { stop: ["llo"], maxTokens: 1 });
    expect([text, result.finishReason]).toEqual(["he", "stop"]);
  });
});

describe("end tokens", () => {
  const script = [...encode("hello"), eos, ...encode(" the"), eos];

  it("are passed over with ignoreEos, and replaced by eosIds", async () => {
    const ignored = await run(new ScriptedDecoder(script), { ignoreEos: true, maxTokens: 3 });
    expect([ignored.text, ignored.result.finishReason]).toEqual(["hello the", "length"]);
    const replaced = await run(new ScriptedDecoder(script), { eosIds: encode(" the") });
    expect([replaced.text, replaced.result.finishReason]).toEqual(["hello", "stop"]);
  });

  it.each([-1, 1.5, tokenizer.vocabSize, Number.NaN])("of stopTokens are ids of the vocabulary: not %s", async (id) => {
    const message = new RegExp(`stopTokens: expected (ids below ${tokenizer.vocabSize}|token ids) but found ${id}`);
    await expect(run(new ScriptedDecoder(script), { stopTokens: [id] })).rejects.toThrow(message);
  });

  it("can be any token by stopTokens, also with ignoreEos", async () => {
    const { text, result } = await run(new ScriptedDecoder(script), { stopTokens: encode(" the"), ignoreEos: true });
    expect([text, result.finishReason, result.generatedTokens]).toEqual(["hello", "stop", 3]);
  });
});

describe("length", () => {
  it("is bounded by maxTokens", async () => {
    for (const maxTokens of [0, 1, 5]) {
      const { pieces, result } = await run(new ScriptedDecoder(encode("he")), { maxTokens });
      expect([pieces.length, result.finishReason]).toEqual([maxTokens, "length"]);
    }
  });

  it("is bounded by the context, which the last token need not enter", async () => {
    const prompt = new Array<number>(6).fill(65);
    for (const [context, tokens] of [
      [6, 1],
      [10, 5],
    ] as const) {
      const decoder = new ScriptedDecoder(encode("he"), context);
      const { pieces, result } = await run(decoder, {}, prompt);
      expect([pieces.length, result.finishReason, decoder.position]).toEqual([tokens, "length", context]);
    }
  });

  it("of the prompt is checked before any computation", async () => {
    const decoder = new ScriptedDecoder([eos], 10);
    const prompt = new Array<number>(11).fill(65);
    await expect(run(decoder, {}, prompt)).rejects.toThrow(ContextLengthError);
    await expect(run(decoder, {}, prompt)).rejects.toThrow(/11 tokens.*context length of 10/);
    decoder.position = 8;
    await expect(run(decoder, {}, [1, 2, 3])).rejects.toThrow(/3 tokens after 8 .*of 10/);
    await expect(run(decoder, {}, [])).rejects.toThrow(InvalidArgumentError);
    await expect(run(decoder, { maxTokens: -1 }, [1])).rejects.toThrow("maxTokens");
    await expect(run(decoder, { topP: 2 }, [1])).rejects.toThrow("topP");
    await expect(run(decoder, { stop: [""] }, [1])).rejects.toThrow("stop");
    expect(decoder.calls).toEqual([]);
  });
});

describe("abort", () => {
  it("by a timer reaches a decoder that never waits", async () => {
    const decoder = new ScriptedDecoder(encode("he"), Number.POSITIVE_INFINITY);
    const reason = new Error("enough");
    const controller = new AbortController();
    setTimeout(() => controller.abort(reason), 5);
    await expect(run(decoder, { signal: controller.signal })).rejects.toBe(reason);
  });

  it("is honoured within one token", async () => {
    const controller = new AbortController();
    const decoder = new ScriptedDecoder(encode("he"));
    const stream = generate(decoder, tokenizer, [65], { temperature: 0, signal: controller.signal });
    for (let i = 0; i < 3; i++) await stream.next();
    const calls = decoder.calls.length;
    controller.abort();
    await expect(stream.next()).rejects.toMatchObject({ name: "AbortError" });
    expect(decoder.calls.length).toBe(calls);
  });

  it("before the start computes nothing, and during the prefill gives no token", async () => {
    const decoder = new ScriptedDecoder(encode("he"));
    await expect(run(decoder, { signal: AbortSignal.abort("no") })).rejects.toBe("no");
    expect(decoder.calls).toEqual([]);
    const controller = new AbortController();
    const prefill = decoder.prefill.bind(decoder);
    decoder.prefill = (ids) => {
      controller.abort("late");
      return prefill(ids);
    };
    await expect(run(decoder, { signal: controller.signal })).rejects.toBe("late");
  });

  it("hands the signal to the decoder", async () => {
    const { signal } = new AbortController();
    const seen: unknown[] = [];
    const decoder = new ScriptedDecoder(encode("he"));
    const wrapped: Decoder = {
      contextLength: 100,
      position: 0,
      prefill: (ids, options) => {
        seen.push(options.signal);
        return decoder.prefill(ids);
      },
      step: (id, options) => {
        seen.push(options.signal);
        return decoder.step(id);
      },
    };
    await run(wrapped, { signal, maxTokens: 3 });
    expect(seen).toEqual([signal, signal, signal]);
  });
});

describe("sampling and statistics", () => {
  it("penalizes what prompt and answer hold, and draws by the seed", async () => {
    const decoder = new ScriptedDecoder(encode("he"));
    const { pieces } = await run(decoder, { maxTokens: 2, presencePenalty: 5 }, encode("he"));
    expect(pieces.map((piece) => piece.id)).not.toContain(encode("he")[0]);
    const draw = async (seed: number) =>
      (await run(new ScriptedDecoder(encode("he")), { maxTokens: 8, temperature: 1, seed, ignoreEos: true })).pieces;
    expect(await draw(1)).toEqual(await draw(1));
    expect(await draw(1)).not.toEqual(await draw(2));
  });

  it("counts tokens and seconds", async () => {
    const { result } = await run(new ScriptedDecoder(encode("he")), { maxTokens: 4 }, [65, 66, 67]);
    expect(result).toMatchObject({ promptTokens: 3, generatedTokens: 4 });
    expect(result.prefillSeconds).toBeGreaterThan(0);
    expect(result.firstTokenSeconds).toBeGreaterThanOrEqual(result.prefillSeconds);
    expect(result.decodeSeconds).toBeGreaterThan(0);
  });
});

describe("wrong types", () => {
  it.each(["stopTokens", "eosIds", "contextIds"])(
    "of ids are refused before anything is computed: %s",
    async (name) => {
      const decoder = new ScriptedDecoder(encode("hello"));
      await expect(run(decoder, { [name]: 7 })).rejects.toThrow(`${name}: expected a list of token ids but found 7`);
      expect(decoder.position).toBe(0);
    },
  );

  it("of a prompt are, too", async () => {
    const tokens = generate(new ScriptedDecoder(encode("hello")), tokenizer, undefined as never);
    await expect(tokens.next()).rejects.toThrow("prompt: expected a text or token ids but found undefined");
  });
});
