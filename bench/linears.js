/**
 * Accuracy of quantized linear layers at equal bits, with float embedding table and head: KL divergence of the twins of real
 * models, with matrices quantized by us or rounded to a type of llama.cpp by its own code, from the twins themselves, on text
 * that nothing was fitted to.
 * `node bench/linears.js [--models smollm2,qwen,gemma] [--tokens 8000] [--texts prose,code] [--only Q4_K] [--keep]` →
 * results/linears.md, where rows of earlier runs stay
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { f32ToF16 } from "../dist/half.js";
import { loadCheckpoint, saveGguf } from "../dist/index.js";
import { toFloat32 } from "../dist/tensor.js";
import { folder, importanceFile, linearName, llamaPlace, modelFiles, texts } from "./accuracy-files.js";
import { divergenceHead, divergenceRows, quantizeTwin } from "./accuracy-measure.js";
import { rowsBefore, table, writeReport } from "./report.js";

const { values: options } = parseArgs({
  options: {
    models: { type: "string", default: "smollm2,qwen,gemma" },
    texts: { type: "string", default: "prose,code" },
    tokens: { type: "string", default: "8000" },
    /** Rows of these names, or whose names have one of these in them, with ; between. */
    only: { type: "string", default: "" },
    /** Takes files of an earlier run. */
    keep: { type: "boolean", default: false },
  },
});

/** ggml's numbers of types, and their bits a weight. */
const PEERS = {
  Q4_K: [12, 4.5],
  IQ4_XS: [23, 4.25],
  IQ3_S: [21, 3.4375],
  Q3_K: [11, 3.4375],
  Q2_K: [10, 2.625],
  IQ2_S: [22, 2.5625],
};
const byGptq = ["--algorithm", "gptq", "--calibrate", "{calibration}"];
const bySelf = ["--algorithm", "gptq", "--calibrate", "self"];
const bits = (/** @type {number} */ n, /** @type {string[]} */ ...more) => [
  "--qmode",
  `wo${n}w`,
  "--scale-dtype",
  "i8",
  ...more,
];
/** Our rows: bits a weight, and options. */
const OURS = {
  "4 bits f16 g32, no text": [4.5, ["--qmode", "wo4w", "--scale-dtype", "f16", "--group-size", "32"]],
  "4 bits g16, no text": [4.5625, bits(4, "--group-size", "16")],
  "4 bits f16 g32, gptq": [4.5, ["--qmode", "wo4w", "--scale-dtype", "f16", "--group-size", "32", ...byGptq]],
  "4 bits f16 g32, gptq self": [4.5, ["--qmode", "wo4w", "--scale-dtype", "f16", "--group-size", "32", ...bySelf]],
  "4 bits g32, gptq": [4.3125, bits(4, ...byGptq)],
  "3 bits g16, gptq": [3.5625, bits(3, "--group-size", "16", "--mapping-type", "kmeans", ...byGptq)],
  "3 bits g32, gptq": [3.3125, bits(3, "--mapping-type", "kmeans", ...byGptq)],
  "3 bits g32, gptq self": [3.3125, bits(3, "--mapping-type", "kmeans", ...bySelf)],
  "2 bits g16, gptq": [2.5625, bits(2, "--group-size", "16", "--mapping-type", "kmeans", ...byGptq)],
};
/** ggml's types have blocks of as many weights of a row. */
const BLOCK = 256;

const program = join(folder, "llama-type");
function build() {
  mkdirSync(folder, { recursive: true });
  const source = fileURLToPath(new URL("llama-type.cc", import.meta.url));
  if (!existsSync(program))
    execFileSync("c++", ["-O1", "-std=c++17", source, "-o", program, "-ldl"], { stdio: "inherit" });
}

/** Rows as a type has them; those that are no whole blocks have zeros behind them, which take no bits here. */
function rounded(values, [n, k], importance, type) {
  const width = Math.ceil(k / BLOCK) * BLOCK;
  const input = new Float32Array(width + n * width);
  input.set(importance);
  const least = importance.reduce((known, value) => Math.min(known, value), Number.POSITIVE_INFINITY);
  input.fill(least, k, width);
  for (let r = 0; r < n; r++) input.set(values.subarray(r * k, (r + 1) * k), width + r * width);
  const place = llamaPlace();
  const output = execFileSync(program, [join(place, "libggml-base.so"), `${type}`, `${n}`, `${width}`], {
    input: Buffer.from(input.buffer),
    env: { ...process.env, LD_LIBRARY_PATH: place },
    maxBuffer: 2 ** 31,
  });
  const padded = new Float32Array(output.buffer.slice(output.byteOffset, output.byteOffset + output.byteLength));
  const data = new Uint16Array(n * k);
  for (let r = 0; r < n; r++) for (let c = 0; c < k; c++) data[r * k + c] = f32ToF16(padded[r * width + c]);
  return data;
}

/** The twin with its linear layers rounded to a type. */
async function roundTwin(twin, kind, importances) {
  const output = twin.replace("-twin.gguf", `-linears-${kind}.gguf`);
  if (existsSync(output)) return output;
  const model = await loadCheckpoint(twin);
  for (const { name, shape } of model.network.slots) {
    const importance = importances.get(linearName(name));
    if (!importance) continue;
    const values = toFloat32(await model.weight(name, { float: true }).load());
    const tensor = { dtype: "f16", shape, data: rounded(values, shape, importance, PEERS[kind][0]) };
    model.replaceWeight(name, { name, shape, format: { kind: "float", dtype: "f16" }, load: async () => tensor });
  }
  await saveGguf(model, output);
  await model.close();
  return output;
}

function readImportance(file) {
  const bytes = readFileSync(file);
  const found = new Map();
  for (let at = 0; at < bytes.length; ) {
    const end = bytes.indexOf(10, at);
    const [name, count] = bytes.toString("utf8", at, end).split(" ");
    const values = Float32Array.from({ length: Number(count) }, (_, i) => bytes.readFloatLE(end + 1 + 4 * i));
    found.set(name, values);
    at = end + 1 + 4 * values.length;
  }
  return found;
}

build();
const wanted = (/** @type {string} */ name) =>
  options.only.split(";").some((part) => (part in OURS ? name === part : name.includes(part)));
const day = new Date().toISOString().slice(0, 10);
/** What a row is of: weights and text. */
const keyOf = (/** @type {readonly string[]} */ [, name, text]) => `${name}, ${text}`;
const all = texts();
const chosen = options.texts.split(",").map((name) => all[name].test);
const sections = [];
for (const name of options.models.split(",")) {
  const { twin } = await modelFiles(name);
  const importances = readImportance(await importanceFile(twin));
  const files = [];
  for (const kind of Object.keys(PEERS).filter(wanted))
    files.push({ bits: PEERS[kind][1], name: `llama.cpp, ${kind}`, file: await roundTwin(twin, kind, importances) });
  for (const row of Object.keys(OURS).filter(wanted)) {
    const args = OURS[row][1].map((arg) => (arg === "{calibration}" ? all.prose.calibration : arg));
    const { output } = quantizeTwin(twin, `linears ${row}`, [...args, "--no-quantize-head"], { keep: options.keep });
    files.push({ bits: OURS[row][0], name: row, file: output });
  }
  files.sort((a, b) => b.bits - a.bits);
  const rows = divergenceRows(
    files.map(({ file }) => file),
    twin,
    chosen,
    options.tokens,
    // Ours are programs with float activations, which take no such option.
    files.some(({ file }) => file.endsWith(".gguf")) ? ["--activations", "float"] : [],
  ).map(([, , ...figures], i) => {
    const { bits, name } = files[Math.floor(i / chosen.length)];
    return [`${bits}`, name, ...figures, day];
  });
  const title = `## ${name}, ${options.tokens} tokens`;
  const measured = new Set(rows.map(keyOf));
  const kept = rowsBefore("linears", title).filter((row) => !measured.has(keyOf(row)));
  const sorted = [...kept, ...rows].sort((a, b) => Number(b[0]) - Number(a[0]));
  sections.push(`${title}\n\n${table(["bits", "linear layers", ...divergenceHead.slice(2), "day"], sorted)}`);
  writeReport("linears", {
    title: "Linear layers at equal bits, beside llama.cpp's types",
    command: "node bench/linears.js",
    sections: [
      `Twins of real models (the same function, weights off every grid); activations, table and head float. llama.cpp's types and our GPTQ see the same prose: 4,096 tokens for an importance matrix, 16,384 for GPTQ, a quarter of which the model writes itself, and all of it in rows that say self. Rows that are no whole blocks of ${BLOCK} are filled with zeros for llama.cpp's types, which are not counted. What is measured are tokens of other prose, and as many of code.`,
      ...sections,
    ],
    isPartial: true,
  });
}
