/**
 * Many sequences at once, with the 1B shape on two threads: total speed, compared with node-llama-cpp with as many sequences in
 * one context, in turns; prefix caching; gaps between tokens while another prompt is computed; memory; decoding of other shapes
 * at 8,192 and 32,768 positions.
 * `node bench/sequences.js [--parts aggregate,prefix,gap,memory,contexts] [--rounds 3]` → results/sequences.md
 */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { int8DynamicActivationIntxWeight, loadCheckpoint, loadCompiled, quantize } from "../dist/index.js";
import { alternate } from "./compare-parts.js";
import { EngineProcess } from "./engine-process.js";
import { longContexts } from "./long-contexts.js";
import { folder, ggufOf } from "./make-model.js";
import { cacheOf, programOf } from "./programs.js";
import { commit, digits, median, table, writeReport } from "./report.js";

const SCHEME = "4-bit g32";
const THREADS = 2;
const SEQUENCES = [1, 2, 4, 8, 16, 32];
/** Tokens of each sequence, after a prompt of so many. */
const TOKENS = 12;
const CONTEXT = 32;
const STORED = 1850;
const PROMPT = 1900;
const ANSWERS = 4;
const ARRIVING = 1500;
/** The default of `loadProgram`. */
const PREFILL_TOKENS = 64;

const { values: options } = parseArgs({
  options: {
    parts: { type: "string", default: "aggregate,prefix,gap,memory,contexts" },
    rounds: { type: "string", default: "3" },
    /** Seconds to wait for a calm moment before each measurement. */
    patience: { type: "string", default: "2" },
    shape: { type: "string", default: "1b" },
  },
});
const plan = { rounds: Number(options.rounds), patience: Number(options.patience), threads: [THREADS] };
const { shape } = options;

const ours = async () =>
  EngineProcess.start("ours", { path: await programOf(shape, SCHEME), threads: THREADS, cache: cacheOf(SCHEME) });

/** @param {Record<string, EngineProcess>} engines @param {object} request */
const ask = (engines, request) =>
  alternate(plan, Object.fromEntries(Object.entries(engines).map(([name, engine]) => [name, { engine, request }])));

async function aggregate() {
  const engines = {
    ours: await ours(),
    peer: await EngineProcess.start("peer-llama", { path: await ggufOf(shape), threads: THREADS }),
  };
  const rows = [];
  let single = 0;
  for (const sequences of SEQUENCES) {
    const found = await ask(engines, { what: "aggregate", sequences, tokens: TOKENS, context: CONTEXT });
    const step = await ask({ ours: engines.ours }, { what: "rows", rows: sequences, context: CONTEXT });
    const [own, other] = [found.ours.value, found.peer.value];
    single ||= own;
    const bound = sequences / step.ours.value;
    const busy = Math.max(found.ours.others, found.peer.others);
    rows.push(
      [sequences, own, bound, other, own / other, own / single, busy].map((value, i) =>
        i === 0 ? String(value) : digits(value),
      ),
    );
  }
  for (const engine of Object.values(engines)) await engine.stop();
  const head = [
    "sequences",
    "tokens a second",
    "rows alone",
    "node-llama-cpp",
    "times it",
    "times one",
    "busy with others",
  ];
  return `## Together\n\nTokens a second of all sequences together, ${TOKENS} each after ${CONTEXT}; "rows alone" is what steps of so many rows of one sequence give, without scheduling and sampling.\n\n${table(head, rows)}`;
}

async function prefix() {
  const engine = await ours();
  const path = join(folder, "prefix.lbsq");
  const stored = { what: "stored", stored: STORED, tokens: PROMPT };
  const fresh = { what: "fresh", tokens: PROMPT - STORED };
  await engine.ask(stored);
  const found = await alternate(plan, {
    stored: { engine, request: stored },
    fresh: { engine, request: fresh },
  });
  const read = [];
  const first = [];
  let saved = { tokens: 0, bytes: 0 };
  for (let round = 0; round < plan.rounds; round++) {
    saved = await engine.ask({ what: "save", stored: STORED, path });
    const other = await ours();
    // Kernels are bound, and memory is touched.
    await other.ask(fresh);
    const times = await other.ask({ ...stored, what: "restored", path });
    read.push(times.read);
    first.push(times.first);
    await other.stop();
  }
  const whole = await engine.ask({ what: "fresh", tokens: PROMPT });
  await engine.stop();
  const ms = (/** @type {number} */ seconds) => digits(1000 * seconds);
  const against = (/** @type {number} */ seconds) => digits(seconds / found.fresh.value);
  const rows = [
    [`${PROMPT - STORED}, nothing stored`, ms(found.fresh.value), "1"],
    [`${PROMPT}, ${STORED} of them stored`, ms(found.stored.value), against(found.stored.value)],
    [`${PROMPT}, after a restart with the file`, ms(median(first)), against(median(first))],
    [`${PROMPT}, nothing stored`, ms(whole), against(whole)],
  ];
  return (
    `## First token\n\n${table(["tokens of the prompt", "ms", "times"], rows)}\n\n` +
    `Reading the file of ${saved.tokens} tokens (${digits(saved.bytes / 1e6)} MB) takes ${ms(median(read))} ms more.`
  );
}

async function gap() {
  const engine = await ours();
  const request = { what: "gaps", answers: ANSWERS, prompt: ARRIVING, context: CONTEXT };
  const runs = [];
  const chunks = [];
  for (let round = 0; round < plan.rounds; round++) {
    runs.push(await engine.ask(request));
    chunks.push(await engine.ask({ what: "chunks", prompt: ARRIVING, rows: PREFILL_TOKENS }));
  }
  await engine.stop();
  const middle = (/** @type {string} */ name) => median(runs.map((run) => run[name]));
  const rows = [
    [`longest gap of ${ANSWERS} answers alone`, middle("before")],
    [`longest gap while a prompt of ${ARRIVING} tokens is computed`, middle("during")],
    [`longest step of ${PREFILL_TOKENS} rows of such a prompt alone`, median(chunks)],
    ["first token of that prompt", middle("first")],
  ].map(([name, seconds]) => [String(name), digits(1000 * Number(seconds))]);
  return `## Gaps\n\n${table(["", "ms"], rows)}`;
}

/** Bytes that a model of the demo's weights takes with another config: resident when loaded, and keys and values. */
async function memoryOf(config, tokens) {
  const demo = fileURLToPath(new URL("../models/shakespeare", import.meta.url));
  const copy = mkdtempSync(join(tmpdir(), "lowbit-bench-"));
  cpSync(demo, copy, { recursive: true });
  const given = JSON.parse(readFileSync(join(demo, "config.json"), "utf8"));
  writeFileSync(join(copy, "config.json"), JSON.stringify({ ...given, ...config }));
  const checkpoint = await loadCheckpoint(copy);
  quantize(checkpoint, [int8DynamicActivationIntxWeight({ bits: 4 })]);
  const model = await loadCompiled(checkpoint, { kvCache: "f16", contextLength: config.max_position_embeddings });
  await checkpoint.close();
  const before = model.program.sequenceStatistics;
  const decoder = model.createDecoder();
  if (tokens > 0) await decoder.prefill(Array.from({ length: tokens }, (_, i) => (7 * i) % 2000));
  const after = model.program.sequenceStatistics;
  await model.dispose();
  rmSync(copy, { recursive: true });
  return [before.bytes, after.bytes, after.usedBytes].map((bytes) => digits(bytes / 2 ** 20));
}

async function memory() {
  const sliding = { architectures: ["MistralForCausalLM"], model_type: "mistral" };
  const cases = [
    ["context of 131,072, not used", { max_position_embeddings: 131072 }, 0],
    ["context of 8,192, full", { max_position_embeddings: 8192 }, 8192],
    ["the same with windows of 512", { ...sliding, sliding_window: 512, max_position_embeddings: 8192 }, 8192],
  ];
  const rows = [];
  for (const [name, config, tokens] of cases) rows.push([String(name), ...(await memoryOf(config, tokens))]);
  return `## Memory\n\nMiB of keys and values of the demo model in f16: when it was loaded, and after a prompt.\n\n${table(["", "loaded", "taken", "in use"], rows)}`;
}

const contexts = () => longContexts(plan, SCHEME);

const parts = { aggregate, prefix, gap, memory, contexts };
mkdirSync(folder, { recursive: true });
for (const name of options.parts.split(",")) {
  const part = parts[name];
  if (!part) throw new RangeError(`part "${name}": expected some of ${Object.keys(parts).join(", ")}`);
  const section = await part();
  const load = loadavg()
    .map((value) => value.toFixed(1))
    .join(", ");
  writeReport("sequences", {
    title: "Many sequences at once",
    command: "node bench/sequences.js",
    isPartial: true,
    sections: [
      `Shape ${shape}, random weights, ${SCHEME}, f16 keys and values, ${THREADS} threads; llama.cpp with every matrix in Q4_0. Engines are asked in turn; medians of the calmer half of the rounds.`,
      `${section}\n\nMeasured on commit ${commit()}, ${new Date().toISOString().slice(0, 10)}; load averages at the end ${load}.`,
    ],
  });
}
