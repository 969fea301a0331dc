/**
 * `node scripts/goldens/gguf-vocabularies.js model.gguf ...`: compares the tokenizers of real GGUF files with those that
 * gguf-vocabularies.py makes of gguf's strings and Rust's rules: every token, its decoded text and the ids of that, and the
 * ids of 80,000 code points, and what they decode to. `--golden` writes src/formats/gguf/vocabularies.json.golden instead.
 * PYTHON names a Python with the packages gguf and tokenizers.
 */
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { openGguf } from "../../dist/formats/gguf/open.js";
import { Tokenizer } from "../../dist/text/tokenizer.js";

const CODE_POINTS = 80_000;
const files = process.argv.slice(2).filter((argument) => !argument.startsWith("--"));
const golden = process.argv.includes("--golden");

/** The lines that the Python script writes. @param {readonly string[]} options */
async function* oracle(...options) {
  const script = new URL("gguf-vocabularies.py", import.meta.url).pathname;
  const child = spawn(process.env.PYTHON ?? "python3", [script, ...files, ...options], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => child.on("close", resolve));
  for await (const line of createInterface({ input: child.stdout })) yield JSON.parse(line);
  const code = await ended;
  if (code !== 0) throw new Error(`gguf-vocabularies.py ended with ${code}`);
}

/** Counts what differs. @param {string} what @param {readonly unknown[]} expected @param {(i: number) => unknown} find */
function compare(what, expected, find) {
  let differing = 0;
  for (const [i, wanted] of expected.entries()) {
    const found = find(i);
    if (JSON.stringify(found) === JSON.stringify(wanted)) continue;
    if (differing++ < 3)
      console.log(`  ${what} ${i}: expected ${JSON.stringify(wanted)} but found ${JSON.stringify(found)}`);
  }
  console.log(`  ${what}: ${expected.length - differing} of ${expected.length} same`);
  return differing;
}

let failures = 0;
if (golden) {
  const kinds = [];
  for await (const kind of oracle("--golden")) kinds.push(kind);
  const origin =
    "scripts/goldens/gguf-vocabularies.py (gguf 0.19.0, tokenizers 0.23.3): parts of the vocabularies of real files";
  const path = new URL("../../src/formats/gguf/vocabularies.json.golden", import.meta.url);
  writeFileSync(path, JSON.stringify({ origin, kinds }));
} else {
  const characters = Array.from({ length: CODE_POINTS }, (_, i) => String.fromCodePoint(i < 0xd800 ? i : i + 0x800));
  for await (const { file, tokens, decoded, ids, characters: alone, within, texts } of oracle()) {
    console.log(file);
    const checkpoint = await openGguf(file);
    const own = new Tokenizer(checkpoint.tokenizerJson.value, checkpoint.tokenizerConfig.value);
    const encode = (text) => own.encode(text, { addSpecialTokens: false });
    failures += compare("token", tokens, (id) => own.idToToken(id));
    failures += compare("text of token", decoded, (id) => own.decode([id]));
    failures += compare("ids of the text of token", ids, (id) => encode(decoded[id]));
    failures += compare("ids of code point", alone, (i) => encode(characters[i]));
    const around = (character) => `a${character} ${character}${character}b`;
    failures += compare("ids of code point in a text", within, (i) => encode(around(characters[i])));
    failures += compare("text of code point", texts, (i) => own.decode(alone[i]));
    await checkpoint.close();
  }
}
process.exit(failures > 0 ? 1 : 0);
