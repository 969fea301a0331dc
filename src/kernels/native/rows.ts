/**
 * Native rows as kernels. A native kernel is declared once, in C++: rows that can run here come from the addon, others from
 * known-rows.ts (of other architectures, and of instruction sets that the addon was not built for), so that selection can
 * answer for machines that are not here.
 */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import { logInfo } from "../../log.ts";
import { nodeBuiltin } from "../../node-builtin.ts";
import type { CpuFeature, Kernel, NativeCall } from "../contract.ts";
import type { NativeArguments } from "../declaration.ts";
import { missingAddon, nativeAddon, nativeAddonFile } from "./addon.ts";
import { featureBits, type NativeAddon, type NativeRow } from "./interface.ts";
import { knownRows } from "./known-rows.ts";
import { cutShort } from "./shared-object.ts";

function featuresOf(bits: number): CpuFeature[] {
  return featureBits.filter((_, i) => (bits >> i) & 1);
}

/** Whether there is native code here. */
export function hasNative(): boolean {
  return nativeAddon() !== null;
}

/** Features of this CPU that native kernels may use; none without the addon. */
export function nativeFeatures(): CpuFeature[] {
  const addon = nativeAddon();
  return addon ? featuresOf(servedFeatures(addon)) : [];
}

/** Features of this CPU that the addon was not built for: it has no row that needs them, but its sources have. */
export function unservedFeatures(): CpuFeature[] {
  const addon = nativeAddon();
  return addon ? featuresOf(addon.cpuFeatures() & ~servedFeatures(addon)) : [];
}

const served = new WeakMap<NativeAddon, number>();

/** Bits of the CPU's features without those of instruction sets that the addon was not built for. */
function servedFeatures(addon: NativeAddon): number {
  let bits = served.get(addon);
  if (bits === undefined) {
    const rows = addon.kernels();
    const own = new Set(rows.map(({ name }) => name));
    const used = neededBy(rows);
    const missing = neededBy((knownRows[process.arch] ?? []).filter(({ name }) => !own.has(name)));
    bits = addon.cpuFeatures() & (used | ~missing);
    served.set(addon, bits);
    const unserved = featuresOf(addon.cpuFeatures() & ~bits);
    if (unserved.length > 0)
      logInfo(
        () =>
          `the native addon was built for a CPU without ${unserved.join(", ")}, which this one has: ` +
          "node scripts/build-native.js adds their kernels",
      );
  }
  return bits;
}

function neededBy(rows: readonly NativeRow[]): number {
  return rows.reduce((bits, { needs }) => bits | needs, 0);
}

/** One for all calls: an array's memory is made when native code first looks at it. */
const noScratch = new Uint8Array(0);

/** A row of an architecture; `index` is its place among those that are loaded, null where it is not. */
interface ListedRow {
  readonly row: NativeRow;
  readonly index: number | null;
}

/** Rows by architecture, as process.arch names it. */
export type KnownRows = Readonly<Record<string, readonly NativeRow[]>>;

let listed: ListedRow[] | undefined;

/** Rows of the addon and of libraries that it has loaded. */
function loadedRows(): ListedRow[] {
  listed ??=
    nativeAddon()
      ?.kernels()
      .map((row, index) => ({ row, index })) ?? [];
  return listed;
}

/** Rows of a family, best first in each architecture. */
function listRows(family: string, known: KnownRows): ListedRow[] {
  const isOf = ({ row }: { row: NativeRow }) => row.family === family;
  const addon = nativeAddon();
  const knownOf = (architecture: string) => (known[architecture] ?? []).filter((row) => isOf({ row }));
  const own = addon ? withUnbuilt(addon, loadedRows().filter(isOf), knownOf(process.arch)) : [];
  const others = Object.keys(known)
    .filter((architecture) => !addon || architecture !== process.arch)
    .flatMap(knownOf)
    // Rows that need no feature would be chosen for this machine too, which cannot run them.
    .filter(({ needs }) => needs !== 0);
  return [...own, ...others.map((row) => ({ row, index: null }))];
}

/** Rows that are loaded, and at their places among them known ones of instruction sets that the addon was not built for. */
function withUnbuilt(addon: NativeAddon, loaded: readonly ListedRow[], known: readonly NativeRow[]): ListedRow[] {
  const rows = [...loaded];
  const here = servedFeatures(addon);
  let next = rows.length;
  for (const row of known.toReversed()) {
    const at = rows.findIndex(({ row: { name } }) => name === row.name);
    if (at >= 0) next = at;
    // One that this CPU could run is none of the addon's sources any more.
    else if ((row.needs & ~here) !== 0) rows.splice(next, 0, { row, index: null });
  }
  return rows;
}

/**
 * Kernels of one family, best first in each architecture; those that no addon here has, or that need what this CPU does
 * not have, can be chosen, but not run. `known` has those of all architectures: the core's unless a package says its own.
 */
export function nativeKernels<A>(
  family: string,
  argumentsOf: (args: A) => NativeArguments,
  known: KnownRows = knownRows,
): Kernel<A>[] {
  const addon = nativeAddon();
  const here = addon ? servedFeatures(addon) : 0;
  return listRows(family, known).map(({ row, index }) => {
    if (index === null) return absent(row, "is not in the native addon of this machine");
    const missing = featuresOf(row.needs & ~here);
    if (missing.length > 0) return absent(row, `needs ${missing.join(", ")}, which this CPU does not have`);
    return runnable(addon!, row, index, argumentsOf);
  });
}

/**
 * Adds the kernels of a shared library of the user's own, written against native/kernel.h; `nativeKernels` lists them
 * from then on. UnsupportedError without a native addon, InvalidFileError for a file that is no such library.
 */
export function loadNativeKernels(path: string): void {
  const addon = nativeAddon();
  if (!addon)
    throw new UnsupportedError(`${path}: kernels in C++ need the native addon, which is not here: ${missingAddon()}`);
  const { resolve } = nodeBuiltin<typeof import("node:path")>("node:path")!;
  const file = resolve(path);
  const problem = cutShort(file) ?? addon.loadKernels(file);
  if (problem !== null) throw new InvalidFileError(path, `is no library of kernels: ${problem}`);
  listed = undefined;
}

/**
 * Adds the kernels of a package that is built and published with lowbit, such as AQLM's: those of the library
 * `lowbit-<name>.node` beside the native addon. Where there is none that can be loaded, slower kernels serve, and a line at
 * info level says so.
 */
export function loadKernelsBesideAddon(name: string): void {
  const addon = nativeAddonFile();
  if (addon === null) return;
  const library = addon.replace(/(\.node)?$/, `-${name}.node`);
  try {
    loadNativeKernels(library);
  } catch (error) {
    logInfo(() => `slower kernels of ${name} serve: ${(error as Error).message}`);
  }
}

/** The bits of kReadsMinima and kReadsFactors in native/kernel.h. */
const READS_MINIMA = 0x200;
const READS_FACTORS = 0x400;

type Description = Omit<Kernel<never>, "bind">;

function describe(row: NativeRow): Description {
  return {
    name: row.name,
    target: "native",
    layouts: row.layout === null ? null : [row.layout],
    bits: row.bits === 0 ? null : [1, 2, 3, 4, 5, 6, 7, 8].filter((b) => (row.bits >> b) & 1),
    needs: featuresOf(row.needs),
    mStep: row.mStep,
    nStep: row.nStep,
    ...(row.groups && { groups: row.groups }),
    ...((row.bits & READS_MINIMA) !== 0 && { readsMinima: true }),
    ...((row.bits & READS_FACTORS) !== 0 && { readsFactors: true }),
  };
}

function absent(row: NativeRow, why: string): Kernel<never> {
  const bind = () => {
    throw new UnsupportedError(`kernel ${row.name} ${why}: choose kernels for hostCpu() to run them here`);
  };
  return { ...describe(row), bind };
}

function runnable<A>(
  addon: NativeAddon,
  row: NativeRow,
  index: number,
  argumentsOf: (args: A) => NativeArguments,
): Kernel<A> {
  const encode = (args: A, scratch: Uint8Array): NativeCall => {
    const { scalars, buffers } = argumentsOf(args);
    return { target: "native", kernel: index, scalars, buffers: [...buffers, scratch] };
  };
  return {
    ...describe(row),
    scratchBytes: (args, threads) => addon.scratchBytes(encode(args, noScratch), threads),
    bind: (args, scratch, threads) => bindAlone(addon, encode(args, scratch), threads),
    encode,
  };
}

/** The function keeps the call, whose memory the plan points to. */
function bindAlone(addon: NativeAddon, call: NativeCall, threads: number): () => void {
  const bound = { call, plan: addon.createPlan([call], threads) };
  return () => addon.runPlan(bound.plan, threads);
}
