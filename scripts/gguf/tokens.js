/**
 * Part of `npm run test:gguf`: compares our tokens of random texts with llama.cpp's, for GGUF files with each kind of tokenizer
 * and each name of a pre-tokenizer, with the special tokens around a text and those that end one.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { memorySource } from "../../dist/byte-source.js";
import { readGgufHeader } from "../../dist/formats/gguf/header.js";
import { GgufMetadata } from "../../dist/formats/gguf/metadata.js";
import { preTokenizerNames } from "../../dist/formats/gguf/pretokenizers.js";
import { ggufTokenizer } from "../../dist/formats/gguf/tokenizer.js";
import { tokenizerMetadata } from "../../dist/formats/gguf/write-tokenizer.js";
import { writeGguf } from "../../dist/formats/gguf/writer.js";
import { Tokenizer } from "../../dist/text/tokenizer.js";

const TEXTS = 300;
/**
 * Names whose tokenizer.json llama.cpp only approximates, which is followed here: for llama.cpp, no letter beyond ASCII has a
 * case and marks are no letters, and what stands before a number may be cut with its first digits.
 */
const APPROXIMATED = [
  "gpt-4o",
  "llama4",
  "kanana2",
  "talkie",
  "minimax-m2",
  "tekken",
  "tiny_aya",
  "cohere2moe",
  "afmoe",
];
/** Most texts that may differ for them. */
const APPROXIMATED_MAX = TEXTS / 10;

/** Whole numbers below a limit, the same in each run. @param {number} seed */
function randomOf(seed) {
  let state = seed;
  return (/** @type {number} */ limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

const PIECES = [
  ..."abcdefgXYZ0123456789 .,;:!?'\"()[]{}<>/\\|@#$%^&*-_=+~`\n\t",
  ...["  ", "    ", "\n\n", "\r\n", " \n", "'s", "'LL", "I'm", " the", "The ", "and", " 2026", "12345", "1,000"],
  ...["ö", "É", "ß", "Ωμ", "жук", "漢字", "ひらがな", "カナ", "한국어", "😀", "…", "“x”", "½", "²", "٣"],
  ...["e\u0301", "\u00a0", "\u3000", "\u200b", "ﬁ", "🇩🇪"],
];

/** @param {number} seed @param {readonly string[]} pieces */
function texts(seed, pieces) {
  const random = randomOf(seed);
  return Array.from({ length: TEXTS }, () =>
    Array.from({ length: 1 + random(12) }, () => pieces[random(pieces.length)]).join(""),
  );
}

/** Characters that stand for bytes in byte-level tokenizers. */
const BYTES = Array.from({ length: 256 }, (_, byte) => byte).reduce(
  ({ characters, next }, byte) => {
    const printable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return {
      characters: [...characters, String.fromCodePoint(printable ? byte : next)],
      next: printable ? next : next + 1,
    };
  },
  { characters: /** @type {string[]} */ ([]), next: 256 },
).characters;

/**
 * A byte-level tokenizer of the same random texts, never cut while it learned: its merges reach across words of every kind,
 * so that tokens tell where a pre-tokenizer cuts. @param {object} like A tokenizer.json to take the other parts of.
 */
function trained(like) {
  const encoder = new TextEncoder();
  let words = texts(3, PIECES).map((text) => Array.from(encoder.encode(text), (byte) => BYTES[byte]));
  const merges = [];
  while (merges.length < 700) {
    const counts = new Map();
    for (const word of words)
      for (let i = 1; i < word.length; i++) {
        const pair = `${word[i - 1]} ${word[i]}`;
        counts.set(pair, (counts.get(pair) ?? 0) + 1);
      }
    const [best] = [...counts].reduce((most, entry) => (entry[1] > most[1] ? entry : most));
    const [left, right] = best.split(" ");
    merges.push([left, right]);
    words = words.map((word) => {
      const joined = [];
      for (const part of word)
        if (joined.at(-1) === left && part === right) joined[joined.length - 1] = left + right;
        else joined.push(part);
      return joined;
    });
  }
  const tokens = [...new Set(["<begin>", "<end>", ...BYTES, ...merges.map((pair) => pair.join(""))])];
  const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]));
  const control = ["<begin>", "<end>"].map((content, id) => ({ id, content, special: true }));
  return { ...like, added_tokens: control, model: { ...like.model, vocab, merges } };
}

/** Metadata of a tokenizer.json, with some entries in place of its own. */
function entriesOf(tokenizer, changes = {}) {
  const vocabularySize = Object.keys(tokenizer.model.vocab).length + (tokenizer.added_tokens?.length ?? 0);
  const entries = tokenizerMetadata({
    ...{ file: "tokenizer.json", modelName: "test", tokenizer, chatTemplate: null, bosId: 0, eosId: 1, vocabularySize },
  });
  for (const [key, value] of Object.entries(changes))
    if (value === null) entries.delete(`tokenizer.ggml.${key}`);
    else entries.set(`tokenizer.ggml.${key}`, value);
  entries.set("general.architecture", { type: "string", value: "llama" });
  for (const name of ["context_length", "embedding_length", "block_count", "attention.head_count"])
    entries.set(`llama.${name}`, { type: "u32", value: 1 });
  entries.set("llama.attention.layer_norm_rms_epsilon", { type: "f32", value: 1e-5 });
  return entries;
}

/** Compares one file; returns what is said of it, and whether it is the same. */
async function compare(llama, path, entries, pieces) {
  await writeGguf(path, entries, []);
  const bytes = readFileSync(path);
  const header = await readGgufHeader(memorySource(path, bytes));
  const found = ggufTokenizer(new GgufMetadata(path, header.metadata));
  const own = new Tokenizer(found.tokenizer, found.config);
  const model = await llama.loadModel({ modelPath: path, vocabOnly: true });
  const differing = texts(7, pieces).filter(
    (text) => String(own.encode(text, { addSpecialTokens: false })) !== String(model.tokenize(text, false)),
  );
  const ends = Array.from({ length: own.vocabSize }, (_, id) => id).filter((id) => model.isEogToken(id));
  const begins = own.encode("a").length > own.encode("a", { addSpecialTokens: false }).length;
  const facts =
    begins === model.tokens.shouldPrependBosToken && String(ends) === String([...found.eosIds].sort((a, b) => a - b));
  await model.dispose();
  const example = differing[0] === undefined ? "" : `, such as ${JSON.stringify(differing[0])}`;
  const said = `${differing.length} of ${TEXTS} texts differ${example}${facts ? "" : "; begin or end tokens DIFFER"}`;
  return { said, differing: differing.length, facts };
}

/** Number of kinds that differ. @param {string} root @param {string} folder */
export async function compareTokens(llama, root, folder) {
  const json = (...names) => JSON.parse(readFileSync(join(root, ...names), "utf8"));
  const words = json("models", "shakespeare", "tokenizer.json");
  const pieces = json("src", "text", "byte-fallback-tokenizer.json.golden");
  const crossing = trained(words);
  const string = (value) => ({ type: "string", value });
  const kinds = [
    ["SentencePiece", entriesOf(pieces)],
    ["SentencePiece without prefix", entriesOf(pieces, { add_space_prefix: { type: "bool", value: false } })],
    ["byte-level", entriesOf(words)],
    ["no pre-tokenizer", entriesOf(crossing, { pre: null, add_bos_token: null })],
    ...preTokenizerNames.map((name) => [name, entriesOf(crossing, { pre: string(name), add_bos_token: null })]),
  ];
  let [failures, exact] = [0, 0];
  for (const [name, entries] of kinds) {
    const { said, differing, facts } = await compare(llama, join(folder, "tokens.gguf"), entries, PIECES);
    const same = facts && differing <= (APPROXIMATED.includes(name) ? APPROXIMATED_MAX : 0);
    if (!same) failures++;
    if (same && differing === 0) exact++;
    if (!same || differing > 0) console.log(`tokens of ${name}: ${same ? "" : "WRONG: "}${said}`);
  }
  console.log(`tokens of ${kinds.length} kinds of tokenizers: ${exact} as llama.cpp's, ${failures} wrong`);
  return failures;
}

/** What src/formats/gguf/llama-tokens.json.golden holds: llama.cpp's tokens of some texts, by the names of pre-tokenizers. */
export async function goldenTokens(llama, root, folder) {
  const words = JSON.parse(readFileSync(join(root, "models", "shakespeare", "tokenizer.json"), "utf8"));
  const tokenizer = trained(words);
  const some = texts(11, PIECES).slice(0, 12);
  const tokens = {};
  for (const name of preTokenizerNames) {
    const path = join(folder, "golden.gguf");
    await writeGguf(path, entriesOf(tokenizer, { pre: { type: "string", value: name }, add_bos_token: null }), []);
    const model = await llama.loadModel({ modelPath: path, vocabOnly: true });
    const ids = some.map((text) => model.tokenize(text, false).map(Number));
    tokens[name] = { bos: model.tokens.shouldPrependBosToken, ids };
    await model.dispose();
  }
  const byFacts = new Map();
  for (const [name, facts] of Object.entries(tokens)) {
    const key = JSON.stringify(facts);
    byFacts.set(key, { ...facts, names: [...(byFacts.get(key)?.names ?? []), name] });
  }
  const { vocab, merges } = tokenizer.model;
  return {
    origin: "llama.cpp's tokens of a tokenizer learned by scripts/gguf/tokens.js (node-llama-cpp 3.22.1)",
    ...{
      tokens: Object.keys(vocab).sort((a, b) => vocab[a] - vocab[b]),
      merges: merges.map((pair) => pair.join(" ")),
      texts: some,
      approximated: APPROXIMATED,
      kinds: [...byFacts.values()],
    },
  };
}
