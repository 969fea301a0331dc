/** The limits of this machine, measured by loops of the native addon: bytes read and multiply-adds a second. */
import { nativeAddon } from "../dist/kernels/native/addon.js";

/** Enough for clock speeds to settle, short enough for a shared machine. */
const MACS_PER_TILE = 2e9;
/** Distances that memory is asked for ahead of its use; the best one counts. */
const PREFETCH_DISTANCES = [0, 512, 2048, 8192];
const LARGE_BUFFER_BYTES = 1 << 29;

function requireAddon() {
  const addon = nativeAddon();
  if (!addon) throw new Error("the native addon is not built: npm run build:native");
  return addon;
}

/** Best rows of this CPU, by family. @param {string} family */
function rowOf(family) {
  const addon = requireAddon();
  const features = addon.cpuFeatures();
  const rows = addon.kernels().map((row, kernel) => ({ ...row, kernel }));
  return rows.filter((row) => row.family === family && (row.needs & ~features) === 0);
}

/** Seconds of one run of a call. */
function secondsOf(call, threads) {
  const addon = requireAddon();
  const scratch = new Uint8Array(addon.scratchBytes({ ...call, buffers: [...call.buffers, new Uint8Array(0)] }, threads));
  const plan = addon.createPlan([{ ...call, buffers: [...call.buffers, scratch] }], threads);
  const start = performance.now();
  addon.runPlan(plan, threads);
  return (performance.now() - start) / 1000;
}

/**
 * Bytes a second that `threads` threads read from memory, the best of several ways.
 * @param {Uint8Array} memory Larger than the caches. @param {number} threads @param {number} [runs]
 */
export function readBandwidth(memory, threads, runs = 3) {
  const [{ kernel }] = rowOf("measure_read");
  const rounds = Math.max(1, Math.round(5e8 / memory.length));
  let best = 0;
  for (let run = 0; run < runs; run++)
    for (const ahead of PREFETCH_DISTANCES) {
      const seconds = secondsOf({ kernel, scalars: [memory.length, rounds, ahead], buffers: [memory] }, threads);
      best = Math.max(best, (rounds * memory.length) / seconds);
    }
  return best;
}

/** Ordinary memory to read from, larger than caches, every page touched. */
export function largeBuffer() {
  return new Uint8Array(LARGE_BUFFER_BYTES).fill(1);
}

/**
 * Multiply-adds a second on `threads` threads, the best of this CPU's ways.
 * @param {"i8" | "bf16" | "f32"} type @returns {number | null} null where there is no loop for this CPU.
 */
export function multiplyAdds(type, threads) {
  let best = null;
  for (const { kernel } of rowOf(`measure_macs_${type}`))
    for (let run = 0; run < 3; run++) {
      const tiles = 4 * threads;
      const seconds = secondsOf({ kernel, scalars: [MACS_PER_TILE, tiles], buffers: [] }, threads);
      best = Math.max(best ?? 0, (MACS_PER_TILE * tiles) / seconds);
    }
  return best;
}
