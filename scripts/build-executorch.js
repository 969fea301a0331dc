/**
 * Builds our kernels as an operator library for ExecuTorch, build/executorch/liblowbit_executorch.so, against the headers
 * and libexecutorch.so of an installed `executorch` package: `--python=file` says whose, default python3. A process that
 * loads it (Python: ctypes.CDLL after importing executorch.runtime) has the operators of native/executorch/.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { nativeFolder, nativeSources, objectName, root } from "./native-sources.js";

/** What only the addon needs. */
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

/** Objects of the kernels, as build-native.js compiles them for this machine. */
function kernelObjects() {
  const files = nativeSources(process.arch).map(({ file }) => file);
  const objects = files
    .filter((file) => !addonOnly.includes(file))
    .map((file) => join(root, "build", "native", objectName(file)));
  if (!objects.every((object) => existsSync(object))) rmSync(join(root, "build", "lowbit.node"), { force: true });
  execFileSync(process.execPath, [join(root, "scripts", "build-native.js"), "--strict"], { stdio: "inherit" });
  return objects;
}

/** Builds the library for the package of a Python and returns its path. @param {string} python */
export function buildExecutorch(python) {
  const folder = packageFolder(python);
  const include = join(folder, "include");
  const includes = [include, join(include, "executorch", "runtime", "core", "portable_type", "c10")];
  const build = join(root, "build", "executorch");
  const target = join(build, "liblowbit_executorch.so");
  mkdirSync(build, { recursive: true });
  const sources = readdirSync(join(nativeFolder, "executorch")).filter((name) => name.endsWith(".cc"));
  const [cxx, ...first] = (process.env.CXX ?? "c++").split(" ");
  const compile = (args) => execFileSync(cxx, [...first, ...args], { stdio: "inherit" });
  const objects = sources.map((name) => {
    const object = join(build, objectName(name));
    const source = join(nativeFolder, "executorch", name);
    compile([...flags, ...includes.map((path) => `-isystem${path}`), "-c", source, "-o", object]);
    return object;
  });
  const lib = join(folder, "lib");
  const libraries = [`-L${lib}`, "-lexecutorch", `-Wl,-rpath,${lib}`];
  compile(["-shared", "-pthread", "-Wl,--no-undefined", ...objects, ...kernelObjects(), ...libraries, "-o", target]);
  return target;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const option = process.argv.find((argument) => argument.startsWith("--python="));
  console.log(buildExecutorch(option?.slice("--python=".length) ?? "python3"));
}
