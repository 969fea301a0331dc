/**
 * Measures every native kernel that this machine can run, with several bit widths and numbers of rows: time, bytes and
 * operations a second, and their parts of the measured peaks. Writes bench/results/kernels.md.
 * `node bench/kernels.js [--family linearA8] [--kernel avx512] [--bits 2,4] [--m 1,512] [--group 32] [--threads 2] [--targets
 * native,reference]`
 */
import { parseArgs } from "node:util";
import { hostCpu } from "../dist/index.js";
import * as kernelTable from "../dist/kernels/families/index.js";
import { families, variantsOf } from "./kernel-cases.js";
import { multiplyAdds, readBandwidth, requireAddon } from "./peak.js";
import { commit, digits, table, writeReport } from "./report.js";

/** Weights come from memory, not from caches: copies of at least so many bytes take turns. */
const COLD_BYTES = 256e6;
/** Rows up to which memory may be what limits. */
const COLD_ROWS_MAX = 16;
const MIN_SECONDS = 0.04;
const RUNS_MIN = 3;
/** Calls that would need longer are left out. */
const PATIENCE_SECONDS = 0.5;

const list = (text) => text.split(",").map(Number);
const { values: options } = parseArgs({
  options: {
    family: { type: "string" },
    kernel: { type: "string" },
    bits: { type: "string", default: "2,3,4,8" },
    m: { type: "string", default: "1,4,512" },
    group: { type: "string", default: "32" },
    targets: { type: "string", default: "native" },
    threads: { type: "string", default: String(requireAddon().defaultThreads()) },
  },
});
const threads = Number(options.threads);
const targets = options.targets.split(",");
const wanted = { bits: list(options.bits), rowCounts: list(options.m), groupSizes: list(options.group) };

/** A function that runs a kernel once on each copy of its arguments, in one plan where it is native. */
function runner(kernel, copies) {
  const bytes = Math.max(...copies.map((args) => kernel.scratchBytes?.(args, threads) ?? 0));
  const scratch = new Uint8Array(bytes);
  if (!kernel.encode) {
    const runs = copies.map((args) => kernel.bind(args, scratch, threads));
    return () => {
      for (const run of runs) run();
    };
  }
  const addon = requireAddon();
  const plan = addon.createPlan(
    copies.map((args) => kernel.encode(args, scratch)),
    threads,
  );
  return () => addon.runPlan(plan, threads);
}

function secondsOf(run) {
  const start = performance.now();
  run();
  return (performance.now() - start) / 1000;
}

/** Best time of one call, seconds. */
function measure(kernel, { args, bytes }, m) {
  const first = [args(0)];
  const single = secondsOf(runner(kernel, first));
  if (single > PATIENCE_SECONDS) return single;
  const wantedCopies = m <= COLD_ROWS_MAX ? Math.ceil(COLD_BYTES / bytes) : 1;
  const copies = Math.max(1, Math.min(wantedCopies, Math.floor(PATIENCE_SECONDS / single), 400));
  const run = runner(kernel, [...first, ...Array.from({ length: copies - 1 }, (_, i) => args(i + 1))]);
  let best = Number.POSITIVE_INFINITY;
  let total = 0;
  for (let runs = 0; runs < RUNS_MIN || total < MIN_SECONDS; runs++) {
    const seconds = secondsOf(run);
    total += seconds;
    best = Math.min(best, seconds / copies);
  }
  return best;
}

const percent = (part, whole) => (part && whole ? `${((100 * part) / whole).toFixed(0)} %` : "");

/** A line of the report. */
function reportRow(kernel, { bytes, macs, type: wanted, what }, seconds, peaks) {
  const type = kernel.needs.includes("amx_bf16") ? "bf16" : wanted;
  return [
    kernel.name,
    what,
    digits(1e6 * seconds),
    digits(bytes / seconds / 1e9),
    percent(bytes / seconds, peaks.bandwidth),
    macs ? digits((2 * macs) / seconds / 1e9) : "",
    percent(macs / seconds, peaks[type]),
  ];
}

/** Lines for one kernel. Cases differ in m fastest, and what one took tells what the next will take. */
function kernelRows(family, kernel, peaks) {
  const rows = [];
  let last = { m: Number.POSITIVE_INFINITY, seconds: 0 };
  for (const variant of variantsOf(family, kernel, wanted)) {
    const grows = variant.m > last.m;
    if (grows && (last.seconds * variant.m) / last.m > PATIENCE_SECONDS) continue;
    const example = families[family].make(variant);
    const seconds = measure(kernel, example, variant.m);
    last = { m: variant.m, seconds };
    rows.push(reportRow(kernel, example, seconds, peaks));
    console.error(rows.at(-1).join("  "));
  }
  return rows;
}

/** Runs over some families keep the others' figures; any other choice is a table of its own. */
const isApart = process.argv.slice(2).some((word) => word.startsWith("--") && !word.startsWith("--family"));

const gops = (macs) => (macs ? `${digits((2 * macs) / 1e9)} GOPS` : "not measured");

/** The peaks of now, which change on shared machines, and how a report tells them. */
function measurePeaks() {
  const memory = new Uint8Array(512e6).fill(1);
  const [i8, f32, bf16] = ["i8", "f32", "bf16"].map((type) => multiplyAdds(type, threads));
  const bandwidth = readBandwidth([memory], threads);
  const text = `read ${digits(bandwidth / 1e9)} GB/s, int8 ${gops(i8)}, float32 ${gops(f32)}, bf16 ${gops(bf16)}`;
  return { peaks: { bandwidth, i8, f32, bf16 }, text };
}

const head = ["kernel", "call", "µs", "GB/s", "of read peak", "GOPS", "of peak"];

/** Sections of the families measured by this run. @type {string[]} */
const sections = [];

/** Written anew after each family, so that a run cut short leaves what it found. */
function report() {
  writeReport(isApart ? "kernels-part" : "kernels", {
    title: "Kernels",
    command: "npm run bench:kernels",
    isPartial: !isApart,
    sections: [
      `On ${threads} threads. Peaks are measured just before each family, by the fastest instructions of this CPU (an operation is half a multiply-add); rows of AMX bf16 are compared with bf16. Best of several runs; up to ${COLD_ROWS_MAX} rows the weights come from memory.`,
      ...sections,
    ],
  });
}

const cpu = hostCpu();
const chosen = options.family?.split(",") ?? Object.keys(kernelTable);
let found = 0;
for (const [family, kernels] of Object.entries(kernelTable)) {
  if (!chosen.includes(family)) continue;
  const runnable = kernels.filter(({ name, needs, target }) => {
    const isReadable = target !== "wasm" || !families[family]?.isNative;
    const runs = targets.includes(target) && isReadable && needs.every((feature) => cpu.features.has(feature));
    return runs && name.includes(options.kernel ?? "");
  });
  found += runnable.length;
  if (runnable.length === 0) continue;
  if (!families[family]) {
    console.error(`${family}: not measured, bench/kernel-cases.js has no case of it`);
    continue;
  }
  const { peaks, text } = measurePeaks();
  const rows = runnable.flatMap((kernel) => kernelRows(family, kernel, peaks));
  const origin = `on commit ${commit()}, ${new Date().toISOString().slice(0, 10)}`;
  if (rows.length > 0) sections.push(`## ${family}\n\nPeaks: ${text}. Measured ${origin}.\n\n${table(head, rows)}`);
  report();
}
if (found === 0) {
  console.error("no row of those names, families and targets runs on this CPU (npx lowbit kernels lists all rows)");
  process.exitCode = 1;
}
