/**
 * Time of GPTQ of a real model's twin, with everything that `lowbit quantize --algorithm gptq --calibrate text.txt` does: the text
 * that the model writes, the matrices of the first layers with the earlier layers that compute their inputs, and a part of the
 * head. The time for the whole model is computed from these.
 * `node bench/gptq.js [--model qwen] [--layers 3] [--tokens 16384]` → results/gptq.md
 */
import { readFileSync } from "node:fs";
import { loadavg } from "node:os";
import { parseArgs } from "node:util";
import { correctedBy } from "../dist/checkpoint/stored/corrected-rows.js";
import { calibrate, intxWeightOnly, loadCheckpoint, quantize } from "../dist/index.js";
import { matrix } from "../dist/matrix.js";
import { createRandom } from "../dist/text/random.js";
import { writeCalibrationText } from "../dist/tools/index.js";
import { linearName, modelFiles, texts } from "./accuracy-files.js";
import { digits, table, writeReport } from "./report.js";

const { values: options } = parseArgs({
  options: {
    model: { type: "string", default: "qwen" },
    layers: { type: "string", default: "3" },
    tokens: { type: "string", default: "16384" },
  },
});

/** Weights of the head that are quantized; parts of this size are what quantizing reads at a time. */
const HEAD_WEIGHTS = 2 ** 20;
const HEAD_PARTS = 4;

/** @type {[string, number, number][]} */
const rows = [];
let [start, used] = [performance.now(), process.cpuUsage()];
/** Adds a row for what was done since the last. */
function lap(/** @type {string} */ name) {
  const { user, system } = process.cpuUsage(used);
  rows.push([name, (performance.now() - start) / 1000, (user + system) / 1e6]);
  [start, used] = [performance.now(), process.cpuUsage()];
}

const { twin } = await modelFiles(options.model);
const model = await loadCheckpoint(twin);
const config = intxWeightOnly({ bits: 4, groupSize: 32, scaleDType: "f16", algorithm: "gptq" });
quantize(model, [config]);
const { slots } = model.network;
const names = slots.map(({ name }) => linearName(name)).filter(Boolean);
const perLayer = names.filter((name) => name.startsWith("blk.0.")).length;
const count = Number(options.layers) * perLayer;
lap("load");

async function otherText(/** @type {number} */ tokens) {
  const { text } = await writeCalibrationText(model, { tokens });
  lap(`write ${tokens} tokens`);
  return text;
}
const stop = new AbortController();
let done = 0;
function onProgress() {
  lap(names[done++]);
  if (done === count) stop.abort();
}
const text = readFileSync(texts().prose.calibration, "utf8");
try {
  await calibrate(model, text, { maxTokens: Number(options.tokens), otherText, signal: stop.signal, onProgress });
} catch (cause) {
  if (!stop.signal.aborted) throw cause;
}

const [n, k] = slots.findLast(({ role }) => role === "linear").shape;
await timeHead();
await model.close();

/** GPTQ of parts of a head whose weights and sums are random, on which its time does not depend. */
async function timeHead() {
  const random = createRandom(1);
  const hessian = matrix(k, k);
  for (let r = 0; r < k; r++)
    for (let c = 0; c <= r; c++)
      hessian.data[r * k + c] = hessian.data[c * k + r] = r === c ? k : random.uniform() - 0.5;
  const drift = matrix(k, k, hessian.data.slice());
  const quantizeRows = correctedBy({ hessian, drift });
  const partRows = Math.floor(HEAD_WEIGHTS / k);
  const data = Float32Array.from({ length: partRows * k }, () => random.uniform() - 0.5);
  [start, used] = [performance.now(), process.cpuUsage()];
  for (let i = 0; i < HEAD_PARTS; i++) await quantizeRows({ dtype: "f32", shape: [partRows, k], data }, config, null);
  lap(`${(HEAD_PARTS * HEAD_WEIGHTS) / 2 ** 20} M weights of the head`);
}

const firstLayer = rows.findIndex(([name]) => name === names[0]);
const before = rows.slice(0, firstLayer);
const last = rows.slice(firstLayer + count - perLayer, firstLayer + count);
const sum = (/** @type {typeof rows} */ part, /** @type {1 | 2} */ i) => part.reduce((all, row) => all + row[i], 0);
const layerCount = names.length / perLayer;
const ofHead = (n * k) / (HEAD_PARTS * HEAD_WEIGHTS);
const whole = (/** @type {1 | 2} */ i) => sum(before, i) + layerCount * sum(last, i) + ofHead * rows.at(-1)[i];
const totals = [
  ["the last of these layers", sum(last, 1), sum(last, 2)],
  [`computed: ${layerCount} layers as the last, and a head of ${digits((n * k) / 1e6)} M weights`, whole(1), whole(2)],
];
writeReport("gptq", {
  title: "GPTQ",
  command: `node bench/gptq.js --model ${options.model} --layers ${options.layers} --tokens ${options.tokens}`,
  sections: [
    `4 bits in groups of 32, f16 scales. The first matrix begins with the text's tokens. One-minute load average at the end: ${loadavg()[0].toFixed(1)}.`,
    table(
      ["step", "seconds", "seconds of processor time"],
      [...rows, ...totals].map(([name, ...times]) => [name, ...times.map(digits)]),
    ),
  ],
});
