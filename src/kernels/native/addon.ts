/** The native addon, typed: found once at first use, or null where there is none. */

import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { logInfo } from "../../log.ts";
import type { NativeCall } from "../contract.ts";

/** Plan of native calls; opaque. */
export interface NativePlan {
  readonly nativePlan: unique symbol;
}

/** A row as native/kernel.h declares it: `bits` and `needs` are bit sets. */
export interface NativeRow {
  readonly name: string;
  readonly family: string;
  readonly layout: string | null;
  readonly bits: number;
  readonly needs: number;
  readonly mStep: number;
  readonly nStep: number;
}

export interface NativeAddon {
  kernels(): NativeRow[];
  /** Bit set of the features of this CPU. */
  cpuFeatures(): number;
  /** Physical performance cores. */
  defaultThreads(): number;
  scratchBytes(call: NativeCall, threads: number): number;
  createPlan(calls: readonly NativeCall[], threads: number): NativePlan;
  runPlan(plan: NativePlan, threads: number): void;
  /** `abort[0]` not 0 ends the plan early. Adds what each call took to `nanoseconds`, one element a call. */
  runPlanAsync(plan: NativePlan, threads: number, abort: Int32Array, nanoseconds?: Float64Array): Promise<void>;
  /** The file's bytes, mapped read-only; null when it cannot be mapped. */
  mapFile(path: string): ArrayBuffer | null;
  /** Zeroed memory that begins at a page, on huge pages where there is much of it; null when it cannot be had. */
  allocate(bytes: number): ArrayBuffer | null;
}

let loaded: NativeAddon | null | undefined;

/** The addon of this platform; null, said once at info level, when there is none or LOWBIT_BACKEND names another. */
export function nativeAddon(): NativeAddon | null {
  if (loaded === undefined) loaded = load();
  return loaded;
}

function load(): NativeAddon | null {
  const wanted = process.env.LOWBIT_BACKEND;
  if (wanted !== undefined && wanted !== "native") return null;
  const require = createRequire(import.meta.url);
  const libc = process.platform === "linux" ? `-${isMusl() ? "musl" : "gnu"}` : "";
  const built = fileURLToPath(new URL("../../../build/lowbit.node", import.meta.url));
  const packageName = `@lowbit/${process.platform}-${process.arch}${libc}`;
  const given = process.env.LOWBIT_NATIVE_PATH;
  const candidates = [given && resolve(given), existsSync(built) ? built : undefined, packageName];
  const reasons: string[] = [];
  for (const candidate of candidates) {
    if (!candidate) continue;
    try {
      return require(candidate);
    } catch (error) {
      const missing = candidate === packageName && (error as NodeJS.ErrnoException).code === "MODULE_NOT_FOUND";
      reasons.push(missing ? `${candidate} is not installed` : (error as Error).message.split("\n")[0]!);
    }
  }
  logInfo(
    () =>
      `no native addon, the slower kernels in JavaScript serve: ${reasons.join("; ")}` +
      " (in a checkout, node scripts/build-native.js builds one and says what is missing)",
  );
  return null;
}

function isMusl(): boolean {
  const { report } = process as { report?: { excludeNetwork?: boolean; getReport(): unknown } };
  if (!report) return false;
  const { excludeNetwork } = report;
  // With sockets open, a full report looks up the names of their ends, which can take seconds.
  report.excludeNetwork = true;
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } };
  report.excludeNetwork = excludeNetwork ?? false;
  return header?.glibcVersionRuntime === undefined;
}
