/**
 * What bounds prompts on AMX: the peak of tiles, linear layers of the 1B shape alone (4 bits, groups of 32) beside it, and how
 * fast tokens deep in a prompt can be beside its first 512. Each batch measures the peak, then the linear layers, since tiles
 * are fast and slow in spells. Times are of processors: others on the machine add to the clock's.
 * `node bench/prompt-bounds.js [--threads 1,2] [--rounds 40] [--shape 1b] [--rows 512]` → results/prompt-bounds.md
 */
import { loadavg } from "node:os";
import { parseArgs } from "node:util";
import { hostCpu } from "../dist/index.js";
import { linearA8Blocks } from "../dist/kernels/families/linear/kernels.js";
import { openPacked, packWeights } from "../dist/kernels/layout/packed.js";
import { packedQuery, selectKernel, selectLayout } from "../dist/kernels/select.js";
import { createRandom } from "../dist/text/random.js";
import { multiplyAddPlan, requireAddon } from "./peak.js";
import { digits, median, rowsBefore, table, writeReport } from "./report.js";
import { shapeNamed } from "./shapes.js";

const { values: options } = parseArgs({
  options: {
    threads: { type: "string", default: "1,2" },
    rounds: { type: "string", default: "40" },
    shape: { type: "string", default: "1b" },
    rows: { type: "string", default: "512" },
  },
});
const rows = Number(options.rows);
const GROUP = 32;
/** Tokens a second asked of the 1B shape on one and on two threads. */
const ASKED = { 1: 430, 2: 835 };
/** Spans of a prompt, by the table that measures them. */
const SPANS = [
  [1500, 2000],
  [3072, 4096],
  [14000, 16000],
  [30720, 32720],
];
const FIRST = 512;

const random = createRandom(3);
const cpu = hostCpu();
const addon = requireAddon();

/** Rows and columns of a layer's matrices, those of queries, keys and values as one, and gate and up, as programs have them. */
function matricesOf({ hidden, intermediate, heads, kvHeads, headDim }) {
  return [
    [(heads + 2 * kvHeads) * headDim, hidden],
    [hidden, heads * headDim],
    [2 * intermediate, hidden],
    [hidden, intermediate],
  ];
}
/** Multiply-adds of a token in linear layers, and in attention for each position before it. */
const linearMacs = (shape) => shape.layers * matricesOf(shape).reduce((sum, [n, k]) => sum + n * k, 0);
const attentionMacs = ({ layers, heads, headDim }) => 2 * layers * heads * headDim;

/** Arguments of a linear layer on random weights [n, k]. */
function linearCall(n, k) {
  const spec = { n, k, bits: 4, groupSize: GROUP, hasZeros: false, hasLevels: false, scaleDType: "f16" };
  const qvals = Int8Array.from({ length: n * k }, () => Math.floor(random.uniform() * 16) - 8);
  const scales = new Float32Array((n * k) / GROUP).fill(2 ** -7);
  const packed = packWeights({ ...spec, qvals, scales, zeros: null, levels: null }, null, selectLayout(spec, cpu));
  const x = Float32Array.from({ length: rows * k }, () => random.uniform() - 0.5);
  return { m: rows, x, weights: openPacked(packed, spec), y: new Float32Array(rows * n) };
}

const calls = matricesOf(shapeNamed(options.shape)).map(([n, k]) => linearCall(n, k));
const kernels = calls.map((args) => selectKernel(linearA8Blocks, packedQuery(args.weights, rows), cpu));
const names = [...new Set(kernels.map(({ name }) => name))].join(", ");
const layerMacs = (rows * linearMacs(shapeNamed(options.shape))) / shapeNamed(options.shape).layers;
/** A plan does not keep the memory that it works on. */
const kept = [];

/** Multiply-adds a second of a plan, by processor time: what they would be if all threads had a processor. */
function rateOf(plan, macs, threads) {
  const before = process.cpuUsage();
  addon.runPlan(plan, threads);
  const { user, system } = process.cpuUsage(before);
  return (macs * threads) / ((user + system) / 1e6);
}

/** Multiply-adds a second of tiles alone and of one layer's linear layers, in turn. */
function measured(threads) {
  const scratches = calls.map((args, i) => new Uint8Array(kernels[i].scratchBytes?.(args, threads) ?? 0));
  kept.push(scratches);
  const encoded = calls.map((args, i) => kernels[i].encode(args, scratches[i]));
  const parts = [
    { name: "bf16", macs: layerMacs, plan: multiplyAddPlan("bf16", threads, layerMacs) },
    { name: "linears", macs: layerMacs, plan: addon.createPlan(encoded, threads) },
    { name: "int8", macs: 2 * layerMacs, plan: multiplyAddPlan("i8", threads, 2 * layerMacs) },
  ];
  const found = { bf16: [], linears: [], int8: [] };
  for (let round = 0; round <= Number(options.rounds); round++)
    for (const { name, macs, plan } of parts) {
      const rate = rateOf(plan, macs, threads);
      // In the first round, memory comes.
      if (round > 0) found[name].push(rate);
    }
  return found;
}

const best = (values) => Math.max(...values);
const billions = (value) => digits(value / 1e9);
const percent = (value) => `${Math.round(100 * value)} %`;

const shape = shapeNamed(options.shape);
const rates = new Map();
const linearRows = options.threads.split(",").map((text) => {
  const threads = Number(text);
  const found = measured(threads);
  rates.set(threads, found);
  const tokens = (rate) => digits(rate / linearMacs(shape));
  const ratios = found.linears.map((rate, i) => rate / found.bf16[i]);
  const row = [
    text,
    `${billions(best(found.bf16))} / ${billions(median(found.bf16))}`,
    `${billions(best(found.int8))} / ${billions(median(found.int8))}`,
    tokens(best(found.bf16)),
    `${tokens(best(found.linears))} / ${tokens(median(found.linears))}`,
    `${percent(best(found.linears) / best(found.bf16))} / ${percent(median(ratios))}`,
    String(ASKED[threads] ?? ""),
  ];
  console.error(...row);
  return row;
});

/** The report of measured depths has a row of ours for each shape, with the share of the first tokens' speed in brackets. */
function sharesMeasured(name) {
  const [, ...cells] = rowsBefore("prompt-depth", `## ${name}`).find(([engine]) => engine === "lowbit") ?? [""];
  return cells.slice(1).map((cell) => cell.replace(/^.*\((.*)\)$/, "$1"));
}

/** The largest share of the first tokens' speed, where attention takes `factor` times the time of linear layers' multiply-adds. */
function bestShare(of, from, to, factor) {
  const seconds = (position) => linearMacs(of) + factor * attentionMacs(of) * position;
  return seconds(FIRST / 2) / seconds((from + to) / 2);
}

const [{ bf16, linears }] = rates.values();
/** How many times as long a multiply-add of linear layers takes as one of tiles alone. */
const slower = best(bf16) / best(linears);
const depthRows = ["1b", "qwen2.5-0.5b"].flatMap((name) => {
  const of = shapeNamed(name);
  const shares = sharesMeasured(name);
  return SPANS.map(([from, to], i) => [
    name,
    `${from} to ${to}`,
    digits(linearMacs(of) / 1e6),
    digits((attentionMacs(of) * (from + to)) / 2e6),
    bestShare(of, from, to, 1).toFixed(2),
    bestShare(of, from, to, 1 / slower).toFixed(2),
    shares[i] ?? "",
  ]);
});

const linearHead = [
  "threads",
  "bf16 tiles alone, GMAC/s",
  "int8 tiles alone",
  "linear layers at that peak, tokens a second",
  "linear layers measured",
  "share of bf16 tiles",
  "asked of prompts",
];
const depthHead = [
  "shape",
  "tokens",
  "linear layers, million multiply-adds a token",
  "attention",
  "share if all ran at one speed",
  "share if attention ran at the peak",
  "measured",
];
writeReport("prompt-bounds", {
  title: "What bounds prompts",
  command: "node bench/prompt-bounds.js",
  sections: [
    `Multiply-adds of bf16 and int8 tiles from registers, which nothing that must load its numbers reaches, and linear layers of the ${options.shape} shape in turn with them: ${rows} tokens through a layer's matrices of 4 bits (groups of ${GROUP}, ${names}), the best and the median of ${options.rounds} batches, by processor time. Tokens a second are of all layers, without attention and the head. Load of the machine at the end: ${loadavg()[0].toFixed(1)}.`,
    `## linear layers\n\n${table(linearHead, linearRows)}`,
    `## tokens deep in a prompt\n\nThe speed beside that of the first ${FIRST} tokens, with nothing but linear layers and attention in a prompt. Measured: [by depth](prompt-depth.md). No product runs faster than tiles, and in the best case linear layers are ${digits(slower)} times slower than tiles alone; with faster linear layers all shares fall towards those of one speed. There 0.6 from 14,000 tokens on cannot be had on either shape, nor 0.9 from 1,500 and 0.8 from 3,072 on Qwen2.5's. Attention's own tile instructions, with loads and stores, take [41 cycles a product](attention.md) where tiles alone take 16, and its other work has to hide behind them.\n\n${table(depthHead, depthRows)}`,
  ],
});
