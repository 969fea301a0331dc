/**
 * Tokenizer: golden ids of two models, and the traps of the library on two small hand-made vocabularies
 * (all bytes or byte fallback, a few merges, a few control tokens).
 */
import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import { Tokenizer } from "./tokenizer.ts";

const read = (path: string) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
const byteLevelFile = read("byte-level-tokenizer.json.golden");
const byteFallbackFile = read("byte-fallback-tokenizer.json.golden");
const config = { bos_token: "<|bos|>", eos_token: { content: "<|end|>" }, clean_up_tokenization_spaces: true };
const byteLevel = new Tokenizer(byteLevelFile, config);
const byteFallback = new Tokenizer(byteFallbackFile, { bos_token: "<s>", eos_token: "</s>" });
const id = (token: string) => byteLevel.tokenToId(token)!;

describe.each([
  ["stories260K", "../../../shared/models/stories260K/", "../shared", { text: "<s>", id: 1 }, [1]],
  ["shakespeare", "../../models/shakespeare/", "models/shakespeare", { text: "<|endoftext|>", id: 0 }, []],
] as const)("%s", (_, folder, place, bos, before) => {
  const present = existsSync(new URL(`${folder}golden.json`, import.meta.url));
  it.skipIf(!present)(`encodes like transformers${present ? "" : ` (skipped: ${place} is absent)`}`, () => {
    const tokenizer = new Tokenizer(read(`${folder}tokenizer.json`), read(`${folder}tokenizer_config.json`));
    const { prompts } = read(`${folder}golden.json`) as { prompts: { text: string; ids: number[] }[] };
    expect(prompts.length).toBeGreaterThan(0);
    for (const { text, ids } of prompts) {
      expect(tokenizer.encode(text)).toEqual(ids);
      expect(tokenizer.encode(text, { allowControlTokens: false })).toEqual(ids);
      expect([...before, ...tokenizer.encode(text, { addSpecialTokens: false })]).toEqual(ids);
      expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe(text);
    }
    expect(tokenizer.bos).toEqual(bos);
  });
});

describe("tokens of tokenizer_config.json", () => {
  const entry = (content: string, changes: object = {}) => ({
    ...{ content, lstrip: false, normalized: false, rstrip: false, single_word: false, special: false },
    ...changes,
  });
  const special = { special: true };

  // Ids of transformers 5.23 for the same two files.
  it("are added after those of the model, in the order of their ids", () => {
    const decoder = { 285: entry("<far>", special), 259: entry("hello", special), 282: entry("<tool>") };
    const tokenizer = new Tokenizer(byteLevelFile, { ...config, added_tokens_decoder: decoder });
    expect(tokenizer.encode("x<tool>hello<far> hello the<|end|>")).toEqual([
      276, 120, 282, 259, 283, 32, 259, 261, 277,
    ]);
    expect([tokenizer.vocabSize, tokenizer.isSpecial(283), tokenizer.isSpecial(259)]).toEqual([284, true, true]);
    expect(tokenizer.decode([120, 282, 259, 283])).toBe("x<tool>hello<far>");
    expect(tokenizer.decode([120, 282, 259, 283], { skipSpecialTokens: true })).toBe("x<tool>");
  });

  it("say how known ones are", () => {
    const decoder = {
      280: entry("<think>", special),
      277: entry("<|end|>"),
      278: entry("<|user|>", { lstrip: true, ...special }),
    };
    const tokenizer = new Tokenizer(byteLevelFile, { ...config, added_tokens_decoder: decoder });
    const ids = tokenizer.encode("x <think> y <|user|>z");
    expect(ids).toEqual([276, 120, 32, 280, 32, 121, 278, 122]);
    expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe("x  yz");
    expect(tokenizer.isSpecial(277)).toBe(true);
  });

  // Ids of transformers 5.24 for the same two files.
  it("are added, too, where they are only named, and special", () => {
    const text = "x<tool>hello <sep><pad> <no><far> hello";
    const idsOf = (fields: object) => {
      const tokenizer = new Tokenizer(byteLevelFile, { ...config, ...fields });
      const ids = tokenizer.encode(text);
      return [ids, tokenizer.decode(ids, { skipSpecialTokens: true })];
    };
    const [no, far, sep] = ["<no>", "<far>", "<sep>"].map((word) => [...word].map((letter) => letter.charCodeAt(0)));
    const named = { pad_token: "<pad>", sep_token: entry("<sep>", { lstrip: true }) };
    expect(idsOf({ ...named, additional_special_tokens: ["<tool>", "<|user|>"] })).toEqual([
      [276, 120, 284, 259, 282, 283, 32, ...no!, ...far!, 32, 259],
      "xhello <no><far> hello",
    ]);
    const extra = [276, 120, 283, 259, 32, ...sep!, 282, 32, ...no!, ...far!, 32, 259];
    const others = { pad_token: "<pad>", additional_special_tokens: ["<no>"] };
    expect(idsOf({ ...others, extra_special_tokens: ["<tool>"] })[0]).toEqual(extra);
    expect(idsOf({ ...others, extra_special_tokens: { image_token: "<tool>" } })[0]).toEqual(extra);
    const both = { added_tokens_decoder: { 285: entry("<far>", special) }, additional_special_tokens: ["<tool>"] };
    const pad = [..."<pad>"].map((letter) => letter.charCodeAt(0));
    expect(idsOf(both)[0]).toEqual([276, 120, 283, 259, 32, ...sep!, ...pad, 32, ...no!, 282, 32, 259]);
  });

  it.each([[[]], ["x"], [{ 5: null }], [{ 5: { content: 7 } }]])("%j are refused", (decoder) => {
    const make = () => new Tokenizer(byteLevelFile, { added_tokens_decoder: decoder });
    expect(make).toThrow(/tokenizer_config.json: added_tokens_decoder: expected/);
    expect(make).toThrow(InvalidFileError);
  });
});

describe("encode", () => {
  it("merges by rank and adds BOS only when asked", () => {
    expect(byteLevel.encode("hello the")).toEqual([id("<|bos|>"), id("hello"), id("Ġthe")]);
    expect(byteLevel.encode("hello the", { addSpecialTokens: false })).toEqual([id("hello"), id("Ġthe")]);
    expect(byteLevel.encode("")).toEqual([id("<|bos|>")]);
    expect(byteLevel.encode("", { addSpecialTokens: false })).toEqual([]);
  });

  it("keeps control tokens that users type as text, when told to", () => {
    const plain = { allowControlTokens: false };
    const text = "hello<|end|> the<think>";
    expect(byteLevel.encode(text)).toContain(id("<|end|>"));
    const ids = byteLevel.encode(text, plain);
    expect(ids).toEqual([
      id("<|bos|>"),
      ...["hello", "<|", "end", "|>", "Ġthe"].map(id),
      id("<think>"), // not special, so it is what it always is
    ]);
    expect(byteLevel.decode(ids.slice(1))).toBe(text);
    const letters = [..."▁</s>"].map((letter) => byteFallback.tokenToId(letter)!);
    expect(byteFallback.encode("</s>", plain)).toEqual([1, ...letters]);
  });

  // Ids of Python's tokenizers 0.23 for the same file.
  it("spells what a Unigram vocabulary lacks in bytes", () => {
    const bytes = [..."0123456789ABCDEF"].flatMap((a) => [..."0123456789ABCDEF"].map((b) => `<0x${a}${b}>`));
    const vocab = [["<unk>", 0], ...bytes.map((byte) => [byte, 0]), ["\u2581", -2], ["a", -3], ["\u2581a", -1]];
    const model = { type: "Unigram", unk_id: 0, vocab, byte_fallback: true };
    const unigram = new Tokenizer({ model });
    expect(unigram.encode("\u2581aé\n日a")).toEqual([259, 196, 170, 11, 231, 152, 166, 258]);
    expect(new Tokenizer({ model: { ...model, byte_fallback: false } }).encode("aé日a")).toEqual([258, 0, 258]);
    const incomplete = vocab.filter(([token]) => token !== "<0xE6>");
    expect(new Tokenizer({ model: { ...model, vocab: incomplete } }).encode("日")).toEqual([0]);
  });

  it("takes a control token apart that the model itself finds in plain text", () => {
    const pre_tokenizer = { ...byteLevelFile.pre_tokenizer, use_regex: false };
    const vocab = { ...byteLevelFile.model.vocab, "<|end|>": id("<|end|>") };
    const model = { ...byteLevelFile.model, vocab, ignore_merges: true };
    const whole = new Tokenizer({ ...byteLevelFile, model, pre_tokenizer }, config);
    const ids = whole.encode("<|end|>", { allowControlTokens: false, addSpecialTokens: false });
    expect(ids).toEqual([..."<|end|>"].map(id));
  });

  it("treats lone surrogates as U+FFFD and cannot be tricked by them", () => {
    const forged = String.fromCharCode(0xd800, 0xd801); // how control tokens are passed on internally
    for (const allowControlTokens of [true, false]) {
      const ids = byteLevel.encode(forged, { allowControlTokens, addSpecialTokens: false });
      expect(byteLevel.decode(ids)).toBe("\uFFFD\uFFFD");
    }
  });

  it("leaves marks out, which keep what they stand in from being a token", () => {
    const encode = (text: string) => byteLevel.encodeMarked(text, "\uE000");
    expect(encode("hello<\uE000|end|> the<|end|>")).toEqual(["hello", "<|", "end", "|>", "Ġthe", "<|end|>"].map(id));
    expect(encode("hello the")).toEqual(byteLevel.encode("hello the", { addSpecialTokens: false }));
  });
});

describe("what the library leaves out", () => {
  // Ids and texts of Python's tokenizers 0.23.3 for the same files.
  const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`);
  const pieces: [string, number][] = [
    ["<unk>", 0],
    ...bytes.map((b): [string, number] => [b, 0]),
    ["▁", -2],
    ["a", -1],
  ];
  const metaspace = { type: "Metaspace", replacement: "▁", prepend_scheme: "never", split: true };
  const unigram = new Tokenizer({
    model: { type: "Unigram", unk_id: 0, vocab: pieces, byte_fallback: true },
    pre_tokenizer: metaspace,
    decoder: { type: "Sequence", decoders: [metaspace, { type: "ByteFallback" }, { type: "Fuse" }] },
  });

  it("gives the bytes of characters that a Unigram model has no token for", () => {
    expect(unigram.encode("a é語")).toEqual([258, 257, 196, 170, 233, 171, 159]);
    expect(unigram.decode([258, 257, 196, 170, 233, 171, 159])).toBe("a é語");
  });

  it("keeps U+FEFF, and the first space where none was put before the text", () => {
    expect(unigram.encode(" \uFEFFa")).toEqual([257, 240, 188, 192, 258]);
    expect(unigram.decode([257, 240, 188, 192, 258])).toBe(" \uFEFFa");
  });
});

describe("words", () => {
  // Made with pre_tokenize_str of Rust's tokenizers 0.23.3.
  const text = "émigré\uFEFF x\u0085y a\u200Db  \uFEFF-z";
  it.each([
    ["Whitespace", ["émigré", "\uFEFF", "x", "y", "a\u200Db", "\uFEFF-", "z"]],
    ["WhitespaceSplit", ["émigré\uFEFF", "x", "y", "a\u200Db", "\uFEFF-z"]],
    ["BertPreTokenizer", ["émigré\uFEFF", "x", "y", "a\u200Db", "\uFEFF", "-", "z"]],
  ])("of %s are Unicode's", (type, expected) => {
    const places = new Map([...new Set(expected)].map((word, i) => [word, i + 1]));
    const model = { type: "WordPiece", unk_token: "?", vocab: { "?": 0, ...Object.fromEntries(places) } };
    const ids = expected.map((word) => places.get(word));
    expect(new Tokenizer({ model, pre_tokenizer: { type } }).encode(text)).toEqual(ids);
    const sequence = { type: "Sequence", pretokenizers: [{ type }] };
    expect(new Tokenizer({ model, pre_tokenizer: sequence }).encode(text)).toEqual(ids);
  });

  it("of ByteLevel are Unicode's", () => {
    // The two bytes of U+0085, then a space and U+FEFF with what follows, are words of their own.
    const vocab = { Â: 0, ħ: 1, Ġ: 2, ï: 3, "»": 4, "¿": 5, x: 6, ħx: 7, ĠĠ: 8, Ġï: 9 };
    const merges = [
      ["Ġ", "Ġ"],
      ["Ġ", "ï"],
      ["ħ", "x"],
    ];
    const pre_tokenizer = { type: "ByteLevel", add_prefix_space: false };
    const tokenizer = new Tokenizer({ model: { type: "BPE", vocab, merges }, pre_tokenizer });
    expect(tokenizer.encode("\u0085x  \uFEFF")).toEqual([0, 1, 6, 2, 9, 4, 5]);
  });
});

describe("decode", () => {
  it("gives the text back exactly, spaces before punctuation included", () => {
    for (const text of ["Hello , world . It 's  we 've !", " lead", "trail ", "\n\n", "👩‍🚀 é 世界"])
      for (const tokenizer of [byteLevel, byteFallback])
        expect(tokenizer.decode(tokenizer.encode(text, { addSpecialTokens: false }))).toBe(text);
  });

  it("keeps the first space where Metaspace adds none", () => {
    const model = { type: "BPE", vocab: { "\u2581": 0, a: 1, "\u2581a": 2, "<0xC3>": 3, "<0xA9>": 4 }, merges: [] };
    const metaspace = (prepend_scheme: string) => ({ type: "Metaspace", replacement: "\u2581", prepend_scheme });
    const never = new Tokenizer({ model, decoder: metaspace("never") });
    expect(never.decode([2, 1, 0, 2])).toBe(" aa  a");
    const decoders = [metaspace("never"), { type: "ByteFallback" }];
    expect(new Tokenizer({ model, decoder: { type: "Sequence", decoders } }).decode([2, 3, 4])).toBe(" aé");
    expect(new Tokenizer({ model, decoder: metaspace("first") }).decode([2, 1, 0, 2])).toBe("aa  a");
  });

  it("decodes nothing to nothing, and only special tokens to nothing when they are skipped", () => {
    expect(byteLevel.decode([])).toBe("");
    expect(byteLevel.decode([id("<|bos|>"), id("<|end|>")], { skipSpecialTokens: true })).toBe("");
    expect(byteLevel.decode([id("<|bos|>"), id("hello")])).toBe("<|bos|>hello");
  });

  it("shows a split code point as U+FFFD", () => {
    expect(byteLevel.decode(byteLevel.encode("é世", { addSpecialTokens: false }).slice(0, -1))).toBe("é\uFFFD");
  });

  it("refuses ids out of range", () => {
    expect(byteLevel.vocabSize).toBe(Math.max(...byteLevelFile.added_tokens.map((t: { id: number }) => t.id)) + 1);
    for (const bad of [-1, byteLevel.vocabSize, 1.5, Number.NaN])
      expect(() => byteLevel.decode([0, bad])).toThrow(InvalidArgumentError);
    expect(() => byteLevel.decode([0, 99999])).toThrow("found 99999 at index 1");
  });
});

describe("special tokens", () => {
  it("come from added_tokens and the names in the configuration", () => {
    expect(byteLevel.isSpecial(id("<|user|>"))).toBe(true);
    expect(byteLevel.isSpecial(id("<think>"))).toBe(false);
    const named = new Tokenizer(byteLevelFile, { additional_special_tokens: ["<think>"], pad_token: "hello" });
    expect(named.isSpecial(id("<think>"))).toBe(true);
    expect(named.isSpecial(id("hello"))).toBe(false); // an ordinary token that pads stays readable
  });

  it("are null where the configuration is absent or names none", () => {
    expect(byteLevel.eos).toEqual({ text: "<|end|>", id: id("<|end|>") });
    expect(new Tokenizer(byteLevelFile).bos).toBeNull();
    expect(new Tokenizer(byteLevelFile, { eos_token: "" }).eos).toBeNull();
  });
});

describe("a file that is no tokenizer", () => {
  it.each([
    [null, "model.vocab"],
    ["text", "model.vocab"],
    [{ model: { type: "BPE" } }, "model.vocab"],
    [{ model: { type: "BPE", vocab: { a: 4e9 }, merges: [] } }, "found 4000000000"],
    [{ model: { type: "BPE", vocab: { a: "x" }, merges: [] } }, "found x"],
    [{ ...byteLevelFile, added_tokens: [{ id: 2 ** 32, content: "<x>" }] }, "<x>"],
    [{ ...byteLevelFile, added_tokens: 3 }, "added_tokens"],
    [{ ...byteLevelFile, decoder: { type: "Nonsense" } }, "Nonsense"],
    [{ model: { type: "BPE", vocab: { a: 0 } } }, "model.merges: expected a list but found nothing"],
  ])("is refused by name (%#)", (file, problem) => {
    const make = () => new Tokenizer(file, null, "some/tokenizer.json");
    expect(make).toThrow(InvalidFileError);
    expect(make).toThrow("some/tokenizer.json");
    expect(make).toThrow(problem);
  });
});
