/**
 * GGUF files that others quantized, kept as stored: speed compared with node-llama-cpp on the same file, in turns, and with our
 * own 4-bit format; whether llama.cpp finds our greedy text likely, too; KL divergence of 8-bit activations.
 * `node bench/gguf-files.js <file.gguf …> --text english.txt [--parts programs,speed,greedy,divergence] [--rounds 5]` →
 * results/gguf-files.md, a section a part and file, so that they may be measured one by one.
 */
import { existsSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import {
  exportProgram,
  inspectProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadProgram,
  quantize,
  sharedEmbedding,
} from "../dist/index.js";
import { compareModels } from "../dist/tools/index.js";
import { alternate } from "./compare-parts.js";
import { EngineProcess } from "./engine-process.js";
import { folder } from "./make-model.js";
import { boundTable, gigabytesOfToken } from "./memory-bound.js";
import { CHUNK_LENGTH } from "./programs.js";
import { commit, digits, table, writeReport } from "./report.js";

const THREADS = 2;
const PROMPT = 256;
const DECODE = 48;
/** Tokens of the text that is compared. */
const COMPARED = 4000;
const CONTEXT = 2048;

const { values: options, positionals: files } = parseArgs({
  allowPositionals: true,
  options: {
    text: { type: "string" },
    parts: { type: "string", default: "programs,speed,greedy,divergence" },
    rounds: { type: "string", default: "5" },
    /** Forms whose divergence is measured: the file's weights with 8-bit activations, and requantized weights. */
    forms: { type: "string", default: "int8,8da4w" },
    /** Seconds to wait for a calm moment before each measurement. */
    patience: { type: "string", default: "2" },
  },
});
if (files.length === 0 || !options.text) {
  console.error("gguf-files: expected GGUF files, and --text with some pages of English");
  process.exit(2);
}
const text = readFileSync(options.text, "utf8");
const plan = { rounds: Number(options.rounds), patience: Number(options.patience), threads: [THREADS] };
mkdirSync(folder, { recursive: true });

/**
 * The program of a file, written when the file is newer: with its own weights for activations of a kind, or requantized.
 * @param {string} file @param {"int8" | "float" | "8da4w"} form
 */
async function programOf(file, form) {
  const path = join(folder, `${basename(file, ".gguf")}-${form}.pte`);
  if (existsSync(path) && statSync(path).mtimeMs > statSync(file).mtimeMs) return path;
  const model = await loadCheckpoint(file);
  if (form === "8da4w") {
    const four = { bits: 4, groupSize: 32, scaleDType: "f16" };
    const isTied = model.decoder.slots.some(({ tiedTo }) => tiedTo !== null);
    quantize(model, [int8DynamicActivationIntxWeight(four), ...(isTied ? [sharedEmbedding(four)] : [])]);
  } else model.activations = form;
  await exportProgram(model, path, { maxSeqLen: CHUNK_LENGTH });
  await model.close();
  return path;
}

/** @param {string} file */
async function engines(file) {
  const ours = async (/** @type {"int8" | "8da4w"} */ form) =>
    EngineProcess.start("ours", {
      path: await programOf(file, form),
      threads: THREADS,
      cache: { contextLength: CONTEXT },
    });
  return {
    kept: await ours("int8"),
    own: await ours("8da4w"),
    peer: await EngineProcess.start("peer-llama", { path: file, threads: THREADS }),
  };
}

/** Writes the programs that the other parts run, and says how large they are. @param {string} file */
async function programs(file) {
  const rows = [["the file", digits(statSync(file).size / 1e6), ""]];
  for (const form of /** @type {const} */ (["int8", "float", "8da4w"])) {
    const path = await programOf(file, form);
    const matrices = (await inspectProgram(path)).weights.filter(({ shape }) => shape.length > 1);
    const count = matrices.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
    const bytes = matrices.reduce((sum, { byteLength }) => sum + byteLength, 0);
    rows.push([
      form === "8da4w" ? form : `kept, ${form} activations`,
      digits(statSync(path).size / 1e6),
      digits((8 * bytes) / count),
    ]);
  }
  return table(["what", "MB", "bits a weight of a matrix"], rows);
}

/** Decode speed wanted, as a multiple of the peer's, if memory allows as much. */
const ASKED = 1.7;

/** @param {string} file */
async function speed(file) {
  const all = await engines(file);
  const { kept, own } = all;
  const ask = (/** @type {object} */ request, asked = all) =>
    alternate(plan, Object.fromEntries(Object.entries(asked).map(([name, engine]) => [name, { engine, request }])));
  await ask({ what: "prefill", tokens: PROMPT });
  const prefill = await ask({ what: "prefill", tokens: PROMPT });
  const decode = await ask({ what: "decode", tokens: DECODE, context: PROMPT });
  const memory = await ask({ what: "bandwidth" }, { kept, own });
  for (const engine of Object.values(all)) await engine.stop();
  const rate = (/** @type {Record<string, { value: number }>} */ found, count) =>
    Object.fromEntries(Object.entries(found).map(([name, { value }]) => [name, count / value]));
  const [read, written] = [rate(prefill, PROMPT), rate(decode, DECODE)];
  const decoding = async (/** @type {"kept" | "own"} */ name, /** @type {"int8" | "8da4w"} */ form) => ({
    bytes: await gigabytesOfToken(await programOf(file, form)),
    rate: written[name],
    memory: memory[name].value / 1e9,
  });
  const found = { kept: await decoding("kept", "int8"), own: await decoding("own", "8da4w") };
  const rows = Object.entries({ prompt: read, decode: written }).map(([name, found]) => [
    name,
    ...[found.kept, found.peer, found.kept / found.peer, found.own, found.kept / found.own].map(digits),
  ]);
  rows[0].push("");
  rows[1].push(digits((written.kept * found.kept.bytes) / (written.own * found.own.bytes)));
  const head = ["what", "kept", "node-llama-cpp", "times it", "8da4w g32", "times 8da4w", "bytes a second of 8da4w's"];
  return (
    `Tokens a second: a prompt of ${PROMPT}, and ${DECODE} tokens after it.\n\n${table(head, rows)}\n\n` +
    boundTable({ kept: found.kept, "8da4w g32": found.own }, { asked: ASKED, peer: written.peer })
  );
}

/** @param {Float32Array} logits */
const largest = (logits) => logits.indexOf(logits.reduce((most, logit) => Math.max(most, logit)));

/** @param {string} file */
async function greedy(file) {
  const model = await loadProgram(await programOf(file, "int8"), { threads: THREADS, contextLength: CONTEXT });
  const prompt = model.tokenizer.encode(text.slice(0, 600)).slice(0, 100);
  const decoder = model.createDecoder();
  const tokens = [largest(await decoder.prefill(prompt))];
  while (tokens.length < DECODE) tokens.push(largest(await decoder.step(tokens.at(-1))));
  await model.dispose();
  const peer = await EngineProcess.start("peer-llama", { path: file, threads: THREADS });
  const ranks = await peer.ask({ what: "ranks", prompt, tokens });
  await peer.stop();
  const within = (/** @type {number} */ most) => ranks.filter((rank) => rank < most).length;
  const row = [ranks.length, within(1), within(2), Math.max(...ranks) + 1].map(String);
  return table(["greedy tokens", "likeliest for llama.cpp", "among its two likeliest", "worst place"], [row]);
}

/** @param {string} file */
async function divergence(file) {
  const rows = [];
  const load = async (/** @type {"int8" | "float" | "8da4w"} */ form) =>
    loadProgram(await programOf(file, form), { threads: THREADS, contextLength: CONTEXT });
  const reference = await load("float");
  for (const form of /** @type {("int8" | "8da4w")[]} */ (options.forms.split(","))) {
    const model = await load(form);
    const found = await compareModels(model, reference, text, { maxTokens: COMPARED, window: 512 });
    await model.dispose();
    const { mean, percentile99 } = found.divergence;
    const figures = [mean, percentile99, 100 * found.topAgreement, found.perplexity, found.referencePerplexity];
    rows.push([form === "int8" ? "kept" : form, ...figures.map(digits)]);
  }
  await reference.dispose();
  const head = ["weights", "mean KL", "99 % under", "same likeliest, %", "perplexity", "with float activations"];
  return (
    `On ${COMPARED} tokens of English, against the file's own weights with float activations; ` +
    `divergence in nats a token. "8da4w": requantized, for comparison.\n\n${table(head, rows)}`
  );
}

const parts = {
  programs: { title: "Sizes", measure: programs },
  speed: { title: "Speed", measure: speed },
  greedy: { title: "Greedy text", measure: greedy },
  divergence: { title: "8-bit activations", measure: divergence },
};
for (const name of options.parts.split(",")) {
  const part = parts[name];
  if (!part) throw new RangeError(`part "${name}": expected some of ${Object.keys(parts).join(", ")}`);
  for (const file of files) {
    const section = `## ${part.title}: ${basename(file)}\n\n${await part.measure(file)}`;
    writeReport("gguf-files", {
      title: "GGUF files of others",
      command: "node bench/gguf-files.js",
      isPartial: true,
      sections: [
        "Weights are kept as stored, for 8-bit activations; 2 threads. Engines are asked in turn; medians of the calmer half of the rounds.",
        `${section}\n\nMeasured on commit ${commit()}, ${new Date().toISOString().slice(0, 10)}.`,
      ],
    });
  }
}
