/** Runs of native calls: one trip off the JavaScript thread for a whole sequence of kernels. */
import { UnsupportedError } from "../errors.ts";
import type { NativeCall } from "./contract.ts";
import { nativeAddon } from "./native/addon.ts";

export interface CallPlan {
  /**
   * Runs the calls on native threads. `abort[0]` set to 1 meanwhile ends it early. What each call took is added to
   * `nanoseconds`, one element a call, when it is given.
   */
  run(abort: Int32Array, nanoseconds?: Float64Array): Promise<void>;
}

/** A plan of calls whose memory stays where it is. */
export function planCalls(calls: readonly NativeCall[], threads: number): CallPlan {
  const addon = nativeAddon();
  if (!addon) throw new UnsupportedError("native calls need the native addon");
  const plan = addon.createPlan(calls, threads);
  // The arrays hold the memory that the plan points into.
  return { run: (abort, times) => addon.runPlanAsync(plan, threads, abort, times).then(() => void calls) };
}

/** Threads to use when the caller says nothing: physical performance cores; 1 without native code. */
export function defaultThreads(): number {
  return nativeAddon()?.defaultThreads() ?? 1;
}

/** More than any program of use asks for, and less than what engines refuse outright. */
const NATIVE_BYTES_MAX = 2 ** 32;

/** Zeroed bytes; with native code they begin at a page, so that vectors do not cross cache lines. May throw RangeError. */
export function zeroedBytes(length: number): Uint8Array {
  const buffer = length > 0 && length <= NATIVE_BYTES_MAX ? (nativeAddon()?.allocate(length) ?? null) : null;
  return buffer ? new Uint8Array(buffer) : new Uint8Array(length);
}
