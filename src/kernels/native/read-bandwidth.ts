/** Measures this machine's memory read bandwidth by a loop in the native addon. */
import { measureRead } from "../families/measure/measure-read.ts";
import { nativeAddon } from "./addon.ts";
import type { NativeAddon } from "./interface.ts";

/** A native call without scratch memory. */
interface MeasuredCall {
  readonly kernel: number;
  readonly scalars: readonly number[];
  readonly buffers: readonly ArrayBufferView[];
}

/** Options of a bandwidth measurement. */
export interface BandwidthOptions {
  /** Chooses the result among the seconds of the runs with one distance. Default: the least. */
  readonly pick?: (seconds: readonly number[]) => number;
  /** Prefetch distances in bytes to try; the best one counts. */
  readonly ahead?: readonly number[];
}

const RUNS = 3;
const DISTANCES = [0, 512, 2048, 8192];
const least = (seconds: readonly number[]) => Math.min(...seconds);

/** Indices of a family's kernels that this CPU can run. @public for benchmarks. */
export function kernelsOf(addon: NativeAddon, family: string): number[] {
  const features = addon.cpuFeatures();
  return addon.kernels().flatMap((row, i) => (row.family === family && (row.needs & ~features) === 0 ? [i] : []));
}

/** Seconds of one run of these calls. @public for benchmarks. */
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

/** Bytes per second that `threads` threads read of memories that together exceed the caches; null without an addon. */
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
