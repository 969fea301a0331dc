/**
 * Compares compiled with eager execution, decode and prefill, of the same weights on the same kernels, in turns in one process.
 * Usage: node bench/compiled.js [--shapes demo,110m,1b] [--rounds 3] [--tokens 16] [--prompt 128]. Build first
 * (npm run build). Shapes may be measured in several runs: the report has all runs of one commit.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import {
  EagerModel,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadCompiled,
  quantize,
  sharedEmbedding,
} from "../dist/index.js";
import { calm, watched } from "./calm.js";
import { distinctIds } from "./engine-process.js";
import { checkpointOf, folder } from "./make-model.js";
import { commit, digits, median, table, writeReport } from "./report.js";

const { values: options } = parseArgs({
  options: {
    shapes: { type: "string", default: "demo,110m,1b" },
    rounds: { type: "string", default: "3" },
    tokens: { type: "string", default: "16" },
    prompt: { type: "string", default: "128" },
    patience: { type: "string", default: "20" },
  },
});
const tokens = Number(options.tokens);
const promptTokens = Number(options.prompt);

/** The demo model by its folder, others by their shape. @param {string} name */
async function openModel(name) {
  const demo = fileURLToPath(new URL("../models/shakespeare", import.meta.url));
  const model = await loadCheckpoint(name === "demo" ? demo : await checkpointOf(name));
  const four = { bits: 4, groupSize: 32, scaleDType: "f16" };
  quantize(model, [int8DynamicActivationIntxWeight(four), sharedEmbedding({ ...four, mappingType: "symmetric" })]);
  // Both modes pack the same quantized weights: they are quantized once.
  for (const { name } of model.decoder.slots) {
    const weight = model.weight(name);
    let data;
    const load = () => (data ??= weight.load());
    model.replaceWeight(name, { ...weight, load });
  }
  return model;
}

/** Milliseconds of a prompt, and of a token after it. */
async function timed(ids, run) {
  const start = performance.now();
  await run(ids.slice(0, promptTokens), 0);
  const middle = performance.now();
  for (let i = promptTokens; i < ids.length; i++) await run(ids.slice(i, i + 1), i);
  return { prompt: middle - start, token: (performance.now() - middle) / tokens };
}

/** @param {string} name */
async function measure(name) {
  const model = await openModel(name);
  const eager = await EagerModel.load(model, { contextLength: 512 });
  const compiled = await loadCompiled(model, { contextLength: 512 });
  const decoder = compiled.createDecoder();
  // Others in each round, as what was read before is in the store.
  const idsOf = (/** @type {number} */ round) => distinctIds(round, promptTokens + tokens, decoder.vocabularySize);
  const runners = {
    eager: async (part, position) => void eager.forward(part, position),
    compiled: async (part, position) => {
      if (position === 0) decoder.rewind(0);
      await decoder.prefill(part);
    },
  };
  const times = { eager: [], compiled: [] };
  let busiest = 0;
  for (let round = 0; round <= Number(options.rounds); round++)
    for (const [mode, run] of Object.entries(runners)) {
      await calm(Number(options.patience));
      const { result, others } = await watched([process.pid], () => timed(idsOf(round), run));
      // The first round binds kernels and touches memory.
      if (round === 0) continue;
      times[mode].push(result);
      busiest = Math.max(busiest, others);
    }
  await decoder.dispose();
  await compiled.dispose();
  await model.close();
  return ["token", "prompt"].map((part) => {
    const [slow, fast] = ["eager", "compiled"].map((mode) => median(times[mode].map((time) => time[part])));
    const what = part === "token" ? `decode, a token after ${promptTokens}` : `prefill of ${promptTokens} tokens`;
    return [name, what, digits(slow), digits(fast), digits(slow / fast), digits(busiest)];
  });
}

/** Rows of a run by shape, and what they were measured with. */
const kept = join(folder, "compiled.json");
const measuredWith = `${commit()} ${options.rounds} ${tokens} ${promptTokens}`;
const known = existsSync(kept) ? JSON.parse(readFileSync(kept, "utf8")) : null;
const rows = known?.measuredWith === measuredWith ? known.rows : {};
for (const name of options.shapes.split(",")) {
  rows[name] = await measure(name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(kept, JSON.stringify({ measuredWith, rows }));
}
writeReport("compiled", {
  title: "Compiled and eager execution",
  command: `node bench/compiled.js --shapes ${Object.keys(rows)} --rounds ${options.rounds} --tokens ${tokens} --prompt ${promptTokens}`,
  sections: [
    "All matrices in 4 bits, group 32; medians of rounds in milliseconds, both modes in turns in one process. Busy: the most cores that other processes used during a round.",
    table(["model", "what", "eager ms", "compiled ms", "times faster", "busy"], Object.values(rows).flat()),
  ],
});
