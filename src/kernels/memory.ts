/** The memory of a program's weights, scratch and state, with the backend that runs its calls: native code or WebAssembly. */
import type { Cpu, KernelMemory, NativeCall } from "./contract.ts";
import { nativeAddon } from "./native/addon.ts";
import { planNativeCalls, zeroedBytes } from "./plan.ts";
import { WasmEngine } from "./wasm/engine/engine.ts";
import { needsWide } from "./wasm/engine/engine-memory.ts";

/** Memory for kernels on a CPU; `bytes`: least bytes that the program needs. UnsupportedError when there is not enough. */
export function programMemory(cpu: Cpu, bytes: number, threads: number): KernelMemory {
  return cpu.features.has("simd128") ? new WasmEngine({ bytes, threads }) : processMemory(threads);
}

/** UnsupportedError when kernels of this CPU can never have so many bytes. */
export function checkMemory(cpu: Cpu, bytes: number): void {
  if (cpu.features.has("simd128")) needsWide(bytes);
}

/**
 * The process's own memory, for native and reference kernels. Native threads are in a pool that all programs share, which keeps
 * `threads` of them until `dispose`.
 */
export function processMemory(threads = 0): KernelMemory {
  const addon = nativeAddon();
  let isKept = addon !== null && threads > 0;
  if (isKept) addon!.keepThreads(threads);
  return {
    holdsConstants: false,
    // The reference kernels run on the caller's thread.
    ...(addon ? {} : { threads: 1 }),
    abort: new Int32Array(1),
    allocate: zeroedBytes,
    free() {},
    addressOf: (bytes) => addon?.addressOf(bytes) ?? 0n,
    discard: (bytes) => addon?.discard(bytes),
    readByRows: (bytes) => addon?.readByRows(bytes),
    planCalls: (calls, threads, sized) => planNativeCalls(calls as readonly NativeCall[], threads, sized),
    async dispose() {
      if (isKept) addon!.releaseThreads(threads);
      isKept = false;
    },
  };
}
