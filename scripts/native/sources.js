/**
 * The C++ files of the native addon and of the libraries beside it, and their compiler flags, for scripts/native/build.js (this
 * machine's compiler) and scripts/release/release.js (zig). A file's name says its instruction set; files without one are
 * compiled for the baseline.
 */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../..", import.meta.url));
export const nativeFolder = join(root, "native");

/** Packages whose kernels are built as libraries beside the addon, which loads them: their C++ is in packages/<name>/native. */
export const libraries = ["aqlm"];

/** Where the library of a package is, beside an addon. @param {string} addon @param {string} name */
export const libraryBeside = (addon, name) => addon.replace(/(\.node)?$/, `-${name}.node`);

/** A package's folder of C++, as a path within native/. @param {string} name */
const libraryFolder = (name) => join("..", "packages", name, "native");

const avx2 = ["avx2", "fma", "f16c"];
const avx512 = [...avx2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"];
const dotprod = ["dotprod", "fp16"];

/**
 * Instruction sets beyond the baseline, by the end of the file name: the features that its files may use, and of those, as
 * native/kernel.h names them, one of which a CPU has when it can run rows of such files.
 * @type {Record<string, Record<string, { features: string[], runs: string[] }>>}
 */
const instructionSets = {
  x64: {
    _avx2: { features: avx2, runs: ["kAvx2"] },
    _avxvnni: { features: [...avx2, "avxvnni"], runs: ["kAvxVnni"] },
    _avx512: { features: avx512, runs: ["kAvx512"] },
    _avx512vbmi: { features: [...avx512, "avx512vbmi", "gfni"], runs: ["kAvx512Vbmi"] },
    _amx: {
      features: [...avx512, "avx512bf16", "avx512vbmi", "amx-tile", "amx-int8", "amx-bf16"],
      runs: ["kAmxInt8", "kAmxBf16"],
    },
  },
  arm64: {
    _dotprod: { features: dotprod, runs: ["kDotprod"] },
    _i8mm: { features: [...dotprod, "i8mm"], runs: ["kI8mm"] },
    // Instructions of streaming mode are written as words: compilers must use none by themselves.
    _sme2: { features: [...dotprod, "i8mm"], runs: ["kSme2"] },
    _bf16: { features: [...dotprod, "bf16"], runs: ["kBf16"] },
  },
};

/**
 * Files whose rows no CPU chooses that has one of these features, as native/kernel.h names them: it has better rows for
 * all calls, which native-sources.test.js asks selection. A machine that compiles for itself does not optimize them.
 * @type {Record<string, string[]>}
 */
export const passedOver = {
  "generic/linear_float.cc": ["kAvx2"],
  "generic/transformer.cc": ["kAvx2"],
  "generic/quantize.cc": ["kAvx2"],
  "x86/attention_avxvnni.cc": ["kAvx512"],
  "x86/attention_avx2.cc": ["kAvx512", "kAvxVnni"],
  "x86/transformer_avx2.cc": ["kAvx512"],
  "x86/quantize_avx2.cc": ["kAvx512"],
  "x86/linear_float_avx2.cc": ["kAvx512"],
  "x86/linear_gemm_avx2.cc": ["kAvxVnni", "kAvx512Vnni"],
  "x86/linear_avx2.cc": ["kAvxVnni", "kAvx512Vnni"],
  "x86/linear_avxvnni.cc": ["kAvx512Vnni"],
  "x86/linear_avx512.cc": ["kAmxInt8"],
};

/** Folders of what only an architecture compiles. */
const folders = { x64: "x86", arm64: "arm" };

/** @typedef {{ file: string, set: string, features: string[] }} Source */

/**
 * The files of an architecture, as paths within native/, the instruction set that the name of each says ("_avx2"; "" for
 * the baseline) and the CPU features that it may use. None for an architecture without kernels.
 * @param {string} arch as process.arch says it
 * @returns {Source[]}
 */
export function nativeSources(arch) {
  return sourcesIn(arch, ["", "generic", folders[arch]]);
}

/** Source files of a package's library. @param {string} arch @param {string} name */
export function librarySources(arch, name) {
  return sourcesIn(arch, [libraryFolder(name), join(libraryFolder(name), folders[arch] ?? "")]);
}

/** @param {string} arch @param {string[]} within folders, as paths within native/ @returns {Source[]} */
function sourcesIn(arch, within) {
  if (!folders[arch]) return [];
  return within
    .flatMap((folder) => readdirSync(join(nativeFolder, folder)).map((name) => join(folder, name)))
    .filter((file) => file.endsWith(".cc"))
    .map((file) => sourceOf(arch, file));
}

/** Instruction set and CPU features of a file, from its name. @param {string} arch @param {string} file */
export function sourceOf(arch, file) {
  const sets = Object.entries(instructionSets[arch] ?? {});
  const [set, { features }] = sets.find(([suffix]) => file.endsWith(`${suffix}.cc`)) ?? ["", { features: [] }];
  return { file, set, features };
}

/** Files that take over four seconds to compile, the slowest first. */
const slow = [
  "x86/linear_avx512.cc",
  "x86/linear_planes_amx.cc",
  "x86/linear_avx2.cc",
  "x86/linear_float_avx512.cc",
  "x86/linear_blocks_avx512.cc",
  "x86/linear_avxvnni.cc",
  "x86/linear_float_avx2.cc",
  "x86/linear_gemm_avx2.cc",
  "arm/linear_dotprod.cc",
  "arm/linear_i8mm.cc",
  "arm/linear_neon.cc",
  "x86/transformer_avx512.cc",
  "x86/attention_amx.cc",
  "x86/transformer_avx2.cc",
  "x86/quantize_avx512.cc",
  "x86/quantize_avx2.cc",
  "generic/quantize.cc",
  "generic/transformer.cc",
  "generic/linear_packed.cc",
].map((file) => join(...file.split("/")));

/**
 * The same sources in the order in which cores that share them are done soonest.
 * @template {{ file: string }} T @param {T[]} sources
 */
export function slowestFirst(sources) {
  const place = (/** @type {string} */ file) => (slow.includes(file) ? slow.indexOf(file) : slow.length);
  return sources.toSorted((a, b) => place(a.file) - place(b.file));
}

/** Names of the instruction sets beyond the baseline. @param {string} arch */
export function instructionSetsOf(arch) {
  return Object.keys(instructionSets[arch] ?? {});
}

/**
 * C++ of a program that prints the instruction sets of the CPU that runs it, and the files that it passes over, one a line.
 * @param {string} arch
 */
export function probeProgram(arch) {
  const sets = Object.entries(instructionSets[arch] ?? {}).map(([set, { runs }]) => [set, runs]);
  const files = nativeSources(arch).map(({ file }) => file.replaceAll("\\", "/"));
  const lines = [...sets, ...files.flatMap((file) => (passedOver[file] ? [[file, passedOver[file]]] : []))].map(
    ([name, bits]) =>
      `  if (lowbit::cpu_features() & (${bits.map((bit) => `lowbit::${bit}`).join(" | ")})) puts("${name}");\n`,
  );
  return `#include <stdio.h>\n#include "cpu.cc"\nint main() {\n${lines.join("")}  return 0;\n}\n`;
}

/** C++ of tables without rows, in place of files that are not compiled. @param {string[]} files */
export function emptyTables(files) {
  const tables = files.map((file) => `KernelRows ${basename(file, ".cc")}_rows() { return {nullptr, 0}; }\n`);
  return `#include "kernel.h"\nnamespace lowbit {\n${tables.join("")}}  // namespace lowbit\n`;
}

/**
 * Flags of one file beyond those of every file: for its CPU features, and for the one that tells it, what the addon must
 * know of the TypeScript side; the others need not be compiled anew when that changes.
 * @param {string} arch
 * @param {{ file: string, features: string[] }} source
 * @param {"cc" | "zig"} compiler
 */
export function fileFlags(arch, { file, features }, compiler) {
  const abi = file === "addon.cc" ? [`-DLOWBIT_ABI="${nativeAbi()}"`] : [];
  // Packages include the contract of kernels by its name, and what measures their rows includes them.
  const include = file.startsWith("..") || file.startsWith(join("arm", "bench")) ? [`-I${nativeFolder}`] : [];
  return [...abi, ...include, ...featureFlags(arch, features, compiler)];
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

/**
 * The fingerprint as the sources are now: differs when what the addon must know of the TypeScript side differs.
 * @param {string[]} headers what says where the arguments of native calls are
 */
export function contractFingerprint(headers) {
  const hash = createHash("sha256");
  hash.update(readFileSync(join(root, "src", "kernels", "native", "interface.ts"), "utf8").replaceAll("\r\n", "\n"));
  for (const text of headers) hash.update(text);
  return hash.digest("hex").slice(0, 8);
}

/** The fingerprint that the TypeScript side asks of an addon. */
export function nativeAbi() {
  return /NATIVE_ABI = "(\w+)"/.exec(readFileSync(abiFile, "utf8"))?.[1] ?? "";
}

function nativeFiles() {
  return [nativeFolder, ...libraries.map((name) => join(nativeFolder, libraryFolder(name)))]
    .flatMap((folder) => readdirSync(folder, { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
}

/**
 * The files of the addon and of libraries that a compiler's list of dependencies (-MMD) names, as paths within native/.
 * @param {string} list
 */
export function includedFiles(list) {
  const names = list.slice(list.indexOf(": ") + 2).split(/\s*\\?\r?\n\s*|(?<!\\)\s+/);
  const within = names.map((name) => relative(nativeFolder, name.replaceAll("\\ ", " ")));
  const isOurs = (/** @type {string} */ name) => !name.startsWith("..") || name.startsWith(join("..", "packages"));
  return [...new Set(within.filter((name) => name !== "" && isOurs(name)))].sort();
}

/**
 * What an object is made of: a command, and what files within native/ hold; a file that is not there holds nothing.
 * @param {string[]} command the compiler and its flags @param {readonly string[]} files
 */
export function filesFingerprint(command, files) {
  const hash = createHash("sha256").update(command.join("\0"));
  for (const file of files) {
    const path = join(nativeFolder, file);
    hash.update(`\0${file}\0`).update(existsSync(path) ? readFileSync(path) : "");
  }
  return hash.digest("hex");
}

/**
 * All that an addon and its libraries are built from, by content: a checkout gives files any time. And what for: machines may share one.
 * @param {string} machine
 */
export function sourcesFingerprint(machine) {
  const scripts = ["build.js", "sources.js"].map((name) => join(root, "scripts", "native", name));
  const hash = createHash("sha256").update(`${machine}\0`);
  for (const file of [...nativeFiles(), ...scripts, abiFile])
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
    `-I${include}`,
  ];
}

/** The name of a source file's object file. @param {string} file */
export function objectName(file) {
  return `${file.replace(/^\.\.[\\/]/, "").replaceAll(/[\\/]/g, "_")}.o`;
}
