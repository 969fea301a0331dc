/** Which tokenizer.json files are written to GGUF, and what the others are refused for. */
import { expect, it } from "vitest";
import { UnsupportedError } from "../../errors.ts";
import type { JsonObject } from "../json.ts";
import { tokenizerMetadata } from "./write-tokenizer.ts";

/** GPT-2's characters for bytes. */
const characters = Array.from({ length: 512 }, (_, code) => String.fromCodePoint(code)).filter(
  (text) => !/[\0- \x7f-\xa0\xad]/.test(text),
);
const words = Object.fromEntries(["a", "b", "ab", ...characters].map((token) => [token, 0]));
for (const [id, token] of Object.keys(words).entries()) words[token] = id;
const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`);
const pieces = Object.fromEntries(["<unk>", "▁", "a", "b", "ab", ...bytes].map((token, id) => [token, id]));

const bytesAfter = (...steps: JsonObject[]) => ({
  type: "Sequence",
  pretokenizers: [...steps, { type: "ByteLevel", add_prefix_space: false, use_regex: false }],
});
const split = (Regex: string, more = {}) => ({
  ...{ type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false, ...more },
});
const gpt2 = { type: "ByteLevel", add_prefix_space: false, use_regex: true };
const byteLevel = { pre_tokenizer: gpt2, model: { type: "BPE", vocab: words, merges: ["a b"] } };
const spaces = { type: "Replace", pattern: { String: " " }, content: "▁" };
const prefixed = { type: "Sequence", normalizers: [{ type: "Prepend", prepend: "▁" }, spaces] };
const model = { type: "BPE", vocab: pieces, merges: [["a", "b"]], byte_fallback: true, unk_token: "<unk>" };
const sentencePiece = { normalizer: prefixed, model };

const write = (tokenizer: JsonObject, modelName = "x") =>
  tokenizerMetadata({
    ...{ file: "x", modelName, tokenizer, chatTemplate: null, bosId: 1, eosId: 2, vocabularySize: 600 },
  });
const value = (tokenizer: JsonObject, key: string) => write(tokenizer).get(`tokenizer.ggml.${key}`)?.value;

const WHOLE =
  "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const UPPER = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
const LOWER = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";
const GPT4O =
  `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${ENDINGS}?|[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${ENDINGS}?` +
  "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

it.each<[string, JsonObject]>([
  ["gpt-2", byteLevel],
  [
    "starcoder",
    { ...byteLevel, pre_tokenizer: bytesAfter({ type: "Digits", individual_digits: true }, split(value1())) },
  ],
  ["gpt-4o", { ...byteLevel, pre_tokenizer: bytesAfter(split(GPT4O)) }],
  [
    "smaug-bpe",
    {
      ...byteLevel,
      pre_tokenizer: bytesAfter(split(ENDINGS + WHOLE)),
      model: { ...byteLevel.model, vocab: { ...words, aa: 590 } },
    },
  ],
  [
    "llama-bpe",
    {
      ...byteLevel,
      pre_tokenizer: bytesAfter(split(ENDINGS + WHOLE)),
      model: { ...byteLevel.model, ignore_merges: true },
    },
  ],
])("words of %s have that name", (name, tokenizer) => {
  expect(value(tokenizer, "pre")).toBe(name);
});

function value1(): string {
  return "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
}

it("writes SentencePiece with and without a space before texts, and what stands around them", () => {
  expect(value(sentencePiece, "add_space_prefix")).toBe(true);
  expect(value({ ...sentencePiece, normalizer: spaces }, "add_space_prefix")).toBe(false);
  const around = {
    type: "TemplateProcessing",
    single: [{ SpecialToken: { id: "<b>" } }, { Sequence: { id: "A" } }, { SpecialToken: { id: "<e>" } }],
    special_tokens: { "<b>": { ids: [4] }, "<e>": { ids: [2] } },
  };
  const both = { ...byteLevel, post_processor: around };
  expect(["bos_token_id", "add_bos_token", "add_eos_token"].map((key) => value(both, key))).toEqual([4, true, true]);
});

const added = (flags: object) => [{ id: 599, content: "<t>", special: true, ...flags }];
it.each<[JsonObject, RegExp]>([
  [{ ...byteLevel, pre_tokenizer: { ...gpt2, add_prefix_space: true } }, /add_prefix_space of ByteLevel/],
  [{ ...byteLevel, normalizer: { type: "NFC" } }, /the normalizer "NFC"/],
  [{ ...byteLevel, normalizer: { type: "Lowercase" } }, /the normalizer "Lowercase"/],
  [{ ...byteLevel, pre_tokenizer: { type: "Whitespace" } }, /not cut by ByteLevel at last but by "Whitespace"/],
  [{ ...byteLevel, pre_tokenizer: null }, /not cut by ByteLevel/],
  [{ ...byteLevel, pre_tokenizer: bytesAfter(split("\\w+")) }, /for which there is no name/],
  [{ ...byteLevel, pre_tokenizer: bytesAfter(split(GPT4O, { behavior: "Removed" })) }, /Split with behavior "Removed"/],
  [{ ...byteLevel, pre_tokenizer: bytesAfter(split(GPT4O, { invert: true })) }, /inverted/],
  [{ ...byteLevel, pre_tokenizer: bytesAfter({ type: "Punctuation" }) }, /the pre-tokenizer "Punctuation"/],
  [{ ...byteLevel, model: { ...byteLevel.model, dropout: 0.1 } }, /dropout 0.1/],
  [{ ...byteLevel, model: { ...byteLevel.model, end_of_word_suffix: "</w>" } }, /end_of_word_suffix "<\/w>"/],
  [
    { ...byteLevel, model: { ...byteLevel.model, ignore_merges: true, vocab: { ...words, aa: 590 } } },
    /ignore_merges true/,
  ],
  [{ ...byteLevel, added_tokens: added({ lstrip: true }) }, /lstrip true of the added token "<t>"/],
  [{ ...byteLevel, added_tokens: added({ single_word: true }) }, /single_word true/],
  [{ ...byteLevel, post_processor: { type: "RobertaProcessing" } }, /the post-processor "RobertaProcessing"/],
  [{ ...sentencePiece, normalizer: { type: "NFKC" } }, /the normalizer "NFKC"/],
  [{ ...sentencePiece, normalizer: null }, /spaces that are no ▁/],
  [{ ...sentencePiece, added_tokens: added({ normalized: true }) }, /looked for in normalized text/],
  [{ ...sentencePiece, model: { ...model, merges: [] } }, /leave out ways to make "ab"/],
  [{ ...sentencePiece, model: { ...model, vocab: { "▁": 0, "<unk>": 1 } } }, /0 tokens of bytes, not 256/],
  [
    {
      normalizer: null,
      pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "first", split: false },
      model,
    },
    /Metaspace with prepend_scheme "first"/,
  ],
  [{ ...byteLevel, model: { type: "WordPiece", vocab: {} } }, /models of type WordPiece, only BPE/],
])("refuses %#", (tokenizer, message) => {
  expect(() => write(tokenizer)).toThrow(message);
  expect(() => write(tokenizer)).toThrow(UnsupportedError);
});

it("has Phi-3's tokens that take white space after them, as llama.cpp does by the model's name", () => {
  const tokenizer = { ...byteLevel, added_tokens: added({ rstrip: true }) };
  expect(() => write(tokenizer)).toThrow(/rstrip true of the added token/);
  expect(() => write(tokenizer, "Phi-3-mini")).not.toThrow();
});
