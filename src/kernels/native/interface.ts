/**
 * What the native addon offers, as native/addon.cc implements it. With the fields of families this is the contract that an addon
 * and this code must share: abi.ts holds its fingerprint.
 */
import type { CpuFeature, GroupLimit, NativeCall } from "../contract.ts";

/** Features in the order of their bits in native/kernel.h. */
export const featureBits: readonly CpuFeature[] = [
  "avx2",
  "avx_vnni",
  "avx512",
  "avx512_vnni",
  "avx512_vbmi",
  "avx512_bf16",
  "amx_int8",
  "amx_bf16",
  "neon",
  "dotprod",
  "i8mm",
  "bf16",
  "sse2",
  "sme2",
];

/** Plan of native calls; opaque. */
interface NativePlan {
  readonly nativePlan: unique symbol;
}

/** A row as native/kernel.h declares it: `bits` (0x200: reads minima) and `needs` are bit sets. */
export interface NativeRow {
  /** Tells it apart from all others. */
  readonly name: string;
  /** What it computes. */
  readonly family: string;
  /** Packed layout that it reads; null for those that read none. */
  readonly layout: string | null;
  /** Bit b is set where it takes weights of b bits; 0 without packed weights. */
  readonly bits: number;
  /** Bits of the features that a CPU must have, as `featureBits` numbers them. */
  readonly needs: number;
  /** Rows of activations from which on it serves. */
  readonly mStep: number;
  /** Outputs of a tile. */
  readonly nStep: number;
  /** Null when it serves groups of any length. */
  readonly groups: readonly GroupLimit[] | null;
}

export interface NativeAddon {
  /** NATIVE_ABI of the sources that it was built from. */
  readonly abi: string;
  kernels(): NativeRow[];
  /** Bit set of the features of this CPU. */
  cpuFeatures(): number;
  /** Keeps threads of the pool, which all programs share, for a program that runs on so many, until `releaseThreads`. */
  keepThreads(threads: number): void;
  /** Threads beyond the most that are still kept end. */
  releaseThreads(threads: number): void;
  /** Physical performance cores. */
  defaultThreads(): number;
  /** The same of Linux' CPUs 0 .. cpus - 1, by its files /proc and /sys under `root`, which ends with a slash; for tests. */
  countCores(root: string, cpus: number): number;
  scratchBytes(call: NativeCall, threads: number): number;
  createPlan(calls: readonly NativeCall[], threads: number): NativePlan;
  /**
   * Makes the calls of a plan that does not run those of other sizes: `change` is by how much each size is more than when
   * the plan was made, of which `slopes` of the calls tells. False, and nothing is changed, where their scratch is too small.
   */
  resizePlan(plan: NativePlan, change: Float64Array): boolean;
  /** Runs on this thread too, and returns when the plan has ended. */
  runPlan(plan: NativePlan, threads: number, nanoseconds?: Float64Array): void;
  /** `abort[0]` not 0 ends the plan early. Adds what each call took to `nanoseconds`, one element a call. */
  runPlanAsync(plan: NativePlan, threads: number, abort: Int32Array, nanoseconds?: Float64Array): Promise<void>;
  /** The file's bytes, mapped read-only; null when it cannot be mapped. */
  mapFile(path: string): ArrayBuffer | null;
  /** Zeroed memory that begins at a page, on huge pages where there is much of it; null when it cannot be had. */
  allocate(bytes: number): ArrayBuffer | null;
  /** Where the bytes begin in the memory of the process. */
  addressOf(bytes: Uint8Array): bigint;
  /** Gives whole pages of bytes that `allocate` gave back to the system; what they hold afterwards is undefined. */
  discard(bytes: Uint8Array): void;
  /** Rows of bytes of a mapped file are read here and there: pages around them need not be there. */
  readByRows(bytes: Uint8Array): void;
  /** Adds the rows of a shared library, behind all others; null, or what is wrong with it. */
  loadKernels(path: string): string | null;
}
