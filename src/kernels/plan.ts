/** Plans of native calls: one trip off the JavaScript thread for a whole sequence of kernels. */
import { UnsupportedError } from "../errors.ts";
import { pointsOf, type Sizes, slopesOf } from "./affine.ts";
import type { CallPlan, EncodedCall, NativeCall, SizedCalls } from "./contract.ts";
import { nativeAddon } from "./native/addon.ts";
import { wasmThreads } from "./wasm/engine/workers.ts";

/** Makes a plan of calls whose memory does not move. */
export function planNativeCalls(calls: readonly NativeCall[], threads: number, sized?: SizedCalls): CallPlan {
  const addon = nativeAddon();
  if (!addon) throw new UnsupportedError("native calls need the native addon");
  const affine = sized && affineCalls(calls, sized);
  let held = affine ?? calls;
  let plan = addon.createPlan(held, threads);
  /** For calls that are not affine in the sizes: replaces the plan by one for these sizes. */
  const replace = (sizes: Sizes): boolean => {
    const now = nativeCalls(calls.map((_, i) => sized!.at(i, sizes)));
    if (!now) return false;
    held = now;
    plan = addon.createPlan(held, threads);
    return true;
  };
  const smallest = sized?.range.smallest ?? [];
  const change = new Float64Array(smallest.length);
  const resize = (sizes: Sizes): boolean => {
    for (let i = 0; i < change.length; i++) change[i] = sizes[i]! - smallest[i]!;
    return addon.resizePlan(plan, change);
  };
  return {
    // Keeps the arrays alive, whose memory the plan points to.
    run: (abort, times) => addon.runPlanAsync(plan, threads, abort, times).then(() => void held),
    runHere: (times) => addon.runPlan(plan, threads, times),
    ...(sized && { resize: affine ? resize : replace }),
    dispose() {},
  };
}

/** Adds slopes to the calls; null where some are not affine, or have buffers at other addresses for other sizes. */
function affineCalls(calls: readonly NativeCall[], { range, at }: SizedCalls): readonly NativeCall[] | null {
  const points = pointsOf(range).slice(1);
  const affine: NativeCall[] = [];
  for (const [index, call] of calls.entries()) {
    const { kernel, scalars, buffers } = call;
    const others = nativeCalls(points.map((sizes) => at(index, sizes)));
    const isSame = others?.every(
      (other) => other.kernel === kernel && other.buffers.every((b, i) => isAt(b, buffers[i]!)),
    );
    if (!isSame) return null;
    const allSlopes = scalars.map((value, i) => slopesOf(range, [value, ...others!.map((other) => other.scalars[i]!)]));
    if (!allSlopes.every((slopes) => slopes !== null)) return null;
    const slopes = Float64Array.from(range.smallest.flatMap((_, size) => allSlopes.map((steps) => steps[size]!)));
    affine.push(slopes.some((step) => step > 0) ? { ...call, slopes } : call);
  }
  return affine;
}

/** The calls as native ones; null if one of them has too little scratch memory. */
function nativeCalls(calls: readonly (EncodedCall | null)[]): readonly NativeCall[] | null {
  const native = calls.flatMap((call) => (call?.target === "native" ? [call] : []));
  return native.length === calls.length ? native : null;
}

/** Whether two arrays begin at the same address; empty arrays always do. */
function isAt(a: ArrayBufferView, b: ArrayBufferView): boolean {
  return (a.buffer === b.buffer && a.byteOffset === b.byteOffset) || (a.byteLength === 0 && b.byteLength === 0);
}

/** Default number of threads: the physical performance cores, as far as known and as a container may use them. */
export function defaultThreads(): number {
  return nativeAddon()?.defaultThreads() ?? wasmThreads();
}

/** Most bytes to request from the addon: more than any program needs, and less than engines refuse outright. */
const NATIVE_BYTES_MAX = 2 ** 32;

/**
 * Allocates zeroed bytes; with native code they are page-aligned, so that vectors do not cross cache lines. May throw
 * RangeError.
 */
export function zeroedBytes(length: number): Uint8Array {
  const buffer = length > 0 && length <= NATIVE_BYTES_MAX ? (nativeAddon()?.allocate(length) ?? null) : null;
  return buffer ? new Uint8Array(buffer) : new Uint8Array(length);
}
