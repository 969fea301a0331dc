/**
 * `node bench/step-sizes.js`: time to prepare a step with a new number of rows, for the demo model and the 1B shape, natively
 * and in WebAssembly. No kernel runs: their times vary by more than this.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  exportProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadProgram,
  quantize,
  sharedEmbedding,
} from "../dist/index.js";
import { Holdings } from "../dist/runtime/memory.js";
import { ReadyRuns } from "../dist/runtime/ready-runs.js";
import { checkpointOf, folder } from "./make-model.js";
import { median, table, writeReport } from "./report.js";

const THREADS = 2;
/** Rows of a step, in an order in which none is met twice; the first is the first of its class. */
const SIZES = Array.from({ length: 40 }, (_, i) => 20 + ((17 * i) % 41));
/** Code is compiled on the way: what counts is a later session. */
const SESSIONS = 12;

/** Inputs of a step with `rows` rows and logits of `wanted` of them. @param {number} rows @param {number} wanted */
function inputsOf(rows, wanted) {
  const ids = (/** @type {number[]} */ ...shape) => ({ dtype: "i64", shape, data: new BigInt64Array(0) });
  return [ids(1, rows), ids(rows), ids(wanted)];
}

/** Microseconds, medians: of the first step of its class, of one not met, of one met but not the last. @param {string} path */
async function measure(path) {
  const { program } = await loadProgram(path, { threads: THREADS });
  const method = program.method("forward");
  const state = program.memory.allocate(program.stateBytes);
  const found = { first: [], unmet: [], met: [] };
  for (let session = 0; session < SESSIONS; session++) {
    const holdings = new Holdings();
    const runs = new ReadyRuns(program, state, holdings);
    const microseconds = (/** @type {number} */ rows) => {
      const inputs = inputsOf(rows, 1);
      const start = performance.now();
      runs.of(method, /** @type {any} */ (inputs));
      return 1000 * (performance.now() - start);
    };
    const [first, ...unmet] = SIZES.map(microseconds);
    const met = SIZES.map(microseconds);
    if (session > 0) {
      found.first.push(first);
      found.unmet.push(...unmet);
      found.met.push(...met);
    }
    holdings.releaseAll();
  }
  return [found.first, found.unmet, found.met].map(median);
}

/** A checkpoint as a program of 4 bits, groups of 32, exported when it is not there. @param {string} name @param {string} checkpoint */
async function programOf(name, checkpoint) {
  const path = join(folder, `${name}-step-sizes.pte`);
  if (existsSync(path)) return path;
  mkdirSync(folder, { recursive: true });
  const model = await loadCheckpoint(checkpoint);
  quantize(model, [
    int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 }),
    sharedEmbedding({ bits: 4, groupSize: 32 }),
  ]);
  await exportProgram(model, path);
  await model.close();
  return path;
}

async function main() {
  const programs = [
    ["demo model", await programOf("demo", fileURLToPath(new URL("../models/shakespeare", import.meta.url)))],
    ["1B shape, 4-bit g32", await programOf("1b", await checkpointOf("1b"))],
  ];
  const rows = programs.flatMap(([name, path]) =>
    ["native", "wasm"].map((backend) => {
      const env = { ...process.env, LOWBIT_BACKEND: backend, LOWBIT_STEP_SIZES: path };
      const child = spawnSync(process.execPath, [fileURLToPath(import.meta.url)], { env, encoding: "utf8" });
      if (child.status !== 0) throw new Error(`${name}, ${backend}: ${child.stderr}`);
      const times = JSON.parse(child.stdout);
      return [name, backend, ...times.map((/** @type {number} */ time) => time.toFixed(0))];
    }),
  );
  const head = ["program", "backend", "first of its class", "not met before", "met, but not last"];
  writeReport("step-sizes", {
    title: "Steps of sizes that were not met before",
    command: "node bench/step-sizes.js",
    sections: [
      `Microseconds until the calls of a step are ready, medians; a step of the size of the last takes none.\n\n${table(head, rows)}`,
    ],
  });
}

const path = process.env.LOWBIT_STEP_SIZES;
if (path) {
  console.log(JSON.stringify(await measure(path)));
  process.exit(0);
}
await main();
