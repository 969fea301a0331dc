/** The measurements of bench/compare.js: each takes the plan of the run and returns figures for its tables. */
import { spawn } from "node:child_process";
import { statSync } from "node:fs";
import { calm, unitsShare, watched } from "./calm.js";
import { EngineProcess } from "./engine-process.js";
import { ggufOf } from "./make-model.js";
import { ikBenchOf } from "./peer-ik.js";
import { peerModelOf } from "./peer-python.js";
import { transformersModelOf } from "./peer-transformers.js";
import { cacheOf, programOf } from "./programs.js";
import { median } from "./report.js";

export const BASE = "4-bit g32";
/** Beside it, with fewer scales than the peer has. */
export const WIDE = "4-bit g128";
export const PEER = "node-llama-cpp Q4_0";
/** Programs with the same weights, by type of KV cache. */
const CACHES = { "f16 (default)": BASE, int8: "4-bit g32, int8 cache" };
const LONG_CONTEXT = 2000;
/** Tokens of one stretch of decoding at a context. */
const STRETCH = 16;

/**
 * @typedef {object} Plan
 * @property {string} shape
 * @property {number} rounds
 * @property {number} patience Seconds.
 * @property {number} decode Tokens.
 * @property {number[]} prefill Tokens.
 * @property {number[]} threads
 * @property {string[]} schemes
 * @property {string} [ik] Folder in which ik_llama.cpp was built.
 */

const ours = async ({ shape }, scheme, threads) =>
  EngineProcess.start("ours", { path: await programOf(shape, scheme), threads, cache: cacheOf(scheme) });
const peer = async ({ shape }, threads) => EngineProcess.start("peer-llama", { path: await ggufOf(shape), threads });

/**
 * One answer, how busy others were, and what share of their best rate the cores' units gave before and after.
 * @param {Plan} plan @param {EngineProcess} engine
 */
async function sample({ patience, threads }, engine, request) {
  const [most] = threads;
  await calm(patience, most);
  const before = unitsShare(most);
  const { result, others } = await watched([process.pid, ...engine.pids], () => engine.ask(request));
  const units = Math.min(before, unitsShare(most));
  return { value: Array.isArray(result) ? result[0] : result, others, units };
}

/** Median of the calmer half. @param {{ value: number, others: number, units: number }[]} samples */
function settled(samples) {
  const noise = ({ others, units }) => others + 1 - units;
  const calmest = [...samples].sort((a, b) => noise(a) - noise(b)).slice(0, Math.ceil(samples.length / 2));
  return {
    value: median(calmest.map(({ value }) => value)),
    others: Math.max(...calmest.map(({ others }) => others)),
    units: Math.min(...calmest.map(({ units }) => units)),
  };
}

/**
 * Asks engines in turn, round by round.
 * @param {Plan} plan @param {Record<string, { engine: EngineProcess, request: object }>} asked
 * @returns {Promise<Record<string, { value: number, others: number, units: number }>>}
 */
export async function alternate(plan, asked) {
  const samples = Object.fromEntries(Object.keys(asked).map((name) => [name, []]));
  for (let round = 0; round < plan.rounds; round++)
    for (const [name, { engine, request }] of Object.entries(asked))
      samples[name].push(await sample(plan, engine, request));
  const found = Object.fromEntries(Object.entries(samples).map(([name, list]) => [name, settled(list)]));
  console.error(JSON.stringify(found));
  return found;
}

/** Sends one request to several engines, after a short one that binds kernels and touches memory. */
async function askAll(plan, engines, request) {
  for (const engine of Object.values(engines)) await engine.ask({ ...request, tokens: Math.min(8, request.tokens) });
  return alternate(
    plan,
    Object.fromEntries(Object.entries(engines).map(([name, engine]) => [name, { engine, request }])),
  );
}

const stopAll = async (engines) => {
  for (const engine of Object.values(engines)) await engine.stop();
};

/**
 * Prefill and decode beside the peer's in two group sizes, and decode beside reading the same weights, for each number of
 * threads.
 */
async function speed(plan) {
  const results = [];
  for (const threads of plan.threads) {
    const engines = { [PEER]: await peer(plan, threads) };
    for (const scheme of [BASE, WIDE]) engines[scheme] = await ours(plan, scheme, threads);
    const rows = [];
    for (const tokens of plan.prefill)
      rows.push({ what: "prefill", tokens, found: await askAll(plan, engines, { what: "prefill", tokens }) });
    const decode = { what: "decode", tokens: plan.decode };
    for (const engine of Object.values(engines)) await engine.ask({ ...decode, tokens: 8 });
    const found = await alternate(plan, {
      ...Object.fromEntries(Object.entries(engines).map(([name, engine]) => [name, { engine, request: decode }])),
      bandwidth: { engine: engines[BASE], request: { what: "bandwidth" } },
    });
    const { constants } = await engines[BASE].ask({ what: "memory" });
    rows.push({ what: "decode", tokens: plan.decode, found });
    results.push({ threads, rows, constants });
    await stopAll(engines);
  }
  return results;
}

/** Ours in several bit widths and group sizes, on as many threads as the first of the plan. */
async function schemes(plan) {
  const [threads] = plan.threads;
  const engines = {};
  for (const scheme of plan.schemes) engines[scheme] = await ours(plan, scheme, threads);
  const bytes = {};
  for (const [scheme, engine] of Object.entries(engines))
    bytes[scheme] = (await engine.ask({ what: "memory" })).constants;
  const prefill = await askAll(plan, engines, { what: "prefill", tokens: plan.prefill[0] });
  const decode = await askAll(plan, engines, { what: "decode", tokens: plan.decode });
  await stopAll(engines);
  return { threads, tokens: { prefill: plan.prefill[0], decode: plan.decode }, bytes, prefill, decode };
}

/** Decoding at a long context and at none, stretch by stretch in turn, for each type of cache. */
async function context(plan) {
  const [threads] = plan.threads;
  const results = [];
  for (const [cache, scheme] of Object.entries(CACHES)) {
    const engine = await ours(plan, scheme, threads);
    const request = { what: "contexts", contexts: [0, LONG_CONTEXT], tokens: STRETCH, runs: 4 * plan.rounds };
    const [atNone, atLong] = await engine.ask(request);
    const ratios = atNone.map((seconds, i) => seconds / atLong[i]);
    const rate = (times) => STRETCH / median(times);
    results.push({ cache, context: LONG_CONTEXT, atNone: rate(atNone), atLong: rate(atLong), ratio: median(ratios) });
    await engine.stop();
  }
  return { threads, results };
}

/** Loading and memory, each in a fresh process that loads, prefills and decodes. */
async function start(plan) {
  const [threads] = plan.threads;
  const begin = { [PEER]: () => peer(plan, threads), [BASE]: () => ours(plan, BASE, threads) };
  const files = { [PEER]: await ggufOf(plan.shape), [BASE]: await programOf(plan.shape, BASE) };
  const rows = Object.fromEntries(Object.keys(begin).map((name) => [name, []]));
  for (let round = 0; round < Math.min(3, plan.rounds); round++)
    for (const [name, open] of Object.entries(begin)) {
      await calm(plan.patience, threads);
      const engine = await open();
      await engine.ask({ what: "prefill", tokens: plan.prefill[0] });
      await engine.ask({ what: "decode", tokens: 16 });
      const state = name === BASE ? (await engine.ask({ what: "memory" })).state : 0;
      rows[name].push({ ...engine.times, peak: await engine.ask({ what: "peak" }), state });
      await engine.stop();
    }
  const of = (name, field) => median(rows[name].map((row) => row[field]));
  return Object.keys(rows).map((name) => ({
    name,
    file: statSync(files[name]).size,
    ...Object.fromEntries(["load", "firstToken", "fromProcessStart", "peak", "state"].map((f) => [f, of(name, f)])),
  }));
}

/** Two threads beside one, in turn, while a process of somebody else keeps one core busy. */
async function busy(plan) {
  const threadCounts = [1, 2];
  const engines = [];
  for (const threads of threadCounts) engines.push(await ours(plan, BASE, threads));
  const loop = spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" });
  try {
    const rows = [];
    for (const request of [
      { what: "prefill", tokens: 64 },
      { what: "decode", tokens: 16 },
    ]) {
      const seconds = engines.map(() => []);
      for (let round = 0; round < plan.rounds; round++)
        for (const [i, engine] of engines.entries()) seconds[i].push([await engine.ask(request)].flat()[0]);
      rows.push({ ...request, rates: seconds.map((list) => request.tokens / median(list)) });
    }
    return { threadCounts, rows };
  } finally {
    loop.kill();
    for (const engine of engines) await engine.stop();
  }
}

/** Reading the weights where they are mapped, with and without prefetching, and from a copy in huge pages, in turn. */
async function pages(plan) {
  const engine = await ours(plan, BASE, plan.threads[0]);
  const { seconds, bytes } = await engine.ask({ what: "copy" });
  const found = await alternate(plan, {
    mapped: { engine, request: { what: "bandwidth" } },
    unasked: { engine, request: { what: "bandwidth", ahead: [0] } },
    copied: { engine, request: { what: "bandwidth", copied: true } },
  });
  await engine.stop();
  const rates = Object.fromEntries(Object.entries(found).map(([name, { value }]) => [name, value]));
  return { bytes, copySeconds: seconds, ...rates };
}

/** Prefill and decode beside another engine, in turn. @param {Plan} plan @param {(threads: number) => Promise<EngineProcess>} begin */
async function beside(plan, name, begin) {
  const results = [];
  for (const threads of plan.threads) {
    const engines = { [name]: await begin(threads), [BASE]: await ours(plan, BASE, threads) };
    for (const [what, tokens] of [...plan.prefill.map((tokens) => ["prefill", tokens]), ["decode", plan.decode]])
      results.push({ threads, what, tokens, found: await askAll(plan, engines, { what, tokens }) });
    await stopAll(engines);
  }
  return { name, results };
}

/** ik_llama.cpp on the peer's file, which each request reads anew. */
async function ik(plan) {
  const program = ikBenchOf(plan.ik);
  const path = await ggufOf(plan.shape);
  return beside(plan, "ik_llama.cpp Q4_0", (threads) => EngineProcess.start("peer-ik", { program, path, threads }));
}

/** An engine of Python on a model of its own form, in 4 bits of groups of 32. */
const inPython = (engine, name) => async (/** @type {Plan} */ plan) => {
  const path = await peerModelOf(engine, plan.shape);
  const begin = (threads) => EngineProcess.start("peer-python", { engine, path, threads, shape: plan.shape });
  return beside(plan, name, begin);
};

const openvino = inPython("openvino", "OpenVINO GenAI int4 g32");
const onnxruntime = inPython("onnxruntime", "ONNX Runtime GenAI int4 g32");

/** transformers.js in Node, on the model of ONNX Runtime's part. */
async function transformers(plan) {
  const path = await transformersModelOf(plan.shape);
  const begin = (threads) => EngineProcess.start("peer-transformers", { path, threads, shape: plan.shape });
  return beside(plan, "transformers.js int4 g32", begin);
}

/** @type {Readonly<Record<string, (plan: Plan) => Promise<any>>>} */
export const parts = { speed, schemes, context, start, busy, pages, ik, openvino, onnxruntime, transformers };

/** The parts that need nothing but node-llama-cpp. */
export const defaultParts = ["speed", "schemes", "context", "start", "busy", "pages"];
