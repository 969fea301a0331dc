/**
 * Compares AQLM with 4-bit weights: single layers (aqlm-layers.js), the aqlm package if LOWBIT_PYTHON names a Python that has
 * it, whole models and their memory (aqlm-models.js). Each part takes up to two minutes, and longer at first use, when models
 * are written. Results are kept beside the models and shown in results/aqlm.md after each part.
 * `node bench/aqlm.js [--parts gemv,split,tables,rows,prefill,package,models,memory] [--shapes 4096x4096,14336x4096] [--threads
 * 1,2] [--rounds 9] [--whole]`: parts that are narrowed replace only what they measure; `--whole` measures the memory of all 32
 * layers, too.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { besidePackage, chosenKernel, chosenKernels, compare, splitKernels } from "./aqlm-layers.js";
import { modelMemory, modelSpeeds } from "./aqlm-models.js";
import { tableErrors } from "./aqlm-tables.js";
import { folder } from "./make-model.js";
import { commit, digits, table, writeReport } from "./report.js";

const list = (text) => text.split(",");
const { values: options } = parseArgs({
  options: {
    parts: { type: "string", default: "gemv,split,tables,rows,prefill,package,models,memory" },
    shapes: { type: "string", default: "4096x4096,14336x4096,4096x14336" },
    m: { type: "string", default: "1,2,4,8,12,16,32,64,128" },
    threads: { type: "string", default: "1,2" },
    rounds: { type: "string", default: "9" },
    model: { type: "string", default: "8b-8" },
    whole: { type: "boolean", default: false },
  },
});
const rounds = Number(options.rounds);
const threadCounts = list(options.threads).map(Number);
const shapes = list(options.shapes).map((text) => {
  const [n, k] = text.split("x").map(Number);
  return { n, k };
});

/** Table rows: µs and GB/s of each kernel, its speed relative to the first (4-bit), and if asked for, to the faster loop. */
function rowsOf(found, shape, threads, besideLoop) {
  const loops = found.filter(({ what }) => what.endsWith("loop")).map(({ seconds }) => seconds);
  const call = `[${shape.n}, ${shape.k}], m ${shape.m}, ${threads} thread${threads > 1 ? "s" : ""}`;
  return found.map(({ what, kernel, seconds, byteLength }) => [
    ...[`${call}, ${what}`, kernel, digits(1e6 * seconds), digits(byteLength / seconds / 1e9)],
    (found[0].seconds / seconds).toFixed(2),
    ...(besideLoop ? [loops.length > 0 ? (Math.min(...loops) / seconds).toFixed(2) : ""] : []),
  ]);
}

const LAYER_HEAD = ["call", "kernel", "µs", "GB/s", "speed, 4-bit = 1"];

/** Entries of a part: a key for each shape and number of threads, and the rows of its table. */
function* layerEntries(ms, wanted, settings) {
  for (const shape of wanted)
    for (const m of ms)
      for (const threads of threadCounts) {
        const call = { ...shape, m };
        const chosen = settings(m, threads);
        const rows = rowsOf(compare(call, threads, { rounds, ...chosen }), call, threads, chosen.loop !== undefined);
        for (const row of rows) console.error(row.join("  "));
        yield [`${shape.n}x${shape.k} ${m} ${threads}`, rows];
      }
}

/** @type {Record<string, { title: string, head: string[], note?: string, measure(): Iterable<any> | AsyncIterable<any> }>} */
const parts = {
  gemv: {
    title: "One row of x, weights of 2x8 from memory",
    head: [...LAYER_HEAD, "speed, faster published loop = 1"],
    measure: () =>
      layerEntries([1], shapes, (m, threads) => ({
        ...{ form: "2x8", kernels: [chosenKernel("2x8", m)], loop: threads === 1 },
      })),
  },
  rows: {
    title: "More rows of x, each by every kernel that this machine runs for some number of rows",
    head: LAYER_HEAD,
    *measure() {
      const ms = list(options.m).map(Number);
      const kernels = chosenKernels("2x8", ms);
      yield* layerEntries(ms, shapes.slice(0, 1), () => ({ form: "2x8", kernels }));
    },
  },
  split: {
    title: "One row of x, shared among threads by blocks of inputs and by outputs",
    head: LAYER_HEAD,
    *measure() {
      const kernels = splitKernels();
      if (kernels.length === 0) return console.error("split: skipped, this machine's kernel has one way only");
      yield* layerEntries([1], shapes, () => ({ form: "2x8", kernels }));
    },
  },
  prefill: {
    title: "128 rows of x",
    head: LAYER_HEAD,
    note: "On a shared machine single rows differ up to twofold.",
    measure: () => layerEntries([128], shapes, (m) => ({ form: "2x8", kernels: [chosenKernel("2x8", m)] })),
  },
  package: {
    title: "The aqlm package's CPU path, [4096, 4096], one row of x, one thread",
    head: ["form", "kernel", "aqlm package, µs", "ours, µs", "times faster"],
    *measure() {
      const python = process.env.LOWBIT_PYTHON;
      if (!python) return console.error("package: skipped, LOWBIT_PYTHON names no Python with the aqlm package");
      const form = "1x16";
      const found = besidePackage(python, form, { n: 4096, k: 4096 }, rounds);
      const row = [form, found.kernel, digits(1e6 * found.package), digits(1e6 * found.ours)];
      yield [form, [[...row, digits(found.package / found.ours)]]];
    },
  },
  models: {
    title: "Whole models: Llama-3.1-8B's shape cut to 8 layers, head and embedding in 4 bits",
    head: [
      "model",
      "threads",
      "decode, tok/s",
      "4-bit = 1",
      "prefill 128, tok/s",
      "4-bit = 1",
      "cores busy with others",
    ],
    async *measure() {
      for (const threads of threadCounts)
        yield [`${options.model} ${threads}`, await modelSpeeds(options.model, threads, rounds)];
    },
  },
  tables: {
    title: "What rounding makes of a layer of 512 outputs and 4096 inputs, against double precision",
    head: ["x", "rounded", "relative error"],
    note: "Steps are one for 16 groups of 8 inputs.",
    *measure() {
      yield ["all", tableErrors()];
    },
  },
  memory: {
    title: "Memory of Llama-3.1-8B's shape, head and embedding in 4 bits, KV cache in 8, context 1024, GB",
    head: ["model", "weights", "scratch", "KV cache", "sum", "peak resident set"],
    async *measure() {
      yield [options.model, await modelMemory(options.model, "8b", 1024, options.whole)];
    },
  },
};

const statePath = join(folder, "aqlm.json");
/** Entries of each part, and of which run they are. @returns {Record<string, { origin: string, entries: Record<string, string[][]> }>} */
const readState = () => (existsSync(statePath) ? JSON.parse(readFileSync(statePath, "utf8")) : {});
const narrowed = process.argv.slice(2).join(" ");
const command = `node bench/aqlm.js${narrowed ? ` ${narrowed}` : ""}`;

function report(state) {
  const sections = Object.entries(parts).flatMap(([name, { title, head, note }]) => {
    if (!state[name]) return [];
    const rows = Object.values(state[name].entries).flat();
    return [`## ${title}\n\n${table(head, rows)}\n\n${note ? `${note} ` : ""}Measured ${state[name].origin}.`];
  });
  writeReport("aqlm", { title: "AQLM beside 4-bit weights", command: "node bench/aqlm.js", isPartial: true, sections });
}

for (const name of list(options.parts)) {
  const part = parts[name];
  if (!part) throw new RangeError(`part "${name}": expected some of ${Object.keys(parts).join(", ")}`);
  /** @type {Record<string, string[][]>} */
  const found = {};
  for await (const [key, rows] of part.measure()) found[key] = rows;
  if (Object.keys(found).length === 0) continue;
  // Other parts may have been measured meanwhile.
  const state = readState();
  const origin = `on commit ${commit()}, ${new Date().toISOString().slice(0, 10)}, by \`${command}\``;
  state[name] = { origin, entries: { ...state[name]?.entries, ...found } };
  writeFileSync(statePath, `${JSON.stringify(state, null, 1)}\n`);
  report(state);
}
