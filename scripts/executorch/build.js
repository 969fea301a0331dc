/**
 * Builds our kernels as an operator library for ExecuTorch, build/executorch/liblowbit_executorch.so, against the headers
 * and the runtime of an installed `executorch` package: `--python=file` says whose, default python3. A process that
 * loads it (Python: ctypes.CDLL after importing executorch.runtime) has the operators of native/executorch/ and of packages.
 */
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  emptyTables,
  libraries,
  librarySources,
  nativeFolder,
  nativeSources,
  objectName,
  root,
} from "../native/sources.js";

/** Source files that only the addon needs. */
const addonOnly = ["addon.cc", "kernel_library.cc"];
const flags = ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-DC10_USING_CUSTOM_GENERATED_MACROS"];

/** The folder of the `executorch` package of a Python. @param {string} python */
function packageFolder(python) {
  const program = "import importlib.util as u; print(u.find_spec('executorch').submodule_search_locations[0])";
  try {
    return execFileSync(python, ["-c", program], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    throw new Error(`${python}: has no package executorch; install it there (pip install executorch)`);
  }
}

/** Runs the compiler, which several calls do at the same time. @param {string[]} args */
function compile(args) {
  const [cxx, ...first] = (process.env.CXX ?? "c++").split(" ");
  return new Promise((resolve, reject) => {
    const child = spawn(cxx, [...first, ...args], { stdio: "inherit" });
    child.on("error", reject);
    child.on("close", (code, signal) => {
      if (code === 0) resolve(undefined);
      else reject(new Error(`${cxx} ended with ${code ?? signal}`));
    });
  });
}

/**
 * Objects of the kernels that this machine runs, as scripts/native/build.js compiles them for the addon, and one in place of others.
 * @param {string} build
 */
async function kernelObjects(build) {
  const addon = join(root, "build", "lowbit.node");
  const { arch } = process;
  const ofLibraries = libraries.flatMap((name) => librarySources(arch, name));
  const sources = [...nativeSources(arch), ...ofLibraries].filter(({ file }) => !addonOnly.includes(file));
  const objectOf = (/** @type {string} */ file) => join(root, "build", "native", objectName(file));
  // An addon that was brought from elsewhere has no objects here.
  if (!sources.some(({ file }) => existsSync(objectOf(file)))) rmSync(addon, { force: true });
  execFileSync(process.execPath, [join(root, "scripts", "native", "build.js")], { stdio: "inherit" });
  const sets = readFileSync(`${addon}.sources`, "utf8").split("\n")[1]?.split(" ") ?? [];
  const isBuilt = (/** @type {string} */ set) => set === "" || sets.includes(set);
  const objects = sources.filter(({ set }) => isBuilt(set)).map(({ file }) => objectOf(file));
  const absent = sources.filter(({ set }) => !isBuilt(set)).map(({ file }) => file);
  if (absent.length === 0) return objects;
  const tables = join(build, "absent.cc");
  writeFileSync(tables, emptyTables(absent));
  await compile([...flags, `-I${nativeFolder}`, "-c", tables, "-o", `${tables}.o`]);
  return [...objects, `${tables}.o`];
}

/**
 * What has the package's registry of operators: a library of its own since 1.5, the bindings of Python before, which keep to
 * themselves how to log and to end. The package's quantized operators have both, and are loaded with ours.
 * @param {string} folder of the package
 */
function runtimeLibraries(folder) {
  const lib = join(folder, "lib");
  if (existsSync(join(lib, "libexecutorch.so"))) return [`-L${lib}`, "-lexecutorch", `-Wl,-rpath,${lib}`];
  const bindings = join(folder, "extension", "pybindings");
  const name = readdirSync(bindings).find((file) => /^_portable_lib\..*\.so$/.test(file));
  if (!name) throw new Error(`${folder}: expected lib/libexecutorch.so or extension/pybindings/_portable_lib.*.so`);
  const quantized = join(folder, "kernels", "quantized");
  const libraries = [join(bindings, name), join(quantized, "libquantized_ops_aot_lib.so")];
  // Those of torch, which both need, are loaded when the bindings are.
  return [...libraries, `-Wl,-rpath,${bindings}:${quantized}`, "-Wl,--allow-shlib-undefined"];
}

/**
 * Builds the library for the package of a Python and returns its path.
 * @param {string} python
 * @param {string} [build] folder of what is built
 */
export async function buildExecutorch(python, build = join(root, "build", "executorch")) {
  const folder = packageFolder(python);
  const include = join(folder, "include");
  const includes = [include, join(include, "executorch", "runtime", "core", "portable_type", "c10")];
  const target = join(build, "liblowbit_executorch.so");
  mkdirSync(build, { recursive: true });
  const folders = [nativeFolder, ...libraries.map((name) => join(root, "packages", name, "native"))];
  const sources = folders
    .map((within) => join(within, "executorch"))
    .flatMap((within) => readdirSync(within).map((name) => join(within, name)))
    .filter((file) => file.endsWith(".cc"));
  const objects = sources.map(async (source) => {
    const object = join(build, objectName(basename(source)));
    const paths = [`-I${nativeFolder}`, ...includes.map((path) => `-isystem${path}`)];
    await compile([...flags, ...paths, "-c", source, "-o", object]);
    return object;
  });
  const kernels = await kernelObjects(build);
  const parts = [...(await Promise.all(objects)), ...kernels, ...runtimeLibraries(folder)];
  await compile(["-shared", "-pthread", "-Wl,--no-undefined", ...parts, "-o", target]);
  return target;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const option = process.argv.find((argument) => argument.startsWith("--python="));
  console.log(await buildExecutorch(option?.slice("--python=".length) ?? "python3"));
}
