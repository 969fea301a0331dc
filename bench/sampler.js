/**
 * Time to draw a token from the vocabulary of Llama 3, natively, in WebAssembly and in TypeScript alone, compared with a decode
 * step of the 1B shape. Writes bench/results/sampler.md.
 * `npm run build && node bench/sampler.js [--step 40] [--backends native,wasm,reference] [--dist ../dist]`
 */
import { spawnSync } from "node:child_process";
import { availableParallelism, loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const VOCABULARY = 128_256;
/** Logits of as many sequences, which are not in caches when their turn comes. */
const ROWS = 32;
const RUNS = 200;

const { values: options } = parseArgs({
  options: {
    /** Milliseconds of a decode step, of which the times are shares. */
    step: { type: "string", default: "40" },
    backends: { type: "string", default: "native,wasm,reference" },
    dist: { type: "string", default: "../dist" },
    /** Set for the process that measures one backend. */
    measure: { type: "boolean", default: false },
  },
});

/** @type {[string, import("../src/text/sampler.ts").SamplerOptions & { logprobs?: number }][]} */
const cases = [
  ["temperature 0", { temperature: 0 }],
  ["temperature 0, penalties", { temperature: 0, repetitionPenalty: 1.1, presencePenalty: 0.5, frequencyPenalty: 0.5 }],
  ["temperature 0.8", { temperature: 0.8 }],
  ["top-k 50", { temperature: 0.8, topK: 50 }],
  ["top-k 5000", { temperature: 0.8, topK: 5000 }],
  ["top-p 0.9", { temperature: 0.6, topP: 0.9 }],
  ["top-p 0.95, temperature 1.5", { temperature: 1.5, topP: 0.95 }],
  ["min-p 0.05", { temperature: 1, minP: 0.05 }],
  ["top-k 40, top-p 0.95, min-p 0.05", { temperature: 0.8, topK: 40, topP: 0.95, minP: 0.05 }],
  ["the same with penalties", { temperature: 0.8, topK: 40, topP: 0.95, minP: 0.05, repetitionPenalty: 1.1 }],
  ["1000 suppressed tokens", { temperature: 0.8, suppressTokens: Array.from({ length: 1000 }, (_, i) => 128 * i) }],
  ["log probabilities, 20 most likely", { logprobs: 20 }],
];

/** Rows of normal numbers; of "peaked" ones, some tokens stand out, as where a model knows what follows. */
function rowsOf(kind, createRandom) {
  const random = createRandom(1);
  const normal = () => Math.sqrt(-2 * Math.log(1 - random.uniform())) * Math.cos(2 * Math.PI * random.uniform());
  return Array.from({ length: ROWS }, () => {
    const row = Float32Array.from({ length: VOCABULARY }, () => 2.2 * normal());
    if (kind === "peaked") for (let i = 0; i < 60; i++) row[random.uint32() % VOCABULARY] = 18 - 2 * Math.log(i + 1);
    return row;
  });
}

/** Medians and minima in milliseconds, of all cases. */
async function measure() {
  const { createSampler } = await import(`${options.dist}/text/sampler.js`);
  const { createRandom } = await import(`${options.dist}/text/random.js`);
  const { logProbabilities } = await import(`${options.dist}/text/log-probabilities.js`);
  const { hostCpu } = await import(`${options.dist}/kernels/cpu.js`);
  const cpu = hostCpu();
  const history = Array.from({ length: 1000 }, (_, i) => (i * 7919) % VOCABULARY);
  return ["peaked", "flat"].flatMap((kind) => {
    const rows = rowsOf(kind, createRandom);
    return cases.map(([name, { logprobs, ...settings }]) => {
      const sampler = createSampler({ ...settings, seed: 1 });
      const run = (row) => (logprobs ? logProbabilities(row, 0, logprobs, cpu) : sampler.sample(row, history));
      const times = [];
      for (let i = 0; i < RUNS + 20; i++) {
        const start = performance.now();
        run(rows[i % ROWS]);
        if (i >= 20) times.push(performance.now() - start);
      }
      times.sort((a, b) => a - b);
      return { kind, name, median: times[RUNS / 2], least: times[0] };
    });
  });
}

if (options.measure) console.log(JSON.stringify(await measure()));
else {
  const { table, writeReport } = await import("./report.js");
  const backends = options.backends.split(",");
  const results = backends.map((backend) => {
    const args = [fileURLToPath(import.meta.url), "--measure", "--dist", options.dist];
    const env = { ...process.env, LOWBIT_BACKEND: backend };
    const { stdout, status } = spawnSync(process.execPath, args, {
      env,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "inherit"],
    });
    if (status !== 0) throw new Error(`${backend}: ended with ${status}`);
    return JSON.parse(stdout);
  });
  const share = (ms) => `${ms.toFixed(3)} (${((100 * ms) / Number(options.step)).toFixed(2)} %)`;
  const section = (kind) => {
    const lines = results[0].flatMap((row, i) =>
      row.kind === kind
        ? [[row.name, ...results.map((result) => `${share(result[i].median)}, ${result[i].least.toFixed(3)}`)]]
        : [],
    );
    return table(["settings", ...backends], lines);
  };
  writeReport("sampler", {
    title: "What drawing a token takes",
    command: `node bench/sampler.js --step ${options.step}`,
    sections: [
      `Milliseconds over ${VOCABULARY} logits of each of ${ROWS} sequences in turn, on one thread: the median for one of them, its share of a decode step of ${options.step} ms, and the least of ${RUNS}. Over the minute before the end, ${loadavg()[0].toFixed(1)} threads wanted the ${availableParallelism()} cores: with more than cores, the least is what counts.`,
      `## Logits of which some stand out\n\n${section("peaked")}`,
      `## Normally distributed logits\n\n${section("flat")}`,
    ],
  });
}
