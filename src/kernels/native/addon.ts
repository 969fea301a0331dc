/**
 * The native addon, loaded at first use; null where there is none that fits this code. Pages import this file too, so Node's
 * modules are loaded only when it runs.
 */
import { logInfo } from "../../log.ts";
import { nodeBuiltin } from "../../node-builtin.ts";
import { NATIVE_ABI } from "./abi.ts";
import type { NativeAddon } from "./interface.ts";
import { cutShort } from "./shared-object.ts";

let loaded: NativeAddon | null | undefined;
let loadedFile: string | null = null;
let problem = "";

/**
 * The addon of this platform; null when there is none or LOWBIT_BACKEND selects another backend. The reason why an addon cannot
 * be used is logged once, at info level.
 */
export function nativeAddon(): NativeAddon | null {
  if (loaded === undefined) loaded = load();
  return loaded;
}

/** Path of the loaded addon; null without one. */
export function nativeAddonFile(): string | null {
  nativeAddon();
  return loadedFile;
}

/** URL of this file; in a CommonJS bundle, which has no such URL, that of the working directory. */
function here(): string {
  const { pathToFileURL } = nodeBuiltin<typeof import("node:url")>("node:url")!;
  return import.meta.url ?? pathToFileURL(`${process.cwd()}/`).href;
}

/** Why there is no addon; empty before `nativeAddon` was called. */
export function missingAddon(): string {
  return problem;
}

/** A path where an addon may be, and what to do if the addon there does not fit. */
interface Candidate {
  readonly path: string;
  readonly remedy: string;
}

function load(): NativeAddon | null {
  const modules = nodeBuiltin<typeof import("node:module")>("node:module");
  if (!modules) return null;
  const wanted = process.env.LOWBIT_BACKEND;
  if (wanted && wanted !== "native") {
    problem = `LOWBIT_BACKEND is ${wanted}`;
    return null;
  }
  const require = modules.createRequire(here());
  const reasons: string[] = [];
  for (const candidate of candidates()) {
    const { path, remedy } = candidate;
    try {
      const file = require.resolve(path);
      const cut = cutShort(file);
      if (cut) {
        reasons.push(`${path}: ${cut} (${remedy})`);
        continue;
      }
      const addon: Partial<NativeAddon> = require(file);
      if (addon.abi === NATIVE_ABI) {
        loadedFile = file;
        if (reasons.length > 0) logInfo(() => `native addon ${path} serves: ${reasons.join("; ")}`);
        return addon as NativeAddon;
      }
      reasons.push(`${path} is of another version (interface ${addon.abi ?? "unknown"}, not ${NATIVE_ABI}): ${remedy}`);
    } catch (error) {
      reasons.push(reasonOf(error, candidate));
    }
  }
  problem = reasons.join("; ");
  logInfo(() => `no native addon, slower kernels serve: ${problem}`);
  return null;
}

/** Paths to try: LOWBIT_NATIVE_PATH, the addon built in a checkout, the package of this platform. */
function* candidates(): Iterable<Candidate> {
  const build = "node scripts/native/build.js builds it again";
  const { existsSync } = nodeBuiltin<typeof import("node:fs")>("node:fs")!;
  const { resolve } = nodeBuiltin<typeof import("node:path")>("node:path")!;
  const { fileURLToPath } = nodeBuiltin<typeof import("node:url")>("node:url")!;
  const given = process.env.LOWBIT_NATIVE_PATH;
  if (given) yield { path: resolve(given), remedy: build };
  // Not written with import.meta.url directly: webpack would require the file to exist.
  const built = fileURLToPath(new URL("../../../build/lowbit.node", here()));
  if (existsSync(built)) yield { path: built, remedy: build };
  const libc = process.platform === "linux" ? `-${isMusl() ? "musl" : "gnu"}` : "";
  const path = `@lowbit/${process.platform}-${process.arch}${libc}`;
  yield { path, remedy: `install lowbit and ${path} of the same version` };
}

function reasonOf(error: unknown, { path, remedy }: Candidate): string {
  const { code, message } = error as NodeJS.ErrnoException;
  const missing = code === "MODULE_NOT_FOUND" && path.startsWith("@");
  // For an addon of another architecture, the system may report that there is no such file.
  if (code === "ERR_DLOPEN_FAILED") return `${message.split("\n")[0]} (${path} cannot be loaded: ${remedy})`;
  if (!missing) return message.split("\n")[0]!;
  return `${path} is not installed (in a checkout, node scripts/native/build.js builds an addon or says what is missing)`;
}

/** The loader that Node itself asks for, near the start of its file, tells the C library in a tenth of a report's time. */
function isMusl(): boolean {
  const [, library] = /\/ld-(linux|musl)/.exec(startOfNode()) ?? [];
  return library === undefined ? isMuslByReport() : library === "musl";
}

/** The first bytes of Node's file; empty where it cannot be read, as after an update of a running Node. */
function startOfNode(): string {
  const { closeSync, openSync, readSync } = nodeBuiltin<typeof import("node:fs")>("node:fs")!;
  try {
    const file = openSync(process.execPath, "r");
    try {
      const start = Buffer.alloc(4096);
      return start.toString("latin1", 0, readSync(file, start));
    } finally {
      closeSync(file);
    }
  } catch {
    return "";
  }
}

function isMuslByReport(): boolean {
  const { report } = process as { report?: { excludeNetwork?: boolean; getReport(): unknown } };
  if (!report) return false;
  const { excludeNetwork } = report;
  // With open sockets, a full report resolves the host names of their peers, which can take seconds.
  report.excludeNetwork = true;
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } };
  report.excludeNetwork = excludeNetwork ?? false;
  return header?.glibcVersionRuntime === undefined;
}
