/** The limits of this machine, measured by loops of the native addon: bytes read and multiply-adds a second. */
import { nativeAddon } from "../dist/kernels/native/addon.js";
import { argumentNames, orderArguments } from "../dist/kernels/native/families.js";

/** Enough for clock speeds to settle, short enough for a shared machine. */
const MACS_PER_TILE = 1e9;
const RUNS = 3;
/** Distances in bytes that memory is asked for ahead of its use; the best one counts. */
const PREFETCH_DISTANCES = [0, 512, 2048, 8192];

/** The addon, which everything here is about. */
export function requireAddon() {
  const addon = nativeAddon();
  if (!addon) throw new Error("the native addon is not built; run node scripts/build-native.js");
  return addon;
}

/** Indexes of the rows of a family that this CPU can run. @param {string} family */
function kernelsOf(family) {
  const addon = requireAddon();
  const features = addon.cpuFeatures();
  return addon.kernels().flatMap((row, i) => (row.family === family && (row.needs & ~features) === 0 ? [i] : []));
}

/** Seconds of one run of calls without their scratch. @param {{ kernel: number, scalars: number[], buffers: any[] }[]} calls */
function secondsOf(calls, threads) {
  const addon = requireAddon();
  const withScratch = calls.map((call) => {
    const bytes = addon.scratchBytes({ ...call, buffers: [...call.buffers, new Uint8Array(0)] }, threads);
    return { ...call, buffers: [...call.buffers, new Uint8Array(bytes)] };
  });
  const plan = addon.createPlan(withScratch, threads);
  const start = performance.now();
  addon.runPlan(plan, threads);
  return (performance.now() - start) / 1000;
}

const least = (/** @type {number[]} */ values) => Math.min(...values);

/**
 * Bytes a second that `threads` threads read, the best of several ways.
 * @param {readonly Uint8Array[]} memories Together larger than the caches. @param {number} threads
 * @param {{ pick?: (seconds: number[]) => number, ahead?: readonly number[] }} [ways] What counts of the runs of one way;
 *   distances to try.
 */
export function readBandwidth(memories, threads, { pick = least, ahead: distances = PREFETCH_DISTANCES } = {}) {
  const [kernel] = kernelsOf("measure_read");
  const bytes = memories.reduce((sum, { length }) => sum + length, 0);
  const seconds = distances.map((ahead) => {
    const calls = memories.map((data) => ({
      kernel,
      ...orderArguments(argumentNames.measureRead, { bytes: data.length, rounds: 1, ahead, data }),
    }));
    return pick(Array.from({ length: RUNS }, () => secondsOf(calls, threads)));
  });
  return bytes / least(seconds);
}

/**
 * Multiply-adds a second on `threads` threads, the best of this CPU's ways; null where there is no loop for it.
 * @param {"i8" | "bf16" | "f32"} type @param {number} threads
 */
export function multiplyAdds(type, threads) {
  const tiles = 4 * threads;
  const call = orderArguments(argumentNames.measureMacs, { macs: MACS_PER_TILE, tiles });
  const rates = kernelsOf(`measure_macs_${type}`).flatMap((kernel) =>
    Array.from({ length: RUNS }, () => {
      const seconds = secondsOf([{ kernel, ...call }], threads);
      return (MACS_PER_TILE * tiles) / seconds;
    }),
  );
  return rates.length > 0 ? Math.max(...rates) : null;
}
