/** Files that ask for work or memory without end, or are wrong, end with an error that names the file. */
import { describe, expect, it } from "vitest";
import { InvalidArgumentError, InvalidFileError, LimitError, LowbitError, UnsupportedError } from "../../errors.ts";
import { Tokenizer } from "../tokenizer.ts";

const vocab = { "<unk>": 0, a: 1, b: 2 };
const model = { type: "BPE", unk_token: "<unk>", vocab, merges: [] };
const make = (parts: object, limits = {}) => new Tokenizer({ model, ...parts }, null, "some/tokenizer.json", limits);
const split = (Regex: string) => ({
  pre_tokenizer: { type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false },
});
const replace = (from: string, content: string) => ({ type: "Replace", pattern: { String: from }, content });

describe("an encoding that does not end", () => {
  it.each(["(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*)*b", "((a*)*)*c", "(?:a?){40}a{40}", "(a+)+(?=b)"])(
    "of %s",
    (pattern) => {
      // A busy machine must not meet the limit of time first.
      const tokenizer = make(split(pattern), { seconds: 600 });
      const text = `${"a".repeat(60)}!`;
      const encode = () => tokenizer.encode(text);
      if (pattern.endsWith("{40}")) expect(encode().length).toBeGreaterThan(0);
      else expect(encode).toThrow(/some\/tokenizer.json: this tokenizer needs more than 1000 steps a character/);
    },
  );

  it("of a quadratic pattern ends, too", () => {
    const tokenizer = make(split("a+b"), { stepsPerCharacter: 100 });
    expect(() => tokenizer.encode("a".repeat(30_000))).toThrow(/needs more than 100 steps a character/);
  });

  it("may take the time that is set", () => {
    const tokenizer = make(split("(a+)+$"), { stepsPerCharacter: 1e9, seconds: 0.05 });
    expect(() => tokenizer.encode(`${"a".repeat(60)}!`)).toThrow(/needs more than 0.05 seconds/);
    tokenizer.limits = { stepsPerCharacter: 10 };
    expect(() => tokenizer.encode(`${"a".repeat(60)}!`)).toThrow(/needs more than 10 steps a character/);
    expect(() => make({}, { seconds: -1 })).toThrow(InvalidArgumentError);
    expect(() => make({}, { second: 1 })).toThrow(/expected seconds, stepsPerCharacter, growth but found second/);
  });
});

describe("a text that grows without end", () => {
  const doubling = Array.from({ length: 60 }, () => replace("a", "aa"));
  it("by normalizers or decoders is refused", () => {
    const normalizer = { type: "Sequence", normalizers: doubling };
    expect(() => make({ normalizer }).encode("a")).toThrow(/makes it more than 64 times longer/);
    const decoder = { type: "Sequence", decoders: doubling };
    expect(() => make({ decoder }).decode([1])).toThrow(LimitError);
    const prepend = { type: "Prepend", prepend: "a".repeat(10_000) };
    const many = { type: "Sequence", normalizers: Array.from({ length: 2000 }, () => prepend) };
    expect(() => make({ normalizer: many }).encode("a")).toThrow(LimitError);
  });

  it.each([
    ["length", { strategy: { Fixed: 2 ** 52 }, pad_to_multiple_of: null }],
    ["multiple", { strategy: "BatchLongest", pad_to_multiple_of: 2 ** 52 }],
  ])("by padding to a great %s is refused", (_, changes) => {
    const padding = { direction: "Right", pad_id: 0, pad_type_id: 0, pad_token: "x", ...changes };
    expect(() => make({ padding }).encode("a")).toThrow(LimitError);
  });

  it("by a template is refused", () => {
    const ids = new Array(1_000_000).fill(1);
    const special_tokens = { x: { id: "x", ids, tokens: [] } };
    const single = new Array(50).fill({ SpecialToken: { id: "x", type_id: 0 } });
    const post_processor = { type: "TemplateProcessing", single, pair: [], special_tokens };
    expect(() => make({ post_processor }).encode("a")).toThrow(LimitError);
  });
});

describe("long words", () => {
  it("are encoded in steps that grow with their length", () => {
    const merges = [["a", "b"]];
    const bpe = make({ model: { type: "BPE", vocab: { a: 0, b: 1, ab: 2 }, merges } });
    expect(bpe.encode("ab".repeat(60_000))).toHaveLength(60_000);
    const unigram = make({
      model: {
        type: "Unigram",
        vocab: [
          ["a", -1],
          ["a".repeat(40_000), -1],
        ],
      },
    });
    expect(() => unigram.encode(`${"a".repeat(39_999)}b`)).toThrow(LowbitError);
    const wordPiece = { type: "WordPiece", vocab, unk_token: "<unk>", max_input_chars_per_word: 1e9 };
    const words = make({ model: wordPiece }, { stepsPerCharacter: 100 });
    expect(() => words.encode("c".repeat(30_000))).toThrow(/needs more than 100 steps a character/);
  });
});

describe("a wrong file", () => {
  let nested: object = { type: "NFC" };
  for (let i = 0; i < 100; i++) nested = { type: "Sequence", normalizers: [nested] };
  it.each([
    [{ normalizer: nested }, "nested more than 32 deep"],
    [{ normalizer: 5 }, "normalizer: expected an object but found 5"],
    [{ normalizer: { type: "Strip" } }, "normalizer.strip_left: expected true or false but found nothing"],
    [{ normalizer: { type: "Precompiled", precompiled_charsmap: "AAA" } }, "normalizer.precompiled_charsmap"],
    [{ normalizer: { type: "Precompiled", precompiled_charsmap: "é" } }, "expected base64"],
    [{ normalizer: { type: "constructor" } }, '"constructor" is no normalizer'],
    [{ pre_tokenizer: { type: "FixedLength", length: 0 } }, "pre_tokenizer.length: expected a whole number from 1"],
    [{ pre_tokenizer: { type: "Sequence", pretokenizers: {} } }, "pre_tokenizer.pretokenizers: expected a list"],
    [{ decoder: { type: "Strip", content: "ab", start: 0, stop: 0 } }, "decoder.content: expected one character"],
    [
      { post_processor: { type: "BertProcessing", sep: ["a"], cls: ["a", 1] } },
      "post_processor.sep: expected a token and its id",
    ],
    [{ added_tokens: [{ id: 1, content: 3 }] }, "added_tokens[0].content: expected a string but found 3"],
    [
      { truncation: { max_length: -1, strategy: "LongestFirst", stride: 0 } },
      "truncation.max_length: expected a whole number from 0",
    ],
    [
      { truncation: { max_length: 5, strategy: "longest_first", stride: 0 } },
      "truncation.strategy: expected one of LongestFirst, OnlyFirst, OnlySecond",
    ],
    [{ padding: { strategy: "Longest" } }, "padding.strategy: expected an object"],
    [{ added_tokens: [null] }, "added_tokens[0]: expected an object"],
    [{ model: { ...model, merges: [["a", "c"]] } }, "model.merges[0]: expected tokens of the vocabulary"],
    [{ model: { ...model, merges: ["a"] } }, "model.merges[0]: expected two tokens"],
    [{ model: { ...model, fuse_unk: 1 } }, "model.fuse_unk: expected true or false but found 1"],
    [{ model: { type: "BPE", vocab: { a: -1 }, merges: [] } }, 'model.vocab: token "a": expected an id from 0'],
    [{ model: { type: "Unigram", vocab: [["a", "x"]] } }, "model.vocab[0]: expected a token and its score"],
    [{ model: { type: "Unigram", vocab: [["a", 1]], unk_id: 3 } }, "model.unk_id: expected a whole number from 0 to 0"],
  ])("is refused by name and field (%#)", (parts, problem) => {
    expect(() => make(parts)).toThrow(InvalidFileError);
    expect(() => make(parts)).toThrow("some/tokenizer.json: ");
    expect(() => make(parts)).toThrow(problem);
  });

  it("of so many levels that functions which call themselves end", () => {
    const deep = Array.from({ length: 20_000 }).reduce<unknown>((type) => ({ type }), null);
    for (const part of ["normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens", "truncation"])
      expect(() => make({ [part]: deep }), part).toThrow(InvalidFileError);
    // Fields that nobody reads may hold anything.
    expect(make({ decoder: { type: "Fuse", other: deep } }).isByteLevel).toBe(false);
    const decoders = [{ type: "Fuse" }, { type: "ByteLevel" }];
    expect(make({ decoder: { type: "Sequence", decoders, other: deep } }).isByteLevel).toBe(true);
    const config = { added_tokens_decoder: { 5: deep } };
    expect(() => new Tokenizer({ model }, config)).toThrow(/added_tokens_decoder: .* at 5 but found Object/);
  });

  it.each([
    [{ model: { ...model, dropout: 0.1 } }, "model.dropout: dropout, which makes tokens random, is not supported"],
    [split("\\X"), '"\\X" is not supported'],
    [split("(?<=a+)b"), "looking behind without a bound"],
    [split("(?~a)"), '"(?~" is not supported'],
    [split("(a"), 'expected ")"'],
    [split("(".repeat(5000)), "groups are nested more than 200 deep"],
    [split("(?:(?:(?:ab){1000}){1000}){1000}"), "it is too large"],
    [split("\\p{Nonsense}"), '"\\p{Nonsense}" is not supported'],
  ])("is refused where a part is not supported (%#)", (parts, problem) => {
    expect(() => make(parts)).toThrow(UnsupportedError);
    expect(() => make(parts)).toThrow("some/tokenizer.json: ");
    expect(() => make(parts)).toThrow(problem);
  });
});
