/**
 * The C++ files of the native addon and their compiler flags, for scripts/build-native.js (this machine's compiler) and
 * scripts/release.js (zig). A file's name says its instruction set; files without one are compiled for the baseline.
 */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("..", import.meta.url));
export const nativeFolder = join(root, "native");

const avx2 = ["avx2", "fma", "f16c"];
const avx512 = [...avx2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"];
const dotprod = ["dotprod", "fp16"];

/** Features beyond the baseline, by the end of the file name. */
const featuresOfSuffix = {
  x64: {
    _avx2: avx2,
    _avxvnni: [...avx2, "avxvnni"],
    _avx512: avx512,
    _avx512vbmi: [...avx512, "avx512vbmi", "gfni"],
    _amx: [...avx512, "avx512bf16", "avx512vbmi", "amx-tile", "amx-int8", "amx-bf16"],
  },
  arm64: {
    _dotprod: dotprod,
    _i8mm: [...dotprod, "i8mm"],
    _bf16: [...dotprod, "bf16"],
  },
};

const folders = {
  x64: ["", "generic", "x86", "aqlm/x86"],
  arm64: ["", "generic", "arm", "aqlm/arm"],
};

/**
 * The files of an architecture, as paths within native/, and the CPU features that each may use. None for an
 * architecture without kernels.
 * @param {string} arch as process.arch says it
 * @returns {{ file: string, features: string[] }[]}
 */
export function nativeSources(arch) {
  const suffixes = Object.entries(featuresOfSuffix[arch] ?? {});
  return (folders[arch] ?? [])
    .flatMap((folder) => readdirSync(join(nativeFolder, folder)).map((name) => join(folder, name)))
    .filter((file) => file.endsWith(".cc"))
    .map((file) => ({ file, features: suffixes.find(([suffix]) => file.endsWith(`${suffix}.cc`))?.[1] ?? [] }));
}

/**
 * Flags for these CPU features as gcc and clang want them; zig's clang has Arm features under LLVM's names only.
 * @param {string} arch
 * @param {string[]} features
 * @param {"cc" | "zig"} compiler
 */
export function featureFlags(arch, features, compiler) {
  if (features.length === 0) return [];
  if (arch === "x64") return features.map((feature) => `-m${feature}`);
  const list = features.map((feature) => `+${feature}`).join("");
  return [compiler === "zig" ? `-mcpu=generic${list.replace("+fp16", "+fullfp16")}` : `-march=armv8.2-a${list}`];
}

/** Where the addon and the TypeScript side find the fingerprint of what they share. */
const abiFile = join(root, "src", "kernels", "native", "abi.ts");

/** The fingerprint as the sources are now: differs when what the addon must know of the TypeScript side differs. */
export function contractFingerprint() {
  const hash = createHash("sha256");
  for (const name of ["interface.ts", "families.ts"])
    hash.update(readFileSync(join(root, "src", "kernels", "native", name), "utf8").replaceAll("\r\n", "\n"));
  return hash.digest("hex").slice(0, 8);
}

/** The fingerprint that the TypeScript side asks of an addon. */
export function nativeAbi() {
  return /NATIVE_ABI = "(\w+)"/.exec(readFileSync(abiFile, "utf8"))?.[1] ?? "";
}

/**
 * All that an addon is built from, by content: a checkout gives files any time. And what for: machines may share one.
 * @param {string} machine
 */
export function sourcesFingerprint(machine) {
  const native = readdirSync(nativeFolder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
  const scripts = ["build-native.js", "native-sources.js"].map((name) => join(root, "scripts", name));
  const hash = createHash("sha256").update(`${machine}\0`);
  for (const file of [...native.sort(), ...scripts, abiFile])
    hash
      .update(`${relative(root, file)}\0`)
      .update(readFileSync(file))
      .update("\0");
  return hash.digest("hex");
}

/** Flags of every file. */
export function baseFlags() {
  const include = join(root, "node_modules", "node-api-headers", "include");
  if (!existsSync(include)) throw new Error("node-api-headers is not installed (npm install)");
  return [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    // Else gcc takes loops that only prefetch for empty ones.
    "-fno-finite-loops",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-Wall",
    "-DNAPI_VERSION=8",
    `-DLOWBIT_ABI="${nativeAbi()}"`,
    `-I${include}`,
  ];
}

/** The name of a source file's object file. @param {string} file */
export function objectName(file) {
  return `${file.replaceAll(/[\\/]/g, "_")}.o`;
}
