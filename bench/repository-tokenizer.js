/** Makes a tokenizer with a vocabulary of the size of Llama 3's, if no model's tokenizer is at hand. */
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { toByteCharacters } from "../dist/text/tokenizer/byte-alphabet.js";
import { Tokenizer } from "../dist/text/tokenizer.js";

export const VOCABULARY = 128_256;
const root = fileURLToPath(new URL("..", import.meta.url));

/**
 * A tokenizer.json with a vocabulary of the words of this repository, with and without spaces, their pieces, and runs of signs,
 * and its tokenizer_config.json.
 */
export function repositoryTokenizerFiles() {
  const tokens = new Map();
  const add = (text) => {
    const token = toByteCharacters(text);
    if (tokens.size < VOCABULARY - 1 && token !== "" && !tokens.has(token)) tokens.set(token, tokens.size);
  };
  for (let byte = 0; byte < 128; byte++) add(String.fromCharCode(byte));
  for (let point = 128; point < 0x800; point++) add(String.fromCharCode(point));
  const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter(
    (name) =>
      /^(src|docs|native|test|scripts|models)\/.*\.(ts|md|cc|h|js|py|txt|json)$/.test(name) &&
      !/node_modules/.test(name),
  );
  const pieces = new Set();
  for (const name of files.sort())
    for (const [text] of readFileSync(root + name, "utf8").matchAll(
      / ?[A-Za-z]{1,20}| ?[0-9]{1,3}| ?[^\sA-Za-z0-9]{1,6}|\s{1,8}/g,
    )) {
      add(text);
      for (let end = 2; end < text.length; end++) pieces.add(text.slice(0, end)).add(text.slice(-end));
    }
  for (const piece of pieces) add(piece);
  for (let i = 0; tokens.size < VOCABULARY - 1; i++) add(`w${i.toString(36)}`);
  const vocab = Object.fromEntries(tokens);
  const added = [{ id: tokens.size, content: "<|end|>", special: true }];
  const model = { type: "BPE", vocab, merges: [] };
  const file = { model, added_tokens: added, decoder: { type: "ByteLevel" } };
  return { file, config: { eos_token: "<|end|>" } };
}

/** The tokenizer of these files. */
export function repositoryTokenizer() {
  const { file, config } = repositoryTokenizerFiles();
  return new Tokenizer(file, config);
}
