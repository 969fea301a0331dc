/**
 * Lists native kernels. They are declared once, in C++: those that can run here come from the addon, others (of other
 * architectures, and of instruction sets that the addon was not built for) from known-rows.ts, so that kernels can be selected
 * for other machines.
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

/** Whether the addon is loaded. */
export function hasNative(): boolean {
  return nativeAddon() !== null;
}

/** Features of this CPU that native kernels may use; none without the addon. */
export function nativeFeatures(): CpuFeature[] {
  const addon = nativeAddon();
  return addon ? featuresOf(servedFeatures(addon)) : [];
}

/** Features of this CPU that kernels in the sources need but the addon was not built for. */
export function unservedFeatures(): CpuFeature[] {
  const addon = nativeAddon();
  return addon ? featuresOf(addon.cpuFeatures() & ~servedFeatures(addon)) : [];
}

const served = new WeakMap<NativeAddon, number>();

/** Feature bits of the CPU that the addon has kernels for. */
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
          "node scripts/native/build.js adds their kernels",
      );
  }
  return bits;
}

function neededBy(rows: readonly NativeRow[]): number {
  return rows.reduce((bits, { needs }) => bits | needs, 0);
}

/** Stands for scratch while a call's scratch is asked for. One for all calls: native code's first access makes its memory. */
const noScratch = new Uint8Array(0);

/** A kernel of an architecture; `index` is its index among the loaded ones, null if it is not loaded. */
interface ListedRow {
  readonly row: NativeRow;
  readonly index: number | null;
}

/** Kernels by architecture, in process.arch's names. */
export type KnownRows = Readonly<Record<string, readonly NativeRow[]>>;

let listed: ReadonlyMap<string, ListedRow[]> | undefined;

/** Kernels of the addon and of loaded libraries, by family. */
function loadedRows(): ReadonlyMap<string, readonly ListedRow[]> {
  if (listed) return listed;
  const byFamily = new Map<string, ListedRow[]>();
  for (const [index, row] of nativeAddon()?.kernels().entries() ?? []) {
    const own = byFamily.get(row.family);
    if (own) own.push({ row, index });
    else byFamily.set(row.family, [{ row, index }]);
  }
  listed = byFamily;
  return byFamily;
}

const families = new WeakMap<readonly NativeRow[], Map<string, NativeRow[]>>();

/** Rows of a family among those of an architecture, which are sorted once for all families. */
function rowsOf(family: string, rows: readonly NativeRow[]): readonly NativeRow[] {
  let byFamily = families.get(rows);
  if (!byFamily) {
    byFamily = new Map();
    for (const row of rows) {
      const own = byFamily.get(row.family);
      if (own) own.push(row);
      else byFamily.set(row.family, [row]);
    }
    families.set(rows, byFamily);
  }
  return byFamily.get(family) ?? [];
}

/** Kernels of a family, best first within each architecture. */
function listRows(family: string, known: KnownRows): ListedRow[] {
  const addon = nativeAddon();
  const knownOf = (architecture: string) => rowsOf(family, known[architecture] ?? []);
  const loaded = loadedRows().get(family) ?? [];
  const own = addon ? withUnbuilt(addon, loaded, knownOf(process.arch)) : [];
  const others = Object.keys(known)
    .filter((architecture) => !addon || architecture !== process.arch)
    .flatMap(knownOf)
    // Kernels of other architectures that need no feature would be selected for this machine, which cannot run them.
    .filter(({ needs }) => needs !== 0);
  return [...own, ...others.map((row) => ({ row, index: null }))];
}

/** Loaded kernels, with known kernels that the addon was not built for inserted at their places. */
function withUnbuilt(addon: NativeAddon, loaded: readonly ListedRow[], known: readonly NativeRow[]): ListedRow[] {
  const rows = [...loaded];
  const here = servedFeatures(addon);
  let next = rows.length;
  for (const row of known.toReversed()) {
    const at = rows.findIndex(({ row: { name } }) => name === row.name);
    if (at >= 0) next = at;
    // If this CPU could run it and it is not loaded, the addon's sources no longer have it.
    else if ((row.needs & ~here) !== 0) rows.splice(next, 0, { row, index: null });
  }
  return rows;
}

/**
 * Kernels of a family, best first within each architecture. Kernels that are not loaded, or need features that this CPU lacks,
 * can be selected but not run. `known` lists kernels of all architectures: the core's, unless a package passes its own.
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
 * Loads kernels from a user's shared library written against native/kernel.h; `nativeKernels` lists them afterwards.
 * UnsupportedError without a native addon, InvalidFileError for a file that is no such library.
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
 * Loads the kernels of a package that is built and published with lowbit, such as AQLM's, from the library `lowbit-<name>.node`
 * beside the native addon. If there is none that can be loaded, slower kernels are used, and a message is logged at info level.
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

/** Bits of kReadsMinima and kReadsFactors in native/kernel.h. */
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
  // Arguments are encoded twice: to ask for the call's scratch, then with it.
  const known = new WeakMap<A & object, NativeArguments>();
  const encode = (args: A, scratch: Uint8Array): NativeCall => {
    const found = known.get(args as A & object) ?? argumentsOf(args);
    known.set(args as A & object, found);
    const { scalars, buffers } = found;
    return { target: "native", kernel: index, scalars, buffers: [...buffers, scratch] };
  };
  return {
    ...describe(row),
    scratchBytes: (args, threads) => addon.scratchBytes(encode(args, noScratch), threads),
    bind: (args, scratch, threads) => bindAlone(addon, encode(args, scratch), threads),
    encode,
  };
}

/** Returns a function that runs the call; it keeps the call alive, since the plan points to its memory. */
function bindAlone(addon: NativeAddon, call: NativeCall, threads: number): () => void {
  const bound = { call, plan: addon.createPlan([call], threads) };
  return () => addon.runPlan(bound.plan, threads);
}
