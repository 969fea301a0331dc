/**
 * Compares kernels of recurrent layers with gated MLPs, in turns: time per multiply-add, in the dimensions of Qwen3.5-0.8B.
 * `node bench/recurrent.js [--m 1,64,512] [--threads 2] [--rounds 21]`
 */
import { parseArgs } from "node:util";
import { hostCpu } from "../dist/index.js";
import * as kernelTable from "../dist/kernels/families/index.js";
import { layouts, openPacked, packWeights } from "../dist/kernels/layout/packed.js";
import { selectKernel } from "../dist/kernels/select.js";
import { watched } from "./calm.js";
import { linearRecurrence, shortConvolution } from "./kernel-cases.js";
import { multiplyAdds, requireAddon } from "./peak.js";
import { digits, median, table, writeReport } from "./report.js";

const HIDDEN = 1024;
const INTERMEDIATE = 3584;
const BITS = 4;
const GROUP = 32;

const { values: options } = parseArgs({
  options: {
    m: { type: "string", default: "1,64,512" },
    threads: { type: "string", default: String(requireAddon().defaultThreads()) },
    rounds: { type: "string", default: "21" },
  },
});
const threads = Number(options.threads);
const cpu = hostCpu();
const kernels = Object.fromEntries(Object.entries(kernelTable));

const noise = (length) => Float32Array.from({ length }, (_, i) => Math.sin(i * i) / 8);

/** A call for a plan. */
function callOf(family, query, args) {
  const kernel = selectKernel(kernels[family], { layout: null, bits: null, ...query }, cpu);
  return kernel.encode(args, new Uint8Array(kernel.scratchBytes?.(args, threads) ?? 0));
}

const gate = (m, gateUp, y) =>
  callOf("gateHalves", { m }, { rows: m, dim: INTERMEDIATE, gateUp, y, activation: "silu" });

/** Weights [n, k] of 4 bits. */
function packed(n, k) {
  const spec = { n, k, bits: BITS, groupSize: GROUP, hasZeros: false, hasLevels: false, scaleDType: "f16" };
  const qvals = Int8Array.from({ length: n * k }, (_, i) => ((i * 7919) % 2 ** BITS) - 2 ** (BITS - 1));
  const scales = new Float32Array((n * k) / GROUP).fill(2 ** -7);
  const layout = layouts.find(({ name }) => name === "panel16");
  return openPacked(packWeights({ ...spec, qvals, scales, zeros: null, levels: null }, null, layout), spec);
}

/** The calls of a gated MLP. */
const mlps = {
  "gated MLP, 4-bit weights, int8 activations"(m) {
    const [up, down] = [packed(2 * INTERMEDIATE, HIDDEN), packed(HIDDEN, INTERMEDIATE)];
    const [x, inner, halves] = [m * HIDDEN, m * INTERMEDIATE, 2 * m * INTERMEDIATE].map(noise);
    const y = new Float32Array(m * HIDDEN);
    const query = { layout: "panel16", bits: BITS, m };
    return [
      callOf("linearA8", query, { m, x, weights: up, y: halves }),
      gate(m, halves, inner),
      callOf("linearA8", query, { m, x: inner, weights: down, y }),
    ];
  },
  "gated MLP, float32"(m) {
    const weights = (n, k) => ({ dtype: "f32", data: noise(n * k) });
    const [x, inner, halves] = [m * HIDDEN, m * INTERMEDIATE, 2 * m * INTERMEDIATE].map(noise);
    const y = new Float32Array(m * HIDDEN);
    const [up, down] = [weights(2 * INTERMEDIATE, HIDDEN), weights(HIDDEN, INTERMEDIATE)];
    const linear = (n, k, given) => callOf("linearFloat", { m }, { m, n, k, bias: null, ...given });
    return [
      linear(2 * INTERMEDIATE, HIDDEN, { x, weights: up, y: halves }),
      gate(m, halves, inner),
      linear(HIDDEN, INTERMEDIATE, { x: inner, weights: down, y }),
    ];
  },
};

/** What is measured of `m` rows: a plan, and its multiply-adds. */
function contestants(m) {
  const addon = requireAddon();
  const planned = (what, macs, calls) => ({ what, macs, calls, plan: addon.createPlan(calls, threads) });
  const alone = (family, { what, macs, args }) => planned(what, macs, [callOf(family, { m }, args())]);
  return [
    alone("linearRecurrence", linearRecurrence({ m, dtype: "delta" })),
    alone("linearRecurrence", linearRecurrence({ m, dtype: "plain" })),
    alone("shortConvolution", shortConvolution({ m })),
    ...Object.entries(mlps).map(([what, calls]) => planned(what, 3 * m * HIDDEN * INTERMEDIATE, calls(m))),
  ];
}

/** Least picoseconds of a multiply-add by what multiplies: what no kernel can be faster than. */
function limits() {
  const ways = /** @type {const} */ ([
    ["integers of 8 bits, as those of 4-bit weights", "i8", 1],
    ["floats, exactly", "f32", 1],
    ["floats as sums of two bf16, by three products", "bf16", 3],
  ]);
  const rows = ways.map(([what, type, products]) => {
    const rate = multiplyAdds(type, threads);
    return [what, rate === null ? "none" : digits((1e12 * products) / rate)];
  });
  return `## Limits\n\n${table(["multiplies", "ps a multiply-add at the CPU's peak"], rows)}`;
}

const sections = [limits()];
for (const m of options.m.split(",").map(Number)) {
  const all = contestants(m);
  /** Nanoseconds by contestants. @type {number[][]} */
  const times = all.map(() => []);
  const { others } = await watched([process.pid], async () => {
    for (let round = 0; round < Number(options.rounds); round++)
      for (const [i, { plan }] of all.entries()) {
        const start = performance.now();
        requireAddon().runPlan(plan, threads);
        times[i].push(1e6 * (performance.now() - start));
      }
  });
  const rows = all.map(({ what, macs }, i) => {
    const each = (of) => digits((1000 * of(times[i])) / macs);
    const least = (values) => Math.min(...values);
    const ratios = [3, 4].map((mlp) => digits(least(times[i]) / macs / (least(times[mlp]) / all[mlp].macs)));
    return [what, digits(median(times[i]) / 1000), each(median), each(least), ...ratios];
  });
  const head = ["call", "µs", "ps a multiply-add", "best", "best beside the 4-bit MLP", "beside the float one"];
  sections.push(`## ${m} rows\n\nOthers kept ${others.toFixed(1)} cores busy.\n\n${table(head, rows)}`);
}
writeReport("recurrent", {
  title: "Recurrent layers",
  command: "node bench/recurrent.js",
  sections: [
    `On ${threads} threads, in turn, medians and best of ${options.rounds} rounds. A row of a head of the gated delta rule is counted as 4 multiply-adds for each number of its state (decay, S^T k, k u^T, S^T q), without the delta rule as 3.`,
    ...sections,
  ],
});
