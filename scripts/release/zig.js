/** zig as the C++ compiler of every platform, from PyPI into a throw-away environment in build/zig. */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, join } from "node:path";
import {
  baseFlags,
  fileFlags,
  libraries,
  libraryBeside,
  librarySources,
  nativeFolder,
  nativeSources,
  objectName,
  root,
} from "../native/sources.js";

const ZIG = "ziglang==0.17.0";
const folder = join(root, "build", "zig");
const binaries = join(folder, "venv", process.platform === "win32" ? "Scripts" : "bin");
const python = join(binaries, "python");
const environment = {
  ...process.env,
  ZIG_GLOBAL_CACHE_DIR: join(folder, "cache"),
  ZIG_LOCAL_CACHE_DIR: join(folder, "cache"),
};

/** @param {string} command @param {string[]} args */
function run(command, args) {
  return new Promise((resolve, reject) => {
    let output = "";
    const child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe"], env: environment });
    child.stderr.on("data", (data) => {
      output += data;
    });
    child.on("error", reject);
    child.on("close", (code, signal) => {
      if (code === 0) resolve(undefined);
      else reject(new Error(`${command} ${args.join(" ")}\nended with ${signal ?? code}\n${output.slice(0, 4000)}`));
    });
  });
}

/** Runs zig; installZig comes first. @param {string[]} args */
export const zig = (args) => run(python, ["-m", "ziglang", ...args]);

/** Installs zig where it is not there yet. Needs Python 3 and PyPI. */
export async function installZig() {
  const note = join(folder, "installed");
  if (existsSync(note) && readFileSync(note, "utf8") === ZIG) return;
  const python3 = process.platform === "win32" ? "python" : "python3";
  await run(python3, ["-m", "venv", join(folder, "venv")]);
  await run(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ZIG]);
  writeFileSync(note, ZIG);
}

/**
 * The import library through which Windows finds Node's functions in node.exe.
 * @param {string} cpu @param {string} objects
 */
async function nodeLibrary(cpu, objects) {
  const definition = join(root, "node_modules", "node-api-headers", "def", "node_api.def");
  const library = join(objects, "libnode.a");
  await zig(["dlltool", "-d", definition, "-m", cpu === "x64" ? "i386:x86-64" : "arm64", "-l", library]);
  return library;
}

/**
 * What the linker needs to know on each system of a file that exports these functions.
 * @param {string} os @param {string} objects @param {string} name the file's @param {string[]} exported
 */
function systemFlags(os, objects, name, exported) {
  if (os === "darwin") return ["-Wl,-undefined,dynamic_lookup", `-Wl,-install_name,@rpath/${name}`];
  if (os === "win32") return [];
  // Else the allocator of the C++ library inside would be exported, and mix with that of Node.
  const exports = join(objects, `${name}.map`);
  writeFileSync(exports, `{ global: ${exported.join("; ")}; local: *; };\n`);
  return [`-Wl,--version-script=${exports}`];
}

/**
 * Builds the addon of a platform, and the libraries of packages beside it; the C++ library is linked statically.
 * @param {import("./release-packages.js").Platform} platform
 * @param {string} addon the file
 */
export async function buildBinaries({ name, os, cpu, zig: target }, addon) {
  const objects = join(folder, "objects", name);
  mkdirSync(objects, { recursive: true });
  const objectOf = (/** @type {{ file: string }} */ { file }) => join(objects, objectName(file));
  const ofLibraries = libraries.map((library) => ({
    path: libraryBeside(addon, library),
    sources: librarySources(cpu, library),
  }));
  const queue = [...nativeSources(cpu), ...ofLibraries.flatMap(({ sources }) => sources)];
  const worker = async () => {
    for (let source = queue.shift(); source; source = queue.shift()) {
      const flags = ["-target", target, ...baseFlags(), ...fileFlags(cpu, source, "zig")];
      await zig(["c++", ...flags, "-c", join(nativeFolder, source.file), "-o", objectOf(source)]);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  /** @param {string} path @param {{ file: string }[]} sources @param {string[]} exported @param {string[]} linked */
  const link = (path, sources, exported, linked = []) => {
    const flags = ["-target", target, "-shared", "-s", ...sources.map(objectOf), ...linked];
    return zig(["c++", ...flags, ...systemFlags(os, objects, basename(path), exported), "-o", path]);
  };
  const node = os === "win32" ? [await nodeLibrary(cpu, objects)] : [];
  await link(addon, nativeSources(cpu), ["napi_register_module_v1", "node_api_module_get_api_version_v1"], node);
  for (const { path, sources } of ofLibraries) await link(path, sources, ["lowbit_kernel_library"]);
}
