/**
 * AQLM kernels beside our own 4-bit group-32 ones and the published lookup loop, on one layer: weights come from memory
 * (copies larger than the caches take turns), table building included, the rivals ask in turn, medians. Then the aqlm
 * package's CPU path, where LOWBIT_PYTHON names a Python that has it. Writes bench/results/aqlm.md.
 * `node bench/aqlm.js [--shapes 4096x4096,14336x4096] [--forms 2x8,1x16] [--m 1,128] [--threads 1,2] [--rounds 9]
 *  [--model 8b-8] [--whole 8b]`: with `--model` whole models instead, in results/aqlm-models.md; `--whole 8b` measures the
 * memory of all layers, too.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { aqlmKernels } from "../dist/aqlm/kernels.js";
import { openCodes, packCodes } from "../dist/aqlm/layout.js";
import { hostCpu, loadNativeKernels, nativeKernels } from "../dist/index.js";
import { openPacked, packWeights } from "../dist/kernels/layout/packed.js";
import { zeroedBytes } from "../dist/kernels/plan.js";
import { selectKernel, selectLayout } from "../dist/kernels/select.js";
import { linearA8 } from "../dist/kernels/table.js";
import { createRandom } from "../dist/text/random.js";
import { modelMemory, modelSpeeds } from "./aqlm-models.js";
import { requireAddon } from "./peak.js";
import { digits, median, table, writeReport } from "./report.js";

/** More than the caches hold. */
const POOL_BYTES = 400e6;
/** One call of everything in a round takes at most so long; fewer copies do. */
const ROUND_SECONDS = 0.15;

const list = (text) => text.split(",");
const { values: options } = parseArgs({
  options: {
    shapes: { type: "string", default: "4096x4096,14336x4096,4096x14336" },
    forms: { type: "string", default: "2x8,1x16" },
    m: { type: "string", default: "1,128" },
    threads: { type: "string", default: "1,2" },
    rounds: { type: "string", default: "9" },
    kernel: { type: "string" },
    model: { type: "string", default: "" },
    whole: { type: "string", default: "" },
  },
});

const random = createRandom(5);
const noise = Float32Array.from({ length: 65521 }, () => 2 * random.uniform() - 1);
const bytes = Uint8Array.from({ length: 1 << 20 }, () => 256 * random.uniform());
const cpu = hostCpu();
const addon = requireAddon();

function filled(target, source) {
  for (let at = 0; at < target.length; at += source.length) target.set(source.subarray(0, target.length - at), at);
  return target;
}

/** Bytes on memory of their own, as programs have them. */
function copyOf(data) {
  const target = zeroedBytes(data.byteLength);
  target.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  return target;
}

const floats = (length) => {
  const target = zeroedBytes(4 * length);
  return filled(new Float32Array(target.buffer, target.byteOffset, length), noise);
};

/** Packed weights of this shape: rivals of several rows and threads have the same. */
const packedBefore = new Map();
function packedOnce(key, pack) {
  const [shape] = key.split(" ");
  for (const name of packedBefore.keys()) if (!name.startsWith(shape)) packedBefore.delete(name);
  if (!packedBefore.has(key)) packedBefore.set(key, pack());
  return packedBefore.get(key);
}

/** Bytes of one copy of a rival's weights, and arguments on the copy of that index. */
function fourBit({ n, k, m }) {
  const spec = { n, k, bits: 4, groupSize: 32, hasZeros: false, hasLevels: false, scaleDType: "f16" };
  const layout = selectLayout(spec, cpu);
  const packed = packedOnce(`${n}x${k} 4-bit`, () => {
    const nibbles = Int8Array.from(bytes, (b) => (b & 15) - 8);
    const qvals = filled(new Int8Array(n * k), nibbles);
    const scales = new Float32Array((n * k) / 32).fill(2 ** -7);
    return packWeights({ ...spec, qvals, scales, zeros: null, levels: null }, null, layout);
  });
  const kernel = selectKernel(linearA8, { layout: layout.name, bits: 4, m }, cpu);
  const args = () => ({ m, x: floats(m * k), weights: openPacked(copyOf(packed), spec), y: floats(m * n) });
  return { name: kernel.name, kernel, byteLength: packed.length, args };
}

function aqlm({ n, k, m }, form, kernel) {
  const [codebooks, bits] = form.split("x").map(Number);
  const sizes = { n, k, codebooks, bits, inGroup: 8, outGroup: 1 };
  const packed = packedOnce(`${n}x${k} ${form}`, () => {
    const count = (n * k * codebooks) / 8;
    const codes =
      bits === 8 ? filled(new Uint8Array(count), bytes) : filled(new Uint16Array(count), new Uint16Array(bytes.buffer));
    return packCodes({ ...sizes, codes, vectors: new Uint16Array(0), scales: new Uint16Array(0) });
  });
  const halves = (length) => {
    const target = zeroedBytes(2 * length);
    const source = Uint16Array.from(noise, (v) => (v < 0 ? 0x8000 : 0) | (0x2800 + Math.floor(Math.abs(v) * 0x400)));
    return filled(new Uint16Array(target.buffer, target.byteOffset, length), source);
  };
  const args = () => ({
    ...{ m, x: floats(m * k), codes: openCodes(copyOf(packed)), bias: null, y: floats(m * n) },
    ...{ vectors: halves(codebooks * 2 ** bits * 8), scales: halves(n) },
  });
  return { name: kernel.name, kernel, byteLength: packed.length + 16 * codebooks * 2 ** bits + 2 * n, args };
}

/** Seconds of one call, from a plan of one call on each copy. */
function runner({ kernel, byteLength, args }, threads) {
  const first = args();
  const scratch = zeroedBytes(kernel.scratchBytes(first, threads));
  const planOf = (copies) =>
    addon.createPlan(
      copies.map((copy) => kernel.encode(copy, scratch)),
      threads,
    );
  const time = (plan, calls) => {
    const start = performance.now();
    addon.runPlan(plan, threads);
    return (performance.now() - start) / 1000 / calls;
  };
  const single = time(planOf([first]), 1);
  const wanted = Math.min(Math.ceil(POOL_BYTES / byteLength), Math.max(1, Math.floor(ROUND_SECONDS / single)));
  const copies = [first, ...Array.from({ length: wanted - 1 }, args)];
  const plan = planOf(copies);
  return { time: () => time(plan, wanted), copies };
}

/** The kernel of lookup-loop.cc, compiled for this machine. */
function lookupLoop() {
  const path = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
  const library = path("build/bench/lookup-loop.so");
  mkdirSync(join(library, ".."), { recursive: true });
  const flags = ["-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-I", path("native")];
  const [compiler, ...first] = (process.env.CXX ?? "c++").split(" ");
  const { status, stderr } = spawnSync(compiler, [...first, ...flags, path("bench/lookup-loop.cc"), "-o", library]);
  if (status !== 0) throw new Error(`lookup-loop.cc: ${stderr}`);
  loadNativeKernels(library);
  const [kernel] = nativeKernels("lookup_loop", ({ n, k, x, codes, vectors, scales, y }) => ({
    scalars: [n, k],
    buffers: [x, codes, vectors, scales, y],
  }));
  return kernel;
}

const loop = lookupLoop();

function lookupRival({ n, k }) {
  const args = () => ({
    ...{ n, k, x: floats(k), codes: filled(zeroedBytes((n * k) / 4), bytes) },
    ...{ vectors: floats(2 * 256 * 8), scales: floats(n), y: floats(n) },
  });
  return { name: loop.name, kernel: loop, byteLength: (n * k) / 4, args, form: "2x8, published loop" };
}

function compare(shape, threads) {
  const query = (layout) => ({ layout, bits: null, m: shape.m });
  const rivals = [fourBit(shape)];
  for (const form of list(options.forms)) {
    const layout = form.endsWith("x8") ? "aqlm_tiles8" : "aqlm_tiles";
    const candidates = options.kernel
      ? aqlmKernels.filter(
          ({ name, layouts }) => list(options.kernel).some((part) => name.includes(part)) && layouts.includes(layout),
        )
      : [selectKernel(aqlmKernels, query(layout), cpu)];
    rivals.push(...candidates.map((kernel) => ({ ...aqlm(shape, form, kernel), form })));
  }
  if (shape.m === 1 && threads === 1 && !options.kernel) rivals.push(lookupRival(shape));
  const runners = rivals.map((rival) => runner(rival, threads));
  const times = rivals.map(() => []);
  for (let round = 0; round < Number(options.rounds); round++)
    for (const [i, { time }] of runners.entries()) times[i].push(time());
  const [base] = times.map(median);
  return rivals.map(({ name, byteLength, form = "4-bit g32" }, i) => {
    const seconds = median(times[i]);
    const what = `${form}, [${shape.n}, ${shape.k}], m ${shape.m}, ${threads} threads`;
    return [what, name, digits(1e6 * seconds), digits(byteLength / seconds / 1e9), (base / seconds).toFixed(2)];
  });
}

/** One table of all layers. */
function layerTable() {
  const rows = [];
  for (const shape of list(options.shapes))
    for (const m of list(options.m))
      for (const threads of list(options.threads)) {
        const [n, k] = shape.split("x").map(Number);
        const found = compare({ n, k, m: Number(m) }, Number(threads));
        for (const row of found) console.error(row.join("  "));
        rows.push(...found);
      }
  return table(["call", "kernel", "µs", "GB/s", "speed, 4-bit = 1"], rows);
}

/** The aqlm package's linear layers on one thread, beside ours. */
function packageTable(python) {
  const script = fileURLToPath(new URL("aqlm-package.py", import.meta.url));
  const shape = { n: 4096, k: 4096, m: 1 };
  const found = ["1x16"].map((form) => {
    const env = { ...process.env, NUMBA_NUM_THREADS: "1" };
    const { status, stdout, stderr } = spawnSync(python, [script, form, "4096", "4096"], { encoding: "utf8", env });
    if (status !== 0) throw new Error(`${script}: ${stderr}`);
    const kernel = selectKernel(aqlmKernels, { layout: "aqlm_tiles", bits: null, m: 1 }, cpu);
    const { time } = runner(aqlm(shape, form, kernel), 1);
    const ours = median(Array.from({ length: Number(options.rounds) }, time));
    const theirs = JSON.parse(stdout);
    return [form, digits(1e6 * theirs), digits(1e6 * ours), digits(theirs / ours)];
  });
  return table(["[4096, 4096], 1 thread", "aqlm package, µs", "ours, µs", "times faster"], found);
}

async function modelSections() {
  const threads = list(options.threads).map(Number);
  return [
    await modelSpeeds(options.model, threads, Number(options.rounds)),
    await modelMemory(options.model, "8b", 1024, options.whole === "8b"),
  ];
}

function layerSections() {
  const python = process.env.LOWBIT_PYTHON;
  return [layerTable(), ...(python ? [packageTable(python)] : [])];
}

const narrowed = process.argv.slice(2).join(" ");
const layersName = narrowed ? "aqlm-part" : "aqlm";
writeReport(options.model ? "aqlm-models" : layersName, {
  title: "AQLM beside 4-bit weights",
  command: `node bench/aqlm.js${narrowed ? ` ${narrowed}` : ""}`,
  sections: options.model ? await modelSections() : layerSections(),
});
