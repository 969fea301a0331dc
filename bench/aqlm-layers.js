/**
 * Compares one AQLM layer with our own 4-bit group-32 kernels, the published lookup loop and the aqlm package. Weights are read
 * from memory (copies larger than the caches take turns), building tables is included, kernels take turns, figures are medians.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { aqlmFields } from "../dist/aqlm/arguments.js";
import { aqlmKernels } from "../dist/aqlm/kernels.js";
import { openCodes, packCodes } from "../dist/aqlm/layout.js";
import { loadNativeKernels, nativeArguments, nativeKernels } from "../dist/extension/index.js";
import { hostCpu } from "../dist/index.js";
import { linearA8 } from "../dist/kernels/families/linear/kernels.js";
import { openPacked, packWeights } from "../dist/kernels/layout/packed.js";
import { zeroedBytes } from "../dist/kernels/plan.js";
import { selectKernel, selectLayout } from "../dist/kernels/select.js";
import { createRandom } from "../dist/text/random.js";
import { baseFlags, featureFlags, sourceOf } from "../scripts/native/sources.js";
import { requireAddon } from "./peak.js";
import { median } from "./report.js";

/** More than the caches hold. */
const POOL_BYTES = 400e6;
/** One call of everything in a round takes at most so long; fewer copies do. */
const ROUND_SECONDS = 0.15;

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

/** Libraries of kernels that are loaded. */
const loaded = new Set();

/** What lookup-loop.cc is compiled for: gathers of this machine are not always faster than plain loads. */
const loopTargets = { baseline: [], native: ["-march=native"] };

/** Compiles a file of bench/ to a library of kernels, and loads it. @param {string} file @param {string} name @param {string[]} flags */
function loadLibrary(file, name, flags) {
  const path = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
  mkdirSync(path("build/bench"), { recursive: true });
  const [compiler, ...first] = (process.env.CXX ?? "c++").split(" ");
  const library = path(`build/bench/${name}.so`);
  if (loaded.has(library)) return;
  const common = ["-O3", "-std=c++17", "-shared", "-fPIC", "-I", path("native")];
  const { status, stderr } = spawnSync(compiler, [...first, ...common, ...flags, path(`bench/${file}`), "-o", library]);
  if (status !== 0) throw new Error(`${file}: ${stderr}`);
  loadNativeKernels(library);
  loaded.add(library);
}

/** Files of table kernels that split inputs, by the target in their kernels' names, and the functions of their rows. */
const splitFiles = {
  avx512_vbmi: ["x86/aqlm_avx512vbmi.cc", "aqlm_avx512vbmi_rows"],
  avx2: ["x86/aqlm_lut_avx2.cc", "aqlm_lut_avx2_rows"],
  neon: ["arm/aqlm_tbl_neon.cc", "aqlm_tbl_neon_rows"],
};

/** The kernel that this machine runs for one row of x, split over inputs as it is, and over outputs. */
export function splitKernels() {
  const chosen = chosenKernel("2x8", 1);
  const found = Object.entries(splitFiles).find(([target]) => chosen.name.endsWith(target));
  if (!found) return [];
  const [file, rows] = found[1];
  const { features } = sourceOf(process.arch, file);
  const flags = [...baseFlags(), ...featureFlags(process.arch, features, "cc")];
  loadLibrary("aqlm-split.cc", "aqlm-split", [
    ...flags,
    `-DSPLIT_FILE="../packages/aqlm/native/${file}"`,
    `-DSPLIT_ROWS=${rows}`,
  ]);
  const byOutputs = nativeKernels("aqlm_by_outputs", nativeArguments("aqlm_by_outputs", aqlmFields));
  return [chosen, byOutputs.find(({ name }) => name === `${chosen.name}_by_outputs`)];
}

/** The kernels of lookup-loop.cc. */
function lookupLoops() {
  for (const [target, flags] of Object.entries(loopTargets))
    loadLibrary("lookup-loop.cc", `lookup-loop-${target}`, [`-DLOOP_TARGET="${target}"`, ...flags]);
  return nativeKernels("lookup_loop", ({ n, k, x, codes, vectors, scales, y }) => ({
    scalars: [n, k],
    buffers: [x, codes, vectors, scales, y],
  }));
}

function lookupRival({ n, k }, loop) {
  const args = () => ({
    ...{ n, k, x: floats(k), codes: filled(zeroedBytes((n * k) / 4), bytes) },
    ...{ vectors: floats(2 * 256 * 8), scales: floats(n), y: floats(n) },
  });
  return { name: loop.name, kernel: loop, byteLength: (n * k) / 4, args };
}

/** The kernel that this machine runs for a form and a number of rows. @param {string} form @param {number} m */
export function chosenKernel(form, m) {
  return selectKernel(aqlmKernels, { layout: layoutOf(form), bits: null, m }, cpu);
}

const layoutOf = (form) => (form.endsWith("x8") ? "aqlm_tiles8" : "aqlm_tiles");

/**
 * What this machine runs for a form and any of these numbers of rows; the same code listed for several m is one.
 * @param {string} form @param {number[]} ms
 */
export function chosenKernels(form, ms) {
  const found = new Map();
  for (const kernel of ms.map((m) => chosenKernel(form, m))) {
    const code = kernel.name.replace(/_\d+x/, "_");
    if (!found.has(code)) found.set(code, kernel);
  }
  return [...found.values()];
}

/**
 * @typedef {object} Found
 * @property {string} what
 * @property {string} kernel
 * @property {number} seconds
 * @property {number} byteLength Of the weights.
 */

/**
 * Times of 4-bit weights, then of AQLM weights by each of some kernels, then of the published loop as compilers make it
 * where it is wanted.
 * @param {{ n: number, k: number, m: number }} shape @param {number} threads
 * @param {{ form: string, kernels: any[], loop?: boolean, rounds: number }} options
 * @returns {Found[]}
 */
export function compare(shape, threads, { form, kernels, loop = false, rounds }) {
  const rivals = [
    { what: "4-bit g32", ...fourBit(shape) },
    ...kernels.map((kernel) => ({ what: form, ...aqlm(shape, form, kernel) })),
    ...(loop ? lookupLoops().map((kernel) => ({ what: "2x8, published loop", ...lookupRival(shape, kernel) })) : []),
  ];
  const runners = rivals.map((rival) => runner(rival, threads));
  const times = rivals.map(() => []);
  for (let round = 0; round < rounds; round++) for (const [i, { time }] of runners.entries()) times[i].push(time());
  return rivals.map(({ what, name, byteLength }, i) => ({ what, kernel: name, seconds: median(times[i]), byteLength }));
}

/** Seconds of the aqlm package's layer and of ours, on one thread. @param {string} python @param {string} form @param {number} rounds */
export function besidePackage(python, form, { n, k }, rounds) {
  const script = fileURLToPath(new URL("aqlm-package.py", import.meta.url));
  const env = { ...process.env, NUMBA_NUM_THREADS: "1" };
  const { status, stdout, stderr } = spawnSync(python, [script, form, String(n), String(k)], { encoding: "utf8", env });
  if (status !== 0) throw new Error(`${script}: ${stderr}`);
  const kernel = chosenKernel(form, 1);
  const { time } = runner(aqlm({ n, k, m: 1 }, form, kernel), 1);
  const ours = median(Array.from({ length: rounds }, time));
  return { form, kernel: kernel.name, package: JSON.parse(stdout), ours };
}
