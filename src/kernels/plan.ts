/** Runs of native calls: one trip off the JavaScript thread for a whole sequence of kernels. */
import { UnsupportedError } from "../errors.ts";
import { pointsOf, type Sizes, slopesOf } from "./affine.ts";
import type { CallPlan, EncodedCall, NativeCall, SizedCalls } from "./contract.ts";
import { nativeAddon } from "./native/addon.ts";
import { wasmThreads } from "./wasm/engine/workers.ts";

/** A plan of calls whose memory stays where it is. */
export function planNativeCalls(calls: readonly NativeCall[], threads: number, sized?: SizedCalls): CallPlan {
  const addon = nativeAddon();
  if (!addon) throw new UnsupportedError("native calls need the native addon");
  const affine = sized && affineCalls(calls, sized);
  let held = affine ?? calls;
  let plan = addon.createPlan(held, threads);
  /** Where the calls are not affine in the sizes: a plan of what they are at these. */
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
    // The arrays hold the memory that the plan points into.
    run: (abort, times) => addon.runPlanAsync(plan, threads, abort, times).then(() => void held),
    runHere: (times) => addon.runPlan(plan, threads, times),
    ...(sized && { resize: affine ? resize : replace }),
    dispose() {},
  };
}

/** The calls with the slopes of their numbers; null where some are not affine, or where buffers are elsewhere for other sizes. */
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

/** Null where one has no room. */
function nativeCalls(calls: readonly (EncodedCall | null)[]): readonly NativeCall[] | null {
  const native = calls.flatMap((call) => (call?.target === "native" ? [call] : []));
  return native.length === calls.length ? native : null;
}

/** Whether arrays begin at one place; those of no bytes are anywhere. */
function isAt(a: ArrayBufferView, b: ArrayBufferView): boolean {
  return (a.buffer === b.buffer && a.byteOffset === b.byteOffset) || (a.byteLength === 0 && b.byteLength === 0);
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
