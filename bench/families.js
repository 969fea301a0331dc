/**
 * Compares hybrid and mixture-of-experts models with node-llama-cpp, in turns, on the same Q4_0 weights: prefill and decode.
 * `node bench/families.js [name …] [--rounds 5] [--patience 2]` → results/families.md
 */
import { parseArgs } from "node:util";
import { alternate } from "./compare-parts.js";
import { EngineProcess } from "./engine-process.js";
import { families, familyGguf, familyProgram } from "./family-files.js";
import { boundTable, gigabytesOfToken } from "./memory-bound.js";
import { CHUNK_LENGTH } from "./programs.js";
import { commit, digits, table, writeReport } from "./report.js";
import { CONTEXT_LENGTH } from "./shapes.js";

const THREADS = 2;
const PROMPT = CHUNK_LENGTH;
const DECODE = 48;
/** Tokens before those that are decoded. */
const BEFORE = 128;
/** Speed wanted, as a multiple of the peer's. */
const WANTED = { prompt: 2, decode: 1.5 };

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: "string", default: "5" },
    /** Seconds to wait for a calm moment before each measurement. */
    patience: { type: "string", default: "2" },
  },
});
// Of Gemma 4, bench/family-memory.js tells the memory.
const names = positionals.length > 0 ? positionals : Object.keys(families).filter((name) => !name.startsWith("Gemma"));
const plan = { rounds: Number(options.rounds), patience: Number(options.patience), threads: [THREADS] };

const head = ["model", "what", "lowbit", "node-llama-cpp", "times it", "wanted", "cores busy with others"];

/** @param {string} name */
async function measure(name) {
  const path = await familyProgram(name);
  const engines = {
    ours: await EngineProcess.start("ours", { path, threads: THREADS, cache: { contextLength: CONTEXT_LENGTH } }),
    peer: await EngineProcess.start("peer-llama", { path: await familyGguf(name), threads: THREADS }),
  };
  const ask = (/** @type {object} */ request, how = plan) =>
    alternate(how, Object.fromEntries(Object.entries(engines).map(([key, engine]) => [key, { engine, request }])));
  const prefill = { what: "prefill", tokens: PROMPT };
  const decode = { what: "decode", tokens: DECODE, context: BEFORE };
  // The first ones bind kernels and touch memory.
  for (const request of [prefill, decode]) await ask(request, { ...plan, rounds: 1, patience: 0 });
  const found = { prompt: await ask(prefill), decode: await ask(decode) };
  const memory = await alternate(plan, { ours: { engine: engines.ours, request: { what: "bandwidth" } } });
  for (const engine of Object.values(engines)) await engine.stop();
  const counts = { prompt: PROMPT, decode: DECODE };
  const rows = Object.entries(found).map(([what, { ours, peer }]) => [
    name,
    what,
    ...[ours, peer].map(({ value }) => digits(counts[what] / value)),
    digits(peer.value / ours.value),
    digits(WANTED[what]),
    Math.max(ours.others, peer.others).toFixed(1),
  ]);
  const decoding = {
    bytes: await gigabytesOfToken(path, families[name].num_experts_per_tok),
    rate: DECODE / found.decode.ours.value,
    memory: memory.ours.value / 1e9,
  };
  const peer = DECODE / found.decode.peer.value;
  return `${table(head, rows)}\n\n${boundTable({ [name]: decoding }, { asked: WANTED.decode, peer })}`;
}

for (const name of names)
  writeReport("families", {
    title: "Hybrids and mixtures of experts",
    command: "node bench/families.js",
    isPartial: true,
    sections: [
      `Tokens a second of a prompt of ${PROMPT}, and of ${DECODE} tokens after ${BEFORE} others, on ${THREADS} threads. Weights are random, and the same on both sides: Q4_0, kept as stored by lowbit and multiplied with 8-bit activations by both. Engines are asked in turn; medians of the calmer half of ${plan.rounds} rounds.`,
      `## ${name}\n\n${await measure(name)}\n\nMeasured on commit ${commit()}, ${new Date().toISOString().slice(0, 10)}.`,
    ],
  });
