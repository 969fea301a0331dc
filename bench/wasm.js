/**
 * WebAssembly against native code on the same program: load, first token, prefill and decode, in a process each, backends
 * in turns, medians of rounds. Usage: node bench/wasm.js <program.pte> [--node <executable>] [--rounds 2] [--threads 1,2]
 * [--prompt 128] [--decode 32]. Build first (npm run build).
 */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    node: { type: "string", default: process.execPath },
    rounds: { type: "string", default: "2" },
    threads: { type: "string", default: "1,2" },
    backends: { type: "string", default: "wasm,native" },
    prompt: { type: "string", default: "128" },
    decode: { type: "string", default: "32" },
    measure: { type: "string" },
  },
});

/** @param {number[]} values */
function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return /** @type {number} */ (sorted[Math.floor(sorted.length / 2)]);
}

/** Measures in this process and prints the result. @param {string} path @param {number} threads */
async function measure(path, threads) {
  const { loadProgram } = await import("../dist/index.js");
  const start = performance.now();
  const model = await loadProgram(path, { threads });
  const loaded = performance.now();
  const decoder = model.createDecoder();
  const { vocabularySize } = decoder;
  const token = (/** @type {number} */ i) => (i * 7919 + 13) % vocabularySize;
  await decoder.prefill([token(0)]);
  const first = performance.now();
  const steps = [];
  for (let i = 0; i < Number(options.decode); i++) {
    const before = performance.now();
    await decoder.step(token(i));
    steps.push(performance.now() - before);
  }
  const ids = Array.from({ length: Number(options.prompt) }, (_, i) => token(i));
  const prefills = [];
  for (let run = 0; run < 3; run++) {
    decoder.rewind(0);
    const before = performance.now();
    await decoder.prefill(ids);
    prefills.push((1000 * ids.length) / (performance.now() - before));
  }
  const steady = median(steps.slice(steps.length >> 1));
  const result = {
    loadMs: loaded - start,
    firstTokenMs: first - loaded,
    decode: 1000 / steady,
    firstPrefill: prefills[0],
    prefill: median(prefills.slice(1)),
  };
  console.log(JSON.stringify(result));
  await decoder.dispose();
  await model.dispose();
}

/** @param {string} path */
function compare(path) {
  const rows = new Map();
  for (let round = 0; round < Number(options.rounds); round++)
    for (const threads of options.threads.split(","))
      for (const backend of options.backends.split(",")) {
        const args = [fileURLToPath(import.meta.url), path, "--measure", threads, "--prompt", options.prompt];
        const env = { ...process.env, LOWBIT_BACKEND: backend };
        const text = execFileSync(options.node, [...args, "--decode", options.decode], { env, encoding: "utf8" });
        const key = `${backend}, ${threads} threads`;
        rows.set(key, [...(rows.get(key) ?? []), JSON.parse(text)]);
      }
  const version = execFileSync(options.node, ["--version"], { encoding: "utf8" }).trim();
  console.log(
    `${path}, Node ${version}, prompt ${options.prompt}, decode ${options.decode}, medians of ${options.rounds}`,
  );
  for (const [key, results] of rows) {
    const value = (/** @type {string} */ name) => median(results.map((/** @type {any} */ result) => result[name]));
    console.log(
      `${key}: load ${value("loadMs").toFixed(0)} ms, first token ${value("firstTokenMs").toFixed(1)} ms, ` +
        `decode ${value("decode").toFixed(1)} tok/s (${(1000 / value("decode")).toFixed(2)} ms), ` +
        `prefill ${value("prefill").toFixed(0)} tok/s (first ${value("firstPrefill").toFixed(0)})`,
    );
  }
}

const path = positionals[0];
if (!path) throw new Error("give a program");
if (options.measure) await measure(path, Number(options.measure));
else compare(path);
