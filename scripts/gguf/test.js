/**
 * `npm run test:gguf [-- checkpoint [prompt]]`: writes a checkpoint as GGUF files of each type, lets node-llama-cpp write a
 * greedy text with each, and checks that each of its tokens has the largest of our logits for the same file, or nearly so:
 * llama.cpp rounds activations to 8 bits if weights are quantized, ours are floats. Default: the demo model.
 * Then tests tokens of random texts (tokens.js) and logits of tiny models of other architectures (models.js).
 * `-- --short` leaves most types and models out; `-- --golden` writes llama-tokens.json.golden, which tests compare with, in
 * place of all that. Needs the peers: npm install in bench/.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { loadCheckpoint, loadCompiled } from "../../dist/index.js";
import { compareModels } from "./models.js";
import { compareTokens, goldenTokens } from "./tokens.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const flag = /** @type {const} */ ({ type: "boolean", default: false });
const {
  values: { golden, short },
  positionals: [checkpoint = join(root, "models", "shakespeare"), prompt = "JULIET:\nO"],
} = parseArgs({ options: { golden: flag, short: flag }, allowPositionals: true });
const TOKENS = 48;
/** Most that llama.cpp's choice may lack to ours, in logits: what float sums in another order change, and 8-bit activations. */
const MARGINS = { float: 0.01, quantized: 0.1 };

const bench = join(root, "bench", "node_modules", "node-llama-cpp");
if (!existsSync(bench)) throw new Error("node-llama-cpp is not installed: run npm install in bench/");
const resolved = createRequire(join(root, "bench", "package.json")).resolve("node-llama-cpp");
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(resolved).href);

const types = {
  float: [],
  Q8_0: ["--qmode", "wo8w", "--group-size", "32", "--shared-embedding", "8,32,symmetric"],
  Q4_0: ["--qmode", "wo4w", "--group-size", "32", "--shared-embedding", "4,32,symmetric"],
  Q4_K: ["--gguf-type", "Q4_K"],
  Q5_K: ["--gguf-type", "Q5_K"],
  Q6_K: ["--gguf-type", "Q6_K"],
  Q5_0: [
    "--qmode",
    "wo4w",
    "--group-size",
    "32",
    "--mapping-type",
    "asymmetric",
    "--shared-embedding",
    "4,32,asymmetric",
  ],
};

/** Of `--short`: types of files, and models, one of them recurrent and one with experts. */
const SHORT_TYPES = ["float", "Q4_K"];
const SHORT_MODELS = ["llama", "qwen35", "qwen3moe"];

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
  return { text, start: start.map(Number), tokens: tokens.map(Number) };
}

/**
 * How far our logits prefer other tokens than llama.cpp chose, along its text: `others` tokens are not our first, and
 * `margin` is what the worst of them lacks to it. @param {string} path @param {number[]} start @param {number[]} tokens
 */
async function compareHere(path, start, tokens) {
  const model = await loadCheckpoint(path);
  const llm = await loadCompiled(model, { contextLength: 256 });
  const decoder = llm.createDecoder();
  let logits = await decoder.prefill(start);
  let [others, margin] = [0, 0];
  for (const token of tokens) {
    const lack = logits.reduce((most, value) => Math.max(most, value)) - logits[token];
    if (lack > 0) others++;
    margin = Math.max(margin, lack);
    logits = await decoder.step(token);
  }
  await decoder.dispose();
  await llm.dispose();
  await model.close();
  return { others, margin };
}

const folder = mkdtempSync(join(tmpdir(), "lowbit-gguf-"));
let failures = 0;
try {
  const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error });
  if (golden)
    writeFileSync(
      join(root, "src", "formats", "gguf", "llama-tokens.json.golden"),
      JSON.stringify(await goldenTokens(llama, root, folder)),
    );
  const names = short ? SHORT_TYPES : Object.keys(types);
  for (const name of golden ? [] : names) {
    const path = join(folder, `${name}.gguf`);
    const main = join(root, "dist", "cli", "main.js");
    execFileSync(process.execPath, [main, "quantize", checkpoint, ...types[name], "--format", "gguf", "-o", path]);
    const { text, start, tokens } = await textOfLlama(llama, path);
    const { others, margin } = await compareHere(path, start, tokens);
    const same = margin <= (name === "float" ? MARGINS.float : MARGINS.quantized);
    if (!same) failures++;
    const found =
      others === 0
        ? `all ${TOKENS} tokens are our first choice`
        : `${others} of ${TOKENS} tokens are not our first choice, by at most ${margin.toFixed(3)} in logits`;
    console.log(`${name}: ${same ? "" : "WRONG: "}${found}: ${JSON.stringify(text)}`);
  }
  // Files of a tokenizer alone have no tensors, which llama.cpp reports as an error and reads all the same.
  llama.logLevel = LlamaLogLevel.disabled;
  if (!golden) failures += await compareTokens(llama, root, folder);
  llama.logLevel = LlamaLogLevel.error;
  if (!golden) failures += await compareModels(llama, root, folder, short ? SHORT_MODELS : undefined);
} finally {
  rmSync(folder, { recursive: true });
}
process.exit(failures > 0 ? 1 : 0);
