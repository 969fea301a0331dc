/** Tables of a tokenizer give what its tokenizer.json gives, and tables of strangers end with an error of ours. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { Random } from "../../../test/support/random.ts";
import { LowbitError } from "../../errors.ts";
import { Tokenizer } from "../tokenizer.ts";
import { decodeTokenizer, encodeTokenizer } from "./tables.ts";

const read = (path: string) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
const byteLevel = read("../byte-level-tokenizer.json.golden");
const byteFallback = read("../byte-fallback-tokenizer.json.golden");
const shakespeare = read("../../../models/shakespeare/tokenizer.json");
const texts = [
  ...[
    "",
    " ",
    "hello the hello",
    "<|end|>x<|bos|>",
    "日本語 é 🎉",
    "ROMEO:\nWhat, in our house?",
    "\u0000\uffff",
    "aé日a",
  ],
  ...["<think>hello</think>", "a".repeat(300), "  two  spaces ", "<0xE2>", "the <s> the"],
];

/** Two merges of one pair, a prefix of later parts, and a suffix at the end. */
const odd = {
  model: {
    type: "BPE",
    ...{ unk_token: "?", continuing_subword_prefix: "##", end_of_word_suffix: "$", fuse_unk: true },
    vocab: { "?": 0, a: 1, "##b": 2, "##b$": 3, ab: 4, ab$: 5, a$: 6, "##a": 7, aa: 8 },
    merges: ["a ##b", "a ##b$", "a ##a", "a ##b"],
  },
  padding: { strategy: "BatchLongest", direction: "Right", pad_id: 0, pad_type_id: 0, pad_token: "?" },
};

describe.each([
  [
    "byte-level",
    byteLevel,
    { bos_token: "<|bos|>", added_tokens_decoder: { 300: { content: "<far>", special: true } } },
  ],
  ["byte fallback", byteFallback, { bos_token: "<s>", eos_token: "</s>" }],
  ["whole words first", { ...byteLevel, model: { ...byteLevel.model, ignore_merges: true } }, null],
  ["shakespeare", shakespeare, { pad_token: "never seen" }],
  ["odd", odd, null],
])("tables of %s", (_, file, config) => {
  const expected = new Tokenizer(file, config);
  const tables = encodeTokenizer(file)!;
  const found = new Tokenizer(decodeTokenizer(tables, "tables"), config);

  it("encode and decode as tokenizer.json does", () => {
    for (const text of texts)
      for (const options of [{}, { allowControlTokens: false }, { addSpecialTokens: false }]) {
        const ids = expected.encode(text, options);
        expect(found.encode(text, options), text).toEqual(ids);
        expect(found.decode(ids), text).toBe(expected.decode(ids));
      }
    const long = texts.join(" ").repeat(150);
    const errorOf = (tokenizer: Tokenizer) => {
      try {
        return tokenizer.encode(long, { contextLength: 100 });
      } catch (error) {
        return (error as Error).message;
      }
    };
    expect(errorOf(found)).toEqual(errorOf(expected));
  });

  it("have the same tokens", () => {
    expect([found.vocabSize, found.bos, found.eos, found.padding]).toEqual([
      ...[expected.vocabSize, expected.bos, expected.eos, expected.padding],
    ]);
    for (let id = 0; id < expected.vocabSize; id++) {
      const token = expected.idToToken(id);
      expect(found.idToToken(id)).toBe(token);
      if (token !== undefined) expect(found.tokenToId(token)).toBe(expected.tokenToId(token));
    }
    for (const text of ["", "never seen", "##b$$"]) expect(found.tokenToId(text)).toBe(expected.tokenToId(text));
  });

  it("of other places in memory are the same, and of other versions none", () => {
    const moved = new Uint8Array(tables.length + 1);
    moved.set(tables, 1);
    const again = new Tokenizer(decodeTokenizer(moved.subarray(1), "tables"), config);
    for (const text of texts) expect(again.encode(text)).toEqual(expected.encode(text));
    expect(decodeTokenizer(Uint8Array.of(2, 0, 0, 0), "tables")).toBeNull();
    expect(decodeTokenizer(new Uint8Array(0), "tables")).toBeNull();
  });

  it("that are damaged end with an error of ours, or encode other ids below the vocabulary's size", () => {
    const random = new Random(7);
    for (let round = 0; round < 60; round++) {
      const bad = tables.slice(0, round % 10 === 0 ? random.integer(0, tables.length) : tables.length);
      for (let i = 0; i < 1 + (round % 5) && bad.length > 8; i++) {
        const at = 4 * random.integer(1, (bad.length >> 2) - 1);
        new DataView(bad.buffer).setInt32(at, [-1, 0, 1, 2 ** 31 - 1, 300][round % 5]!, true);
      }
      try {
        const tokenizer = new Tokenizer(decodeTokenizer(bad, "tables"), config);
        for (const text of texts)
          for (const id of tokenizer.encode(text)) expect(id >= 0 && id < tokenizer.vocabSize).toBe(true);
      } catch (error) {
        expect(error).toBeInstanceOf(LowbitError);
      }
    }
  });
});

it("there are none of what only tokenizer.json can say", () => {
  const withVocab = (vocab: object) => ({ model: { type: "BPE", vocab, merges: [] } });
  expect(encodeTokenizer(withVocab({ a: 0, b: 2 }))).not.toBeNull();
  for (const file of [withVocab({ a: 0, b: 0 }), withVocab({ "": 0 }), withVocab({ "\ud800": 0 })])
    expect(encodeTokenizer(file)).toBeNull();
  expect(encodeTokenizer({ model: { type: "WordLevel", vocab: { a: 0 }, unk_token: "a" } })).toBeNull();
  expect(encodeTokenizer({ model: { vocab: [["a", 0]], unk_id: 0 } })).toBeNull();
});

it("slots that are all full end a search", () => {
  const tables = encodeTokenizer({ model: { type: "BPE", vocab: { a: 0, b: 1 }, merges: [] } })!;
  const words = new Int32Array(tables.buffer, 0, tables.length >> 2);
  // Sizes, three offsets, then 16 slots of tokens.
  words.fill(1, 6 + 3, 6 + 3 + 16);
  const tokenizer = new Tokenizer(decodeTokenizer(tables, "tables"));
  expect(tokenizer.tokenToId("b")).toBeUndefined();
  expect(tokenizer.tokenToId("a")).toBe(0);
});
