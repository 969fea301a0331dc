/** Tokenizer files with changed fields and components of every type; each encodes and decodes some texts. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import type { Random } from "../support/random.ts";
import type { Fuzzer } from "./child.ts";
import { changeJson, jsonText } from "./json-changes.ts";

const files = [
  "../../src/text/byte-level-tokenizer.json.golden",
  "../../src/text/byte-fallback-tokenizer.json.golden",
  "../../models/shakespeare/tokenizer.json",
];

const patterns = [
  "a",
  " ",
  "\\s+",
  "(a+)+$",
  "(?:x+x+)+y",
  "\\p{N}{1,3}",
  "(?i:'s|'t)",
  "[^\\s]*",
  "",
  "(?=a)",
  "(.|.)*b",
];
const behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous", "Other"];

/** Components as they stand in tokenizer.json, with patterns and texts of any cost. */
function components(random: Random): unknown[] {
  const pattern = random.next() < 0.5 ? { Regex: random.pick(patterns) } : { String: random.pick(patterns) };
  const content = random.pick(["", "b", "aa", "a".repeat(1000), "▁"]);
  const behavior = random.pick(behaviors);
  const one = [
    { type: "Replace", pattern, content },
    { type: "Prepend", prepend: content },
    { type: "Strip", strip_left: true, strip_right: true, content: "a", start: 1e9, stop: 1 },
    { type: "NFKC" },
    { type: "Nmt" },
    { type: "StripAccents" },
    { type: "Lowercase" },
    { type: "Precompiled", precompiled_charsmap: "AAAA" },
    { type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase: true },
    { type: "Split", pattern, behavior, invert: random.next() < 0.5 },
    { type: "Digits", individual_digits: true },
    { type: "Punctuation", behavior },
    { type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: true },
    { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    { type: "WhitespaceSplit" },
    { type: "CharDelimiterSplit", delimiter: "a" },
    { type: "WordPiece", prefix: "##", cleanup: true },
    { type: "CTC", pad_token: "<pad>", word_delimiter_token: "|", cleanup: true },
    { type: "ByteFallback" },
    { type: "Fuse" },
    {
      type: "TemplateProcessing",
      single: Array.from({ length: random.pick([1, 10_000]) }, () => ({ Sequence: { id: "A", type_id: 0 } })),
      pair: [],
      special_tokens: { "<s>": { id: "<s>", ids: [1, 2, 1e9], tokens: ["<s>"] } },
    },
  ];
  const part = () => random.pick(one);
  const sequence = Array.from({ length: random.pick([1, 3, 40]) }, part);
  return [
    ...one,
    { type: "Sequence", normalizers: sequence, pretokenizers: sequence, processors: sequence, decoders: sequence },
    {
      id: 5,
      content: random.pick(["a", " ", "", "<s>"]),
      single_word: true,
      lstrip: true,
      rstrip: true,
      normalized: true,
      special: false,
    },
    { type: "WordPiece", vocab: { a: 0, "##b": 1, "[UNK]": 2 }, unk_token: "[UNK]", max_input_chars_per_word: 1e9 },
    { type: "WordLevel", vocab: { a: 0, "<unk>": 1 }, unk_token: "<unk>" },
    {
      type: "Unigram",
      vocab: [
        ["<unk>", 0],
        ["a", -1],
        ["aa", -1e300],
      ],
      unk_id: 0,
      byte_fallback: true,
    },
    { type: "BPE", vocab: { a: 0, b: 1, ab: 2 }, merges: ["a b", ["a", "b"]], byte_fallback: true, fuse_unk: true },
  ];
}

const places = ["normalizer", "pre_tokenizer", "post_processor", "decoder", "model"] as const;

export const fuzzTokenizers: Fuzzer = async (keep) => {
  const bases = await Promise.all(
    files.map(async (path) => JSON.parse(await readFile(new URL(path, import.meta.url), "utf8")) as object),
  );
  return async (random, seed) => {
    const values = components(random);
    const whole = { ...random.pick(bases) } as Record<string, unknown>;
    for (const place of places) if (random.next() < 0.2) whole[place] = random.pick(values);
    const source = jsonText(random.next() < 0.8 ? changeJson(whole, random, values) : whole);
    if (keep !== null) await writeFile(join(keep, `tokenizers-${seed}.json`), source);
    const tokenizer = new Tokenizer(JSON.parse(source || "null") as never, null as never);
    tokenizer.limits = { seconds: 4 };
    const text = textOf(random);
    const ids = tokenizer.encode(text, { allowControlTokens: random.next() < 0.5 });
    tokenizer.decode(ids);
    tokenizer.decode([0, 1, 2, 3, 5]);
  };
};

/** Texts that patterns and merges are slow with, and honest ones. */
function textOf(random: Random): string {
  const piece = random.pick(["a", "x", " ", "To be, or not to be. ", "é", "👩‍🚀", "\u0000", "1", "\n", "<s>", "ab"]);
  return `${piece.repeat(random.pick([1, 30, 3000]))}${random.pick(["", "!", "y", "\ud800"])}`;
}
