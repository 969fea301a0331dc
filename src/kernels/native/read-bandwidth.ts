/** How fast this machine reads memory, measured by a loop of the native addon. */
import { measureRead } from "../families/measure/measure-read.ts";
import { nativeAddon } from "./addon.ts";
import type { NativeAddon } from "./interface.ts";

/** A call of a row without its scratch. */
interface MeasuredCall {
  readonly kernel: number;
  readonly scalars: readonly number[];
  readonly buffers: readonly ArrayBufferView[];
}

/** How a bandwidth is found. */
export interface BandwidthOptions {
  /** What counts of the seconds of the runs of one distance. Default: the least. */
  readonly pick?: (seconds: readonly number[]) => number;
  /** Distances in bytes that memory is asked for ahead of its use; the best one counts. */
  readonly ahead?: readonly number[];
}

const RUNS = 3;
const DISTANCES = [0, 512, 2048, 8192];
const least = (seconds: readonly number[]) => Math.min(...seconds);

/** Indexes of the rows of a family that this CPU can run. @public for benchmarks. */
export function kernelsOf(addon: NativeAddon, family: string): number[] {
  const features = addon.cpuFeatures();
  return addon.kernels().flatMap((row, i) => (row.family === family && (row.needs & ~features) === 0 ? [i] : []));
}

/** Seconds of one run of calls. @public for benchmarks. */
export function secondsOf(addon: NativeAddon, calls: readonly MeasuredCall[], threads: number): number {
  const withScratch = calls.map((call) => {
    const withNone = { target: "native" as const, ...call, buffers: [...call.buffers, new Uint8Array(0)] };
    const bytes = addon.scratchBytes(withNone, threads);
    return { ...withNone, buffers: [...call.buffers, new Uint8Array(bytes)] };
  });
  const plan = addon.createPlan(withScratch, threads);
  const start = performance.now();
  addon.runPlan(plan, threads);
  return (performance.now() - start) / 1000;
}

/**
 * Bytes a second that so many threads read of memories that are together larger than the caches; null where there is no
 * addon.
 */
export function readBandwidth(
  memories: readonly Uint8Array[],
  threads: number,
  { pick = least, ahead: distances = DISTANCES }: BandwidthOptions = {},
): number | null {
  const addon = nativeAddon();
  const [kernel] = addon ? kernelsOf(addon, "measure_read") : [];
  if (!addon || kernel === undefined) return null;
  const bytes = memories.reduce((sum, { length }) => sum + length, 0);
  const seconds = distances.map((ahead) => {
    const calls = memories.map((data) => ({
      kernel,
      ...measureRead.argumentsOf({ data, rounds: 1, ahead }),
    }));
    return pick(Array.from({ length: RUNS }, () => secondsOf(addon, calls, threads)));
  });
  return bytes / least(seconds);
}
