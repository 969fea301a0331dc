/** The limits of this machine, measured by native loops: bytes read and multiply-adds a second. */
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { nativeAddon } from "../dist/kernels/native/addon.js";
import { kernelsOf, readBandwidth as readMemories, secondsOf } from "../dist/kernels/native/read-bandwidth.js";
import { loadNativeKernels } from "../dist/kernels/native/rows.js";
import { fileFlags, objectName, root, sourceOf } from "../scripts/native/sources.js";

/** Enough for clock speeds to settle, short enough for a shared machine. */
const MACS_PER_TILE = 1e9;
const RUNS = 3;

/** The addon, which everything here is about. */
export function requireAddon() {
  const addon = nativeAddon();
  if (!addon) throw new Error("the native addon is not built; run node scripts/native/build.js");
  return addon;
}

/** Bytes a second that `threads` threads read of memories. @param {Parameters<typeof readMemories>} given */
export function readBandwidth(...given) {
  const found = readMemories(...given);
  if (found === null) throw new Error("the native addon has no loop that reads memory here");
  return found;
}

const folder = join(root, "bench", "peaks");
let isLoaded = false;

/** Compiles the loops of bench/peaks/, where they are older than their sources, and adds them to the addon's rows. */
function loadPeaks() {
  if (isLoaded || process.arch !== "x64") return;
  const built = join(root, "build", "peaks");
  const library = join(built, "peaks.so");
  mkdirSync(built, { recursive: true });
  const timeOf = (/** @type {string} */ path) => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const files = readdirSync(folder).map((name) => join(folder, name));
  if (files.some((file) => timeOf(file) > timeOf(library))) {
    const compile = (/** @type {string[]} */ args) =>
      execFileSync(process.env.CXX ?? "c++", ["-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", ...args]);
    const objects = files
      .filter((file) => file.endsWith(".cc"))
      .map((file) => {
        const object = join(built, objectName(file.slice(folder.length + 1)));
        compile([...fileFlags("x64", sourceOf("x64", file), "cc"), "-c", file, "-o", object]);
        return object;
      });
    compile(["-shared", ...objects, "-o", library]);
  }
  loadNativeKernels(library);
  isLoaded = true;
}

/**
 * Multiply-adds a second on `threads` threads, the best of this CPU's ways; null where there is no loop for it.
 * @param {"i8" | "bf16" | "f32"} type @param {number} threads
 */
export function multiplyAdds(type, threads) {
  const addon = requireAddon();
  loadPeaks();
  const tiles = 4 * threads;
  const call = { scalars: [MACS_PER_TILE, tiles], buffers: [] };
  const rates = kernelsOf(addon, `measure_macs_${type}`).flatMap((kernel) =>
    Array.from({ length: RUNS }, () => {
      const seconds = secondsOf(addon, [{ kernel, ...call }], threads);
      return (MACS_PER_TILE * tiles) / seconds;
    }),
  );
  return rates.length > 0 ? Math.max(...rates) : null;
}

/**
 * A plan of `macs` multiply-adds on `threads` threads, by the widest units that this CPU has; null where there is no loop for it.
 * @param {"i8" | "bf16" | "f32"} type @param {number} threads @param {number} macs
 */
export function multiplyAddPlan(type, threads, macs) {
  const addon = requireAddon();
  loadPeaks();
  const kernel = kernelsOf(addon, `measure_macs_${type}`).at(-1);
  if (kernel === undefined) return null;
  const buffers = [new Uint8Array(0)];
  return addon.createPlan([{ kernel, target: "native", scalars: [macs / threads, threads], buffers }], threads);
}
