/** Runs of native calls: one trip off the JavaScript thread for a whole sequence of kernels. */
import { UnsupportedError } from "../errors.ts";
import type { CallPlan, NativeCall } from "./contract.ts";
import { nativeAddon } from "./native/addon.ts";
import { wasmThreads } from "./wasm/engine/workers.ts";

/** A plan of calls whose memory stays where it is. */
export function planNativeCalls(calls: readonly NativeCall[], threads: number): CallPlan {
  const addon = nativeAddon();
  if (!addon) throw new UnsupportedError("native calls need the native addon");
  const plan = addon.createPlan(calls, threads);
  // The arrays hold the memory that the plan points into.
  return {
    run: (abort, times) => addon.runPlanAsync(plan, threads, abort, times).then(() => void calls),
    runHere: (times) => addon.runPlan(plan, threads, times),
    dispose() {},
  };
}

/** Threads to use when the caller says nothing: physical performance cores as far as they are known and a container may use them. */
export function defaultThreads(): number {
  return nativeAddon()?.defaultThreads() ?? wasmThreads();
}

/** More than any program of use asks for, and less than what engines refuse outright. */
const NATIVE_BYTES_MAX = 2 ** 32;

/** Zeroed bytes; with native code they begin at a page, so that vectors do not cross cache lines. May throw RangeError. */
export function zeroedBytes(length: number): Uint8Array {
  const buffer = length > 0 && length <= NATIVE_BYTES_MAX ? (nativeAddon()?.allocate(length) ?? null) : null;
  return buffer ? new Uint8Array(buffer) : new Uint8Array(length);
}
