/**
 * Time of GPTQ for each matrix in the first layers of a real model's twin, including the earlier layers that compute its
 * inputs.
 * `node bench/gptq.js [--model qwen] [--layers 2] [--tokens 16384]` → results/gptq.md
 */
import { readFileSync } from "node:fs";
import { loadavg } from "node:os";
import { parseArgs } from "node:util";
import { calibrate, intxWeightOnly, loadCheckpoint, quantize } from "../dist/index.js";
import { linearName, modelFiles, texts } from "./accuracy-files.js";
import { digits, table, writeReport } from "./report.js";

const { values: options } = parseArgs({
  options: {
    model: { type: "string", default: "qwen" },
    layers: { type: "string", default: "2" },
    tokens: { type: "string", default: "16384" },
  },
});

const { twin } = await modelFiles(options.model);
const model = await loadCheckpoint(twin);
quantize(model, [intxWeightOnly({ bits: 4, groupSize: 32, scaleDType: "f16", algorithm: "gptq" })]);
const names = model.network.slots.map(({ name }) => linearName(name)).filter(Boolean);
const perLayer = names.filter((name) => name.startsWith("blk.0.")).length;
const count = Number(options.layers) * perLayer;

const rows = [];
const stop = new AbortController();
let [start, used] = [performance.now(), process.cpuUsage()];
const seconds = ({ user, system }) => (user + system) / 1e6;
function onProgress() {
  const name = names[rows.length];
  rows.push([name, (performance.now() - start) / 1000, seconds(process.cpuUsage(used))]);
  [start, used] = [performance.now(), process.cpuUsage()];
  if (rows.length === count) stop.abort();
}
const text = readFileSync(texts().prose.calibration, "utf8");
try {
  await calibrate(model, text, { maxTokens: Number(options.tokens), signal: stop.signal, onProgress });
} catch (cause) {
  if (!stop.signal.aborted) throw cause;
}
await model.close();

const sum = (part, i) => part.reduce((all, row) => all + row[i], 0);
const last = rows.slice(-perLayer);
const total = ["the last of these layers", sum(last, 1), sum(last, 2)];
const load = loadavg()[0].toFixed(1);
writeReport("gptq", {
  title: "GPTQ",
  command: `node bench/gptq.js --model ${options.model} --layers ${options.layers} --tokens ${options.tokens}`,
  sections: [
    `4 bits in groups of 32, f16 scales. The first row begins with the text's tokens. One-minute load average at the end: ${load}.`,
    table(
      ["matrix", "seconds", "seconds of processor time"],
      [...rows, total].map(([name, ...times]) => [name, ...times.map(digits)]),
    ),
  ],
});
