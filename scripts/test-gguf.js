/**
 * `npm run test:gguf [-- checkpoint [prompt]]`: writes a checkpoint as GGUF files of each type, loads them in node-llama-cpp
 * and here, and compares the greedy texts. Default: the demo model. Needs the peers: npm install in bench/.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { loadCheckpoint, loadCompiled } from "../dist/index.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const [checkpoint = join(root, "models", "shakespeare"), prompt = "ROMEO:\nWhat"] = process.argv.slice(2);
const TOKENS = 48;

const bench = join(root, "bench", "node_modules", "node-llama-cpp");
if (!existsSync(bench)) throw new Error("node-llama-cpp is not installed: run npm install in bench/");
const resolved = createRequire(join(root, "bench", "package.json")).resolve("node-llama-cpp");
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(resolved).href);

const types = {
  float: [],
  Q8_0: ["--qmode", "wo8w", "--group-size", "32", "--shared-embedding", "8,32,symmetric"],
  Q4_0: ["--qmode", "wo4w", "--group-size", "32", "--shared-embedding", "4,32,symmetric"],
  Q4_1: ["--qmode", "wo4w", "--group-size", "32", "--mapping-type", "asymmetric", "--shared-embedding", "4,32"],
};

/** Greedy text of llama.cpp. @param {string} path */
async function textOfLlama(llama, path) {
  const model = await llama.loadModel({ modelPath: path });
  const context = await model.createContext({ contextSize: 256, threads: 2 });
  const sequence = context.getSequence();
  const tokens = [];
  const start = model.tokenize(prompt, false);
  if (model.tokens.shouldPrependBosToken && model.tokens.bos !== null) start.unshift(model.tokens.bos);
  for await (const token of sequence.evaluate(start, { temperature: 0 })) {
    tokens.push(token);
    if (tokens.length === TOKENS) break;
  }
  const text = model.detokenize(tokens);
  await model.dispose();
  return { text, tokens: tokens.map(Number) };
}

/** Greedy text of ours. @param {string} path */
async function textHere(path) {
  const model = await loadCheckpoint(path);
  const llm = await loadCompiled(model, { maxContextLen: 256 });
  let text = "";
  for await (const piece of llm.generate(prompt, { maxTokens: TOKENS, temperature: 0 })) text += piece;
  await model.close();
  return text;
}

const folder = mkdtempSync(join(tmpdir(), "lowbit-gguf-"));
let failures = 0;
try {
  const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error });
  for (const [name, options] of Object.entries(types)) {
    const path = join(folder, `${name}.gguf`);
    const main = join(root, "dist", "cli", "main.js");
    execFileSync(process.execPath, [main, "quantize", checkpoint, ...options, "--format", "gguf", "-o", path]);
    const [theirs, ours] = [await textOfLlama(llama, path), await textHere(path)];
    const same = theirs.text === ours;
    if (!same) failures++;
    console.log(`${name}: ${same ? "the same text" : "other texts"}: ${JSON.stringify(ours)}`);
    if (!same) console.log(`  llama.cpp: ${JSON.stringify(theirs.text)}`);
  }
} finally {
  rmSync(folder, { recursive: true });
}
process.exit(failures > 0 ? 1 : 0);
