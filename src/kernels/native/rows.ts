/** Rows of the native addon as kernels. A native kernel is declared once, in C++; this only wraps what the addon lists. */
import type { CpuFeature, Kernel, NativeCall } from "../contract.ts";
import { nativeAddon } from "./addon.ts";
import type { NativeArguments } from "./families.ts";
import { featureBits, type NativeAddon } from "./interface.ts";

function featuresOf(bits: number): CpuFeature[] {
  return featureBits.filter((_, i) => (bits >> i) & 1);
}

/** Features of this CPU that native kernels may use; none without the addon. */
export function nativeFeatures(): CpuFeature[] {
  return featuresOf(nativeAddon()?.cpuFeatures() ?? 0);
}

/** Kernels of one family that the addon lists, best first; none without the addon. */
export function nativeKernels<A>(family: string, argumentsOf: (args: A) => NativeArguments): Kernel<A>[] {
  const addon = nativeAddon();
  if (!addon) return [];
  return addon.kernels().flatMap((row, index): Kernel<A>[] => {
    if (row.family !== family) return [];
    const encode = (args: A, scratch: Uint8Array): NativeCall => {
      const { scalars, buffers } = argumentsOf(args);
      return { kernel: index, scalars, buffers: [...buffers, scratch] };
    };
    return [
      {
        name: row.name,
        target: "native",
        layouts: row.layout === null ? null : [row.layout],
        bits: row.bits === 0 ? null : [1, 2, 3, 4, 5, 6, 7, 8].filter((b) => (row.bits >> b) & 1),
        needs: featuresOf(row.needs),
        mStep: row.mStep,
        nStep: row.nStep,
        scratchBytes: (args, threads) => addon.scratchBytes(encode(args, new Uint8Array(0)), threads),
        bind: (args, scratch, threads) => bindAlone(addon, encode(args, scratch), threads),
        encode,
      },
    ];
  });
}

function bindAlone(addon: NativeAddon, call: NativeCall, threads: number): () => void {
  const plan = addon.createPlan([call], threads);
  return () => addon.runPlan(plan, threads);
}
