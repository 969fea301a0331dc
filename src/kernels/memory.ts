/** Where a program's weights, scratch and state live, and what runs its calls there: native code or WebAssembly. */
import type { Cpu, NativeCall, WasmCall } from "./contract.ts";
import { nativeAddon } from "./native/addon.ts";
import { planNativeCalls, zeroedBytes } from "./plan.ts";
import { WasmEngine } from "./wasm/engine/engine.ts";
import { needsWide } from "./wasm/engine/engine-memory.ts";

/** A call as data, for a plan of its target. */
export type EncodedCall = NativeCall | WasmCall;

export interface CallPlan {
  /**
   * Runs the calls off the JavaScript thread where there are threads. `abort[0]` set to 1 meanwhile ends it early. What
   * each call took is added to `nanoseconds`, one element a call, when it is given.
   */
  run(abort: Int32Array, nanoseconds?: Float64Array): Promise<void>;
  /** The same with this thread at work too, ended when it returns; absent where this thread cannot. */
  runHere?(nanoseconds?: Float64Array): void;
  dispose(): void;
}

export interface KernelMemory {
  /** Whether constants must be in it too; elsewhere they are used where they are read or mapped. */
  readonly holdsConstants: boolean;
  /** Those it has of the threads asked for, where it has its own. */
  readonly threads?: number;
  /** The flag for `CallPlan.run`. */
  readonly abort: Int32Array;
  /** Zeroed bytes. RangeError or UnsupportedError when they cannot be had. */
  allocate(byteLength: number): Uint8Array;
  /** Bytes that `allocate` gave and nothing uses any more. */
  free(bytes: Uint8Array): void;
  /** A plan of calls that can be run one after the other, all of the same target. */
  planCalls(calls: readonly EncodedCall[], threads: number): CallPlan;
  /** Resolves when everything is freed. */
  dispose(): Promise<void>;
}

/** Memory for kernels on a CPU: `bytes` is what the program needs at least. UnsupportedError when there is not so much. */
export function programMemory(cpu: Cpu, bytes: number, threads: number): KernelMemory {
  return cpu.features.has("simd128") ? new WasmEngine({ bytes, threads }) : processMemory();
}

/** UnsupportedError when kernels of the CPU can never have so many bytes. */
export function checkMemory(cpu: Cpu, bytes: number): void {
  if (cpu.features.has("simd128")) needsWide(bytes);
}

/** Memory of the process: for native and reference kernels. */
export function processMemory(): KernelMemory {
  return {
    holdsConstants: false,
    // The reference kernels run on the caller's.
    ...(nativeAddon() ? {} : { threads: 1 }),
    abort: new Int32Array(1),
    allocate: zeroedBytes,
    free() {},
    planCalls: (calls, threads) => planNativeCalls(calls as readonly NativeCall[], threads),
    async dispose() {},
  };
}
