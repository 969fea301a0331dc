/** Long texts against a context's room: refused before all of them is encoded, and never one that fits. */
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, it, type MockInstance, vi } from "vitest";
import { ContextLengthError } from "../errors.ts";
import { ChatTemplate } from "./chat-template.ts";
import { encodeChat } from "./encode-chat.ts";
import { MergeQueue } from "./tokenizer/merge-queue.ts";
import { Tokenizer } from "./tokenizer.ts";

const read = (path: string) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
const byteLevelFile = read("byte-level-tokenizer.json.golden");
const byteFallbackFile = read("byte-fallback-tokenizer.json.golden");
/** Scores of -1 for all: the fewest tokens win. */
const unigramFile = {
  ...{ version: "1.0", added_tokens: [{ id: 0, content: "<unk>", special: true }] },
  ...{ normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null },
  model: { type: "Unigram", unk_id: 0, vocab: ["<unk>", "a", "b", " ", "aaaa", "ab b"].map((token) => [token, -1]) },
};
const wordPieceFile = {
  ...{ version: "1.0", added_tokens: [], normalizer: null, post_processor: null, decoder: null },
  pre_tokenizer: { type: "WhitespaceSplit" },
  model: {
    ...{ type: "WordPiece", unk_token: "?", continuing_subword_prefix: "##" },
    vocab: { "?": 0, a: 1, "##a": 2, b: 3, "##b": 4, "##aa": 5 },
  },
};
const files = { byteLevelFile, byteFallbackFile, unigramFile, wordPieceFile };

const LONG = 70_000;
const texts = {
  words: "hello the word ",
  a: "a",
  mixed: "ab b😀 aaa €€<|end|></s> b",
};

describe.each(Object.entries(files))("%s", (_, file) => {
  const tokenizer = new Tokenizer(file);

  it.each(Object.entries(texts))("of %s: is refused only where it does not fit", (_, text) => {
    const long = text.repeat(Math.ceil(LONG / text.length));
    for (const allowControlTokens of [true, false]) {
      const ids = tokenizer.encode(long, { allowControlTokens });
      expect(tokenizer.encode(long, { allowControlTokens, contextLength: ids.length })).toEqual(ids);
    }
  });
});

describe("a long text that cannot fit", () => {
  let merging: MockInstance;
  let tokenizer: Tokenizer;
  let sentencePiece: Tokenizer;
  beforeEach(() => {
    tokenizer = new Tokenizer(byteLevelFile);
    sentencePiece = new Tokenizer(byteFallbackFile);
    merging = vi.spyOn(MergeQueue.prototype, "clear");
  });
  afterEach(() => vi.restoreAllMocks());
  const refusal = /more than 100 tokens do not fit the context length of 100/;

  it.each([true, false])("is encoded as far as the context goes (control tokens: %s)", (allowControlTokens) => {
    const options = { allowControlTokens, contextLength: 10_000 };
    expect(() => tokenizer.encode("hello the ".repeat(LONG / 10), options)).toThrow(/more than 10000 tokens/);
    const words = Array.from({ length: LONG }, (_, i) => ` word${i}`).join("");
    expect(() => tokenizer.encode(words, options)).toThrow(/more than 10000 tokens/);
    expect(merging).toHaveBeenCalled();
    expect(merging.mock.calls.length).toBeLessThanOrEqual(10_010);
  });

  it("is not encoded at all where it is one word that is longer than the longest tokens are together", () => {
    expect(() => sentencePiece.encode("hello the ".repeat(LONG), { contextLength: 100 })).toThrow(ContextLengthError);
    expect(() => tokenizer.encode("a".repeat(LONG), { contextLength: 100 })).toThrow(refusal);
    expect(merging).not.toHaveBeenCalled();
    expect(() => tokenizer.encode("hello the ".repeat(LONG / 10), { contextLength: 100 })).toThrow(refusal);
    expect(merging.mock.calls.length).toBeLessThan(10);
    const counted = "a".repeat(2000);
    expect(tokenizer.encode(counted, { contextLength: 100 })).toEqual(tokenizer.encode(counted));
  });

  it("is refused as a message of a conversation, and leaves other texts as they are", () => {
    const template = new ChatTemplate("{{ messages[0].content }}");
    for (const end of ["", "<|end|>"]) {
      const messages = [{ role: "user", content: "hello the ".repeat(LONG / 10) + end }];
      expect(() => encodeChat(tokenizer, template, messages, { contextLength: 100 })).toThrow(refusal);
    }
    expect(merging.mock.calls.length).toBeLessThanOrEqual(202);
    const text = "hello the ".repeat(LONG / 10);
    expect(tokenizer.encode(text)).toEqual(new Tokenizer(byteLevelFile).encode(text));
  });
});
