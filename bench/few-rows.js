/**
 * Cost of a linear layer for a few rows of activations, relative to one row, with weights read from memory. Measures the
 * kernels that are chosen for each class of CPU, if this machine can run them. Writes bench/results/few-rows.md.
 * `node bench/few-rows.js [--cpu zen3,zen4,host,wasm] [--rows 1,2,4,8,16,64] [--kinds "4-bit,4-bit codebook"] [--threads 2]
 * [--rounds 7]`
 */
import { parseArgs } from "node:util";
import { hostCpu } from "../dist/index.js";
import { cpuWith } from "../dist/kernels/cpu.js";
import { linearA8Blocks } from "../dist/kernels/families/linear/kernels.js";
import { openPacked, packWeights } from "../dist/kernels/layout/packed.js";
import { programMemory } from "../dist/kernels/memory.js";
import { packedQuery, selectKernel, selectLayout } from "../dist/kernels/select.js";
import { wasmFeatures } from "../dist/kernels/wasm/features.js";
import { learnedLevelMax, oddZeroOf } from "../dist/quantize/codebooks.js";
import { createRandom } from "../dist/text/random.js";
import { requireAddon } from "./peak.js";
import { digits, table, writeReport } from "./report.js";

const N = 4096;
const K = 2048;
const GROUP = 32;
/** Copies of the weights take turns, so that no cache holds them. */
const COLD_BYTES = 256e6;
/** Calls that are timed together: few, so that some of them meet nobody else on a busy machine. */
const CALLS = 1;

const { values: options } = parseArgs({
  options: {
    cpu: { type: "string", default: "zen3,zen4,host,wasm" },
    rows: { type: "string", default: "1,2,4,8,16,64" },
    kinds: { type: "string" },
    threads: { type: "string", default: String(requireAddon().defaultThreads()) },
    rounds: { type: "string", default: "7" },
  },
});
const threads = Number(options.threads);
const rowCounts = options.rows.split(",").map(Number);

const steps = (bits) => ({ bits, scaleDType: "f16" });
/** Weights by what is measured of them. */
const kinds = {
  ...Object.fromEntries([1, 2, 3, 4, 5, 6, 7, 8].map((bits) => [`${bits}-bit`, steps(bits)])),
  ...Object.fromEntries([2, 3, 4].map((bits) => [`${bits}-bit codebook`, { ...steps(bits), hasLevels: true }])),
  ...Object.fromEntries(
    [2, 3, 4].map((bits) => [
      `${bits}-bit shifted codebook`,
      { bits, scaleDType: "i8", hasLevels: true, isShifted: true },
    ]),
  ),
  ...Object.fromEntries([2, 3, 4].map((bits) => [`${bits}-bit i8 scales`, { bits, scaleDType: "i8" }])),
  ...Object.fromEntries([2, 4, 5].map((bits) => [`${bits}-bit with minima`, { ...steps(bits), hasMinima: true }])),
  "4-bit nested scales": { bits: 4, scaleDType: "i8", hasMinima: true },
  "6-bit nested scales": { bits: 6, scaleDType: "i8" },
};

/** A CPU of a class, as far as this machine has its features. @param {string} name */
function cpuOf(name) {
  if (name === "host") return hostCpu();
  if (name === "wasm") return { name, features: new Set(wasmFeatures()) };
  const wanted = cpuWith(name);
  const able = hostCpu().features;
  return { name, features: new Set([...wanted.features].filter((feature) => able.has(feature))) };
}

const random = createRandom(3);

/** Even levels of as many bits as those of learned codebooks: 7, or 8 in 4-bit codebooks; lower ones where a shift raises them. */
const levelsOf = (/** @type {number} */ bits, oddZero = 0) => {
  const most = learnedLevelMax(bits) + oddZero;
  return Int8Array.from({ length: 2 ** bits }, (_, i) => Math.round(((2 * i) / (2 ** bits - 1) - 1) * most));
};

/** Weights [N, K] of random integers, packed for a CPU. @param {object} kind @param {any} cpu */
function packedFor(kind, cpu) {
  const { bits, scaleDType, hasMinima = false, hasLevels = false, isShifted = false } = kind;
  const oddZero = isShifted ? oddZeroOf(bits, learnedLevelMax(bits)) : undefined;
  const shape = { n: N, k: K, bits, groupSize: GROUP };
  const spec = { ...shape, hasZeros: isShifted, hasLevels, scaleDType, hasMinima, oddZero };
  const groups = (N * K) / GROUP;
  const integers = Int8Array.from({ length: N * K }, () => Math.floor(random.uniform() * 2 ** bits) - 2 ** (bits - 1));
  const isNested = scaleDType === "i8";
  const values = () =>
    Float32Array.from({ length: groups }, () =>
      isNested ? 2 ** -12 * (1 + Math.floor(random.uniform() * 62)) : 2 ** -7,
    );
  const factors = () => new Float32Array((N * K) / 256).fill(2 ** -12);
  const scales = values();
  const weights = {
    ...{ ...spec, qvals: integers, scales },
    zeros: isShifted ? Int8Array.from(scales, (scale) => ((scale * 2 ** 12) % 2) * oddZero) : null,
    levels: hasLevels ? levelsOf(bits, oddZero) : null,
    ...(hasMinima ? { minima: values() } : {}),
    ...(isNested ? { superScales: factors() } : {}),
    ...(isNested && hasMinima ? { superMinima: factors() } : {}),
  };
  return { spec, bytes: packWeights(weights, null, selectLayout(spec, cpu)) };
}

/** The lower quartile: others on the machine only add. @param {number[]} times */
const calm = (times) => times.sort((a, b) => a - b)[times.length >> 3];

/** Milliseconds of one call for each number of rows, in turn. */
async function measure(kind, cpu) {
  const { spec, bytes } = packedFor(kind, cpu);
  const copies = Math.ceil(COLD_BYTES / bytes.length);
  const most = Math.max(...rowCounts);
  const memory = programMemory(cpu, copies * bytes.length + 64 * most * (N + K), threads);
  const allocate = (/** @type {number} */ length) => memory.allocate(Math.ceil(length / 64) * 64);
  const floats = (/** @type {number} */ length) => {
    const found = allocate(4 * length);
    return new Float32Array(found.buffer, found.byteOffset, length);
  };
  const weights = Array.from({ length: copies }, () => {
    const copy = allocate(bytes.length).subarray(0, bytes.length);
    copy.set(bytes);
    return openPacked(copy, spec);
  });
  const parts = Array.from({ length: Math.ceil(copies / CALLS) }, (_, i) => weights.slice(CALLS * i, CALLS * (i + 1)));
  const measured = rowCounts.map((m) => {
    const kernel = selectKernel(linearA8Blocks, packedQuery(weights[0], m), cpu);
    const x = floats(m * K);
    for (let i = 0; i < x.length; i++) x[i] = random.uniform() - 0.5;
    const y = floats(m * N);
    const scratch = allocate(kernel.scratchBytes?.({ m, x, weights: weights[0], y }, threads) ?? 0);
    const planOf = (part) =>
      memory.planCalls(
        part.map((each) => kernel.encode({ m, x, weights: each, y }, scratch)),
        threads,
      );
    return { kernel: kernel.name, plans: parts.map(planOf), milliseconds: [] };
  });
  // All copies for each number of rows: the last ones would be in caches for the next number else.
  for (let round = 0; round <= Number(options.rounds); round++)
    for (const { plans, milliseconds } of measured)
      for (const [i, plan] of plans.entries()) {
        const start = performance.now();
        if (plan.runHere) plan.runHere();
        else await plan.run(memory.abort);
        // In the first round, memory comes and code is compiled.
        if (round > 0) milliseconds.push((performance.now() - start) / parts[i].length);
      }
  for (const { plans } of measured) for (const plan of plans) plan.dispose();
  await memory.dispose();
  return measured.map(({ kernel, milliseconds }) => ({ kernel, ms: calm(milliseconds), bytes: bytes.length }));
}

const chosen = options.kinds?.split(",") ?? Object.keys(kinds);
const sections = [];
for (const name of options.cpu.split(",")) {
  const cpu = cpuOf(name);
  const rows = [];
  const names = new Set();
  for (const what of chosen) {
    const found = await measure(kinds[what], cpu);
    for (const { kernel } of found) names.add(kernel);
    const [one] = found;
    // Of many rows, products are all that counts.
    const ofRow = found.at(-1).ms / rowCounts.at(-1);
    const cost = ({ ms }, /** @type {number} */ i) =>
      `${(ms / one.ms).toFixed(2)} (${Math.max(1, (rowCounts[i] * ofRow) / one.ms).toFixed(2)})`;
    rows.push([
      what,
      digits(1000 * one.ms),
      digits(one.bytes / one.ms / 1e6),
      ...found.map(cost).slice(1, -1),
      digits((N * K) / ofRow / 1e6 / threads),
    ]);
    console.error(name, ...rows.at(-1));
  }
  const head = [
    "weights",
    "1 row, µs",
    "GB/s",
    ...rowCounts.slice(1, -1).map((m) => `${m} rows`),
    `GMAC/s a thread, ${rowCounts.at(-1)} rows`,
  ];
  sections.push(`## ${name}\n\nKernels: ${[...names].join(", ")}.\n\n${table(head, rows)}`);
}

writeReport("few-rows", {
  title: "Few rows",
  command: "node bench/few-rows.js",
  isPartial: true,
  sections: [
    `Linear layers [${N}, ${K}] with groups of ${GROUP} and activations in blocks, on ${threads} threads, their weights from memory: what rows cost beside one of them. In brackets: the bound, one row's time for memory or the rows' share of what ${rowCounts.at(-1)} rows take, which multiply-adds limit. WebAssembly takes two instructions and a load for 16 products where the engine has only 16-bit sums, as Node 20 has: four rows from a cache end at 29 GMAC/s a thread. With one instruction (Node 26 on AVX-VNNI) they end at 45. Two rows that took eight columns at once, to load activations half as often, were no faster. \`zen3\` and \`zen4\` are kernels for those CPUs, run on this one (optimized by \`node scripts/native/build.js --fast\`). Asked of 2, 4 and 8 rows of 4 bits: 1.15, 1.4, 2.3 on AVX2 (zen3), 1.1, 1.25, 2.0 with VNNI or AMX, 1.2, 1.7, 3.0 in WebAssembly; of 2 and 3 bits at most 1.3 times that.`,
    ...sections,
  ],
});
