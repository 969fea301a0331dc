/**
 * Our speed beside node-llama-cpp's on a model of the same shape: both loaded, asked in turn, medians of the calmer half
 * of the rounds. Writes bench/results/peers.md. `node bench/compare.js --help` lists the options.
 */
import { spawn } from "node:child_process";
import { statSync } from "node:fs";
import { parseArgs } from "node:util";
import { calm, watched } from "./calm.js";
import { EngineProcess } from "./engine-process.js";
import { ggufOf } from "./make-model.js";
import { programOf } from "./programs.js";
import { digits, median, table, writeReport } from "./report.js";

const BASE = "4-bit g32";
const PEER = "node-llama-cpp Q4_0";
const DECODE_TOKENS = 128;
const LONG_CONTEXT = 2000;

const { values: options } = parseArgs({
  options: {
    shape: { type: "string", default: "1b" },
    /** Ours beside the base scheme, comma-separated. */
    schemes: { type: "string", default: "4-bit g128,2-bit g32,3-bit g32" },
    rounds: { type: "string", default: "6" },
    /** Seconds to wait for a calm moment before each measurement. */
    patience: { type: "string", default: "10" },
    decode: { type: "string", default: String(DECODE_TOKENS) },
    prefill: { type: "string", default: "512,128,32" },
    threads: { type: "string", default: "2,1" },
    help: { type: "boolean", default: false },
  },
});
if (options.help) {
  console.log(
    "options: --shape 1b --schemes '4-bit g128,…' --rounds 6 --patience 10 --decode 128 --prefill 512,… --threads 2,1",
  );
  process.exit(0);
}
const rounds = Number(options.rounds);
const patience = Number(options.patience);
const decodeTokens = Number(options.decode);
const threadCounts = options.threads.split(",").map(Number);
const extraSchemes = options.schemes.split(",").filter(Boolean);

/** Questions to both engines; `tokens` a second is what counts. */
const questions = [
  ...options.prefill.split(",").map((tokens) => ({
    name: `prefill ${tokens}`,
    tokens: Number(tokens),
    request: { what: "prefill", tokens: Number(tokens) },
  })),
  { name: `decode ${decodeTokens}`, tokens: decodeTokens, request: { what: "decode", tokens: decodeTokens } },
];

/** One answer, and how busy others were. @param {EngineProcess} engine */
async function sample(engine, request) {
  await calm(patience);
  const { result, others } = await watched([process.pid, engine.pid], () => engine.ask(request));
  return { value: Array.isArray(result) ? result[0] : result, others };
}

/** Median of the calmer half. @param {{ value: number, others: number }[]} samples */
function settled(samples) {
  const calmest = [...samples].sort((a, b) => a.others - b.others).slice(0, Math.ceil(samples.length / 2));
  return { value: median(calmest.map(({ value }) => value)), others: Math.max(...calmest.map(({ others }) => others)) };
}

/** Asks engines in turn. @param {Record<string, EngineProcess>} engines @returns seconds by question and engine */
async function alternate(engines, asked) {
  const found = {};
  for (const { name, request } of asked) {
    const samples = Object.fromEntries(Object.keys(engines).map((engine) => [engine, []]));
    for (const engine of Object.values(engines)) await engine.ask({ ...request, tokens: Math.min(8, request.tokens) });
    for (let round = 0; round < rounds; round++)
      for (const [engine, process] of Object.entries(engines)) samples[engine].push(await sample(process, request));
    found[name] = Object.fromEntries(Object.entries(samples).map(([engine, list]) => [engine, settled(list)]));
    console.error(`${name}: ${JSON.stringify(found[name])}`);
  }
  return found;
}

const ours = async (scheme, threads) =>
  EngineProcess.start("ours", { path: await programOf(options.shape, scheme), threads });
const peer = async (threads) => EngineProcess.start("peer-llama", { path: await ggufOf(options.shape), threads });

/** Every speed question, on so many threads. */
async function speeds(threads) {
  const engines = { [PEER]: await peer(threads), [BASE]: await ours(BASE, threads) };
  const found = await alternate(engines, questions);
  await engines[PEER].stop();
  const limits = await ourLimits(engines[BASE], threads, found);
  const schemes = { [BASE]: engines[BASE] };
  for (const scheme of extraSchemes) schemes[scheme] = await ours(scheme, threads);
  const bySchemes = extraSchemes.length > 0 ? await alternate(schemes, questions) : {};
  for (const engine of Object.values(schemes)) await engine.stop();
  return { threads, found, limits, bySchemes };
}

/** Decoding beside the bandwidth of reading the same weights, and at a long context beside a short one. */
async function ourLimits(engine, threads, found) {
  const { constants } = await engine.ask({ what: "memory" });
  const bandwidths = [];
  for (let round = 0; round < Math.ceil(rounds / 2); round++)
    bandwidths.push(await sample(engine, { what: "bandwidth" }));
  const bandwidth = Math.max(...bandwidths.map(({ value }) => value));
  const tokensPerSecond = decodeTokens / found[`decode ${decodeTokens}`][BASE].value;
  const request = { what: "decode", tokens: 32, runs: rounds };
  const at0 = median(await engine.ask(request));
  const atLong = median(await engine.ask({ ...request, context: LONG_CONTEXT }));
  return { threads, constants, bandwidth, tokensPerSecond, contextRatio: at0 / atLong };
}

/** Loading and memory, each in a fresh process that loads, prefills 512 tokens and decodes. */
async function starts() {
  const start = { [PEER]: () => peer(2), [BASE]: () => ours(BASE, 2) };
  const rows = Object.fromEntries(Object.keys(start).map((name) => [name, []]));
  for (let round = 0; round < 3; round++)
    for (const [name, begin] of Object.entries(start)) {
      await calm(patience);
      const engine = await begin();
      await engine.ask(questions[0].request);
      await engine.ask({ what: "decode", tokens: 16 });
      const state = name === BASE ? (await engine.ask({ what: "memory" })).state : 0;
      rows[name].push({ ...engine.times, peak: await engine.ask({ what: "peak" }), state });
      await engine.stop();
    }
  const of = (name, field) => median(rows[name].map((row) => row[field]));
  return Object.keys(rows).map((name) => ({
    name,
    ...Object.fromEntries(["load", "firstToken", "fromProcessStart", "peak", "state"].map((f) => [f, of(name, f)])),
  }));
}

/** Two threads beside one while a process of somebody else keeps a core busy. */
async function busyCore() {
  const busy = spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" });
  const found = {};
  for (const threads of threadCounts) {
    const engines = { [BASE]: await ours(BASE, threads), [PEER]: await peer(threads) };
    for (const [name, engine] of Object.entries(engines)) {
      const answers = [];
      for (let round = 0; round < Math.ceil(rounds / 2); round++) {
        const prefill = await engine.ask({ what: "prefill", tokens: 128 });
        const [decode] = await engine.ask({ what: "decode", tokens: 8 });
        answers.push({ prefill: 128 / prefill, decode: 8 / decode });
      }
      const rate = (what) => median(answers.map((answer) => answer[what]));
      found[name] = [...(found[name] ?? []), { threads, prefill: rate("prefill"), decode: rate("decode") }];
      await engine.stop();
    }
  }
  busy.kill();
  return found;
}

function speedTable(threads, found) {
  const names = Object.keys(Object.values(found)[0] ?? {});
  const rows = questions.map(({ name, tokens }) => {
    const rates = names.map((engine) => tokens / found[name][engine].value);
    const others = Math.max(...names.map((engine) => found[name][engine].others));
    const ratios = rates.slice(1).map((rate) => `${digits(rate / rates[0])}x`);
    return [name, String(threads), ...rates.map(digits), ...ratios, others.toFixed(2)];
  });
  const ratioNames = names.slice(1).map((name) => `${name} / ${names[0]}`);
  return { head: ["tok/s", "threads", ...names, ...ratioNames, "cores busy with others"], rows };
}

/** One table of the same head for all numbers of threads. */
function joined(tables) {
  return table(
    tables[0].head,
    tables.flatMap(({ rows }) => rows),
  );
}

function limitsTable(results) {
  const head = [
    "4-bit decode",
    "threads",
    "weights",
    "GB/s",
    "read bandwidth of the same memory",
    "share",
    "speed at 2000",
  ];
  const rows = results.map(({ limits: { threads, constants, bandwidth, tokensPerSecond, contextRatio } }) => [
    `${digits(tokensPerSecond)} tok/s`,
    String(threads),
    `${digits(constants / 1e6)} MB`,
    digits((constants * tokensPerSecond) / 1e9),
    `${digits(bandwidth / 1e9)} GB/s`,
    percent((constants * tokensPerSecond) / bandwidth),
    percent(contextRatio),
  ]);
  return table(head, rows);
}

const percent = (ratio) => `${(100 * ratio).toFixed(0)} %`;

function startTable(rows, fileBytes) {
  const head = [
    "",
    "load, s",
    "load to first token, s",
    "process start to first token, s",
    "peak RSS",
    "file",
    "KV cache",
    "over file + KV",
  ];
  const mb = (bytes) => `${(bytes / 1e6).toFixed(0)} MB`;
  return table(
    head,
    rows.map(({ name, load, firstToken, fromProcessStart, peak, state }) => [
      name,
      digits(load),
      digits(firstToken),
      digits(fromProcessStart),
      mb(peak),
      mb(fileBytes[name]),
      state ? mb(state) : "",
      state ? mb(peak - fileBytes[name] - state) : "",
    ]),
  );
}

function busyTable(found) {
  const rows = Object.entries(found).flatMap(([name, list]) =>
    list.map(({ threads, prefill, decode }) => [name, String(threads), digits(prefill), digits(decode)]),
  );
  return table(["beside a busy loop", "threads", "prefill 128, tok/s", "decode, tok/s"], rows);
}

const fileBytes = {
  [PEER]: statSync(await ggufOf(options.shape)).size,
  [BASE]: statSync(await programOf(options.shape, BASE)).size,
};
for (const scheme of extraSchemes) await programOf(options.shape, scheme);
/** Written anew after each part, so that a run cut short leaves what it found. */
function report(results, others) {
  const sections = [
    `Shape ${options.shape}, random weights; ours at 8-bit dynamic activations with a 4-bit (tied) embedding, llama.cpp with every matrix in Q4_0. Engines are asked in turn, ${rounds} rounds; medians of the calmer half.`,
    joined(results.map(({ threads, found }) => speedTable(threads, found))),
    limitsTable(results),
  ];
  if (extraSchemes.length > 0)
    sections.push(joined(results.map(({ threads, bySchemes }) => speedTable(threads, bySchemes))));
  const command = `npm run bench:peers -- ${process.argv.slice(2).join(" ")}`.replace(/ -- $/, "");
  writeReport(options.shape === "1b" ? "peers" : `peers-${options.shape}`, {
    title: "Speed beside node-llama-cpp",
    command,
    sections: [...sections, ...others],
  });
}

const others = [startTable(await starts(), fileBytes)];
const results = [];
for (const threads of threadCounts) {
  results.push(await speeds(threads));
  report(results, others);
}
others.push(busyTable(await busyCore()));
report(results, others);
