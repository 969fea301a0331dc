/**
 * `npm run accuracy [-- --max-tokens n] [--only text]`: measures the demo model at every number of bits and writes the table
 * between the accuracy markers of docs/accuracy.md; `--only` prints the table rows whose names contain that text, and writes
 * nothing. Two worker processes share the rows, since a row keeps one core busy.
 */
import { fork } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { encodeAqlm } from "../../dist/aqlm/index.js";
import {
  calibrate,
  evaluatePerplexity,
  exportProgram,
  inspectProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadCompiled,
  quantize,
  sharedEmbedding,
} from "../../dist/index.js";
import { fitSize } from "../../dist/tools/index.js";

const WINDOW = 512;
const STRIDE = 256;
/** Tokens of the calibration text. */
const CALIBRATION_TOKENS = 8192;
const WORKERS = 2;
const BEGIN = "<!-- accuracy:begin -->";
const END = "<!-- accuracy:end -->";

/** @typedef {import("../../dist/index.js").QuantizationConfig} Config */
/** @typedef {import("../../dist/index.js").Model} Model */
/** @typedef {{ bytes: number, bits: number, perplexity: number, tokens: number, windows: number }} Measured */

const path = (/** @type {string} */ name) => fileURLToPath(new URL(`../../${name}`, import.meta.url));

/** @param {number} bits */
const affineRow = (bits) => ({
  name: `8da${bits}w, group 32`,
  configs: () => [
    int8DynamicActivationIntxWeight({ bits, groupSize: 32, scaleDType: "f16" }),
    sharedEmbedding({ bits: 8, groupSize: 32, scaleDType: "f16" }),
  ],
});

/**
 * Linear layers of some bits, calibrated when `calibration` is given; without `algorithm`, rounded to nearest.
 * @param {string} name
 * @param {{ bits: number, groupSize?: number | "axis", algorithm?: "gptq" | "awq" | "awq+gptq" }} scheme
 * @param {{ smoothQuant?: number }} [calibration]
 */
const calibratedRow = (name, { groupSize = 32, ...scheme }, calibration) => ({
  name,
  configs: () => [
    int8DynamicActivationIntxWeight({ ...scheme, groupSize, scaleDType: "f16" }),
    sharedEmbedding({ bits: 8, groupSize: 32, scaleDType: "f16" }),
  ],
  ...(calibration && { calibration }),
});

/** Bytes of 8da3w in groups of 32 with a table of 8 bits. */
const SIZED_BYTES = 3.4e6;

/**
 * Linear layers, table and head in the bits that each needs. @param {string} name @param {{ algorithm?: "gptq" }} scheme
 */
const sizedRow = (name, scheme) => ({
  name,
  size: SIZED_BYTES,
  configs: () => [int8DynamicActivationIntxWeight({ ...searched, ...scheme }), sharedEmbedding(searched)],
  ...(scheme.algorithm && { calibration: {} }),
});

/** The default of the command line. @type {{ bits: number, groupSize: number, scaleDType: "f16", algorithm: "mse", mappingType: "codebook" }} */
const searched = { bits: 4, groupSize: 32, scaleDType: "f16", algorithm: "mse", mappingType: "codebook" };

/** `encode` runs first, calibration last. @type {{ name: string, configs: () => Config[], encode?: (model: Model) => Promise<void>, size?: number, calibration?: { smoothQuant?: number } }[]} */
const rows = [
  { name: "float, bf16 as stored", configs: () => [] },
  affineRow(1),
  affineRow(2),
  {
    name: "aqlm-2x8, encoded without a text",
    configs: () => [sharedEmbedding({ bits: 8, groupSize: 32, scaleDType: "f16" })],
    encode: (model) => encodeAqlm(model, { codebooks: 2, bits: 8 }),
  },
  {
    name: "aqlm-2x8, encoded with the calibration text",
    configs: () => [sharedEmbedding({ bits: 8, groupSize: 32, scaleDType: "f16" })],
    encode: (model) =>
      encodeAqlm(model, {
        ...{ codebooks: 2, bits: 8, calibrationTokens: CALIBRATION_TOKENS },
        calibrationText: readFileSync(path("models/shakespeare/calibration.txt"), "utf8"),
      }),
  },
  ...[3, 4, 5, 6, 7, 8].map(affineRow),
  {
    name: "tied 4-bit: 8da4w, group 32, embedding and head at 4 bits",
    configs: () => [
      int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32, scaleDType: "f16" }),
      sharedEmbedding({ bits: 4, groupSize: 32, scaleDType: "f16" }),
    ],
  },
  {
    name: "per-channel 4-bit: 8da4w, one scale a row, embedding and head at 4 bits",
    configs: () => [
      int8DynamicActivationIntxWeight({ bits: 4, groupSize: "axis", scaleDType: "f16" }),
      sharedEmbedding({ bits: 4, groupSize: "axis", scaleDType: "f16" }),
    ],
  },
  calibratedRow("8da2w, group 32, AWQ", { bits: 2, algorithm: "awq" }, {}),
  calibratedRow("8da2w, group 32, GPTQ", { bits: 2, algorithm: "gptq" }, {}),
  calibratedRow("8da2w, group 32, AWQ and GPTQ", { bits: 2, algorithm: "awq+gptq" }, {}),
  calibratedRow("8da3w, group 32, GPTQ", { bits: 3, algorithm: "gptq" }, {}),
  calibratedRow("8da3w, group 32, SmoothQuant", { bits: 3 }, { smoothQuant: 0.5 }),
  calibratedRow("8da2w, one scale a row", { bits: 2, groupSize: "axis" }),
  calibratedRow("8da2w, one scale a row, GPTQ", { bits: 2, groupSize: "axis", algorithm: "gptq" }, {}),
  calibratedRow("8da3w, one scale a row", { bits: 3, groupSize: "axis" }),
  calibratedRow("8da3w, one scale a row, AWQ", { bits: 3, groupSize: "axis", algorithm: "awq" }, {}),
  calibratedRow("8da3w, one scale a row, GPTQ", { bits: 3, groupSize: "axis", algorithm: "gptq" }, {}),
  sizedRow("each matrix its own bits, at most 3.40 MB", {}),
  sizedRow("each matrix its own bits, at most 3.40 MB, GPTQ", { algorithm: "gptq" }),
];

/** Exports a row to know its size, and scores the held-out text. @returns {Promise<Measured>} */
async function measure(/** @type {number} */ index, /** @type {number | undefined} */ maxTokens) {
  const program = path(`build/accuracy-${index}.pte`);
  const model = await loadCheckpoint(path("models/shakespeare"));
  await rows[index].encode?.(model);
  quantize(model, rows[index].configs());
  const { size, calibration } = rows[index];
  const calibrationText = readFileSync(path("models/shakespeare/calibration.txt"), "utf8");
  if (size !== undefined) await fitSize(model, calibrationText, { bytes: size, maxTokens: CALIBRATION_TOKENS });
  if (calibration) await calibrate(model, calibrationText, { maxTokens: CALIBRATION_TOKENS, ...calibration });
  await exportProgram(model, program);
  const { parts, bitsPerWeight } = await inspectProgram(program);
  rmSync(program);
  const llm = await loadCompiled(model, { contextLength: WINDOW, maxSeqLen: 128 });
  await model.close();
  const text = readFileSync(path("models/shakespeare/heldout.txt"), "utf8");
  const { perplexity, tokens, windows } = await evaluatePerplexity(llm, text, {
    window: WINDOW,
    stride: STRIDE,
    maxTokens,
  });
  return { bytes: parts.total, bits: bitsPerWeight, perplexity, tokens, windows };
}

/** Rows by their indices, by worker processes that each ask for the next one. @returns {Promise<Measured[]>} */
function measureRows(/** @type {number[]} */ wanted, /** @type {number | undefined} */ maxTokens) {
  /** @type {Measured[]} */
  const results = [];
  const left = [...wanted];
  const workers = Array.from({ length: WORKERS }, () => {
    const worker = fork(fileURLToPath(import.meta.url));
    const assign = () => {
      const index = left.shift();
      if (index === undefined) worker.disconnect();
      else worker.send({ index, maxTokens });
    };
    worker.on("message", (/** @type {{ index: number, result: Measured }} */ { index, result }) => {
      results[index] = result;
      console.log(rowLine(rows[index], result));
      assign();
    });
    assign();
    return new Promise((resolve, reject) => {
      worker.on("exit", (code) => (code === 0 ? resolve(null) : reject(new Error(`a worker ended with code ${code}`))));
    });
  });
  return Promise.all(workers).then(() => results);
}

const rowLine = (/** @type {{ name: string }} */ { name }, /** @type {Measured} */ { bits, bytes, perplexity }) =>
  `| ${name} | ${bits.toFixed(2)} | ${(bytes / 1e6).toFixed(2)} | ${perplexity.toFixed(2)} |`;

/** @returns {string} */
function table(/** @type {Measured[]} */ results) {
  const [{ tokens, windows }] = results;
  const lines = results.map((result, i) => rowLine(rows[i], result));
  return [
    "| weights | bits per weight | .pte, MB | held-out perplexity |",
    "|---|---:|---:|---:|",
    ...lines,
    "",
    `Perplexity of the next token over ${tokens} tokens of models/shakespeare/heldout.txt, in ${windows} windows of ${WINDOW} tokens every`,
    `${STRIDE}; each token is scored once. Where a row says no more, linear layers have the bits named, and the tied embedding and`,
    `head 8 bits in groups of 32; scales are f16. Calibration read ${CALIBRATION_TOKENS} tokens of models/shakespeare/calibration.txt, a part of`,
    "the training text. Bits per weight count scales, zero points and the float norms. `npm run accuracy` measures again.",
  ].join("\n");
}

async function main() {
  const { values } = parseArgs({
    options: { "max-tokens": { type: "string" }, only: { type: "string", default: "" } },
  });
  const maxTokens = values["max-tokens"] === undefined ? undefined : Number(values["max-tokens"]);
  const wanted = rows.flatMap(({ name }, index) => (name.includes(values.only) ? [index] : []));
  if (wanted.length === 0) throw new Error(`--only: no row's name has "${values.only}"`);
  if (values.only !== "") return void (await measureRows(wanted, maxTokens));
  const page = readFileSync(path("docs/accuracy.md"), "utf8");
  const [before, rest] = page.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error(`docs/accuracy.md: expected the markers ${BEGIN} and ${END}`);
  mkdirSync(path("build"), { recursive: true });
  const text = table(await measureRows(wanted, maxTokens));
  writeFileSync(path("docs/accuracy.md"), `${before}${BEGIN}\n${text}\n${END}${after}`);
  console.log(text);
}

if (process.send)
  process.on("message", async (/** @type {{ index: number, maxTokens: number }} */ { index, maxTokens }) => {
    const result = await measure(index, maxTokens);
    process.send?.({ index, result });
  });
else await main();
