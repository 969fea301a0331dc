/**
 * `node bench/quantize.js [shape]`: weights quantized per second, to affine 4 bits in groups of 32 with f16 scales: the steps
 * of the largest matrix, in memory and from disk, then everything from bf16 safetensors to `.pte`. Default: the 1B shape.
 */
import { rmSync } from "node:fs";
import { join } from "node:path";
import { quantizeRows } from "../dist/checkpoint/stored/quantize-rows.js";
import {
  exportProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  quantize,
  sharedEmbedding,
} from "../dist/index.js";
import { hostCpu } from "../dist/kernels/cpu.js";
import { startFastPacking } from "../dist/kernels/families/packing/packer.js";
import { selectLayout } from "../dist/kernels/select.js";
import { checkpointOf, folder } from "./make-model.js";
import { digits, table, writeReport } from "./report.js";

const [shape = "1b"] = process.argv.slice(2);
const scheme = { bits: 4, groupSize: 32, scaleDType: "f16" };
const linear = int8DynamicActivationIntxWeight(scheme);

/** @type {string[][]} */
const rows = [];

/** Runs a step of `weights` weights. @param {string} name */
async function measure(name, weights, step) {
  const start = performance.now();
  await step();
  const seconds = (performance.now() - start) / 1000;
  rows.push([name, digits(weights / 1e6), digits(seconds), digits(weights / 1e6 / seconds)]);
  console.error(rows.at(-1).join("  "));
}

const model = await loadCheckpoint(await checkpointOf(shape));
const { tensors } = model.checkpoint;
const { name, shape: sizes } = model.decoder.slots.find(({ role }) => role === "embedding");
const [n, k] = sizes;
const STEP = 512;

async function readAll() {
  for (let row = 0; row < n; row += STEP) await tensors.readRows(name, row, Math.min(STEP, n - row));
}
await readAll();
await measure("read", n * k, readAll);
await measure("read, round", n * k, async () => {
  for await (const part of quantizeRows(tensors, name, linear)) void part;
});
await measure("read, round, pack", n * k, async () => {
  let packing;
  let row = 0;
  for await (const part of quantizeRows(tensors, name, linear)) {
    const spec = { ...part, n };
    packing ??= startFastPacking(spec, null, selectLayout(spec, hostCpu()));
    packing.packer.add(part, row);
    row += part.n;
  }
  packing.packer.finish();
});

quantize(model, [linear, sharedEmbedding({ ...scheme, mappingType: "symmetric" })]);
const weights = model.decoder.slots
  .filter(({ role, tiedTo }) => role !== "vector" && tiedTo === null)
  .reduce((sum, { shape: [rowCount, columns] }) => sum + rowCount * columns, 0);
const output = join(folder, `${shape}-quantize-bench.pte`);
await measure("safetensors to .pte, all weights", weights, () => exportProgram(model, output));
rmSync(output, { force: true });
await model.close();

const what = "Affine, 4 bits in groups of 32, f16 scales; the checkpoint in the file cache";
writeReport("quantize", {
  title: "Quantizing",
  command: `node bench/quantize.js${shape === "1b" ? "" : ` ${shape}`}`,
  sections: [`${what}.`, table([`step (${shape})`, "weights, M", "seconds", "M weights/s"], rows)],
});
