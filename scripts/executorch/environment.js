/**
 * Python environments with releases of ExecuTorch, for scripts/executorch/test.js. They are installed where they are missing
 * and stay, outside of this folder: a clone finds what another has installed.
 */
import { execFileSync } from "node:child_process";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

/**
 * What is compared with, the newest first. Releases of ExecuTorch are built for one of torch, which PyPI has for Linux on x86
 * only with CUDA's libraries, without which it does not load.
 */
export const releases = {
  "1.5.1": ["executorch==1.5.1", "torch==2.13.0"],
  // Its runner of texts imports transformers, which the package does not ask for.
  "1.4.1": ["executorch==1.4.1", "torch==2.13.0", "transformers==4.57.3"],
};

/**
 * What torch imports only to compile for GPUs, a seventh of the bytes: left out.
 */
const NOT_NEEDED = ["triton"];

const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "lowbit-tests");

/**
 * Runs a program, its errors beside ours only when it fails; gives what it prints.
 * @param {string} program
 * @param {string[]} args
 * @param {Record<string, string>} [variables] of its environment, beside ours
 */
export function run(program, args, variables = {}) {
  const env = { ...process.env, ...variables };
  try {
    return execFileSync(program, args, {
      encoding: "utf8",
      maxBuffer: 1 << 28,
      stdio: ["ignore", "pipe", "pipe"],
      env,
    });
  } catch (error) {
    console.error(String(error.stderr).slice(-4000));
    throw error;
  }
}

/**
 * The Python of an environment, installed where it is missing.
 * @param {string} name of its folder
 * @param {string[]} packages
 * @param {string[]} left packages that others ask for and that are left out
 * @param {string} size of what is downloaded
 */
function installed(name, packages, left, size) {
  const folder = join(cache, name);
  const python = join(folder, "bin", "python");
  const ready = join(folder, "ready");
  if (existsSync(ready)) return python;
  console.log(`installing ${packages.join(" and ")} in ${folder}: some ${size}, minutes`);
  rmSync(folder, { recursive: true, force: true });
  run("python3", ["-m", "venv", folder]);
  // pip takes twice the time.
  run(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv==0.13.9"]);
  const overrides = join(folder, "overrides.txt");
  writeFileSync(overrides, left.map((other) => `${other}; sys_platform == "never"\n`).join(""));
  run(join(folder, "bin", "uv"), [
    ...["pip", "install", "--quiet", "--python", python, "--no-cache", "--override", overrides],
    ...packages,
  ]);
  writeFileSync(ready, "");
  return python;
}

/** The Python that has a release. @param {string} release a key of `releases` */
export function pythonWith(release) {
  const packages = releases[release];
  return installed(packages.join("-").replaceAll("==", "-"), packages, NOT_NEEDED, "4 GB");
}

/**
 * Exporters of others, by name. They run in the newest release's environment with packages of their own before it:
 * optimum-executorch asks for one release candidate of transformers.
 */
export const exporters = {
  "optimum-executorch": ["optimum-executorch==1.1.0", "transformers==5.0.0rc1"],
  transformers: ["transformers==5.24.0"],
};

/**
 * What a command needs to run the newest release's Python with packages of its own before the others: the program, and
 * variables. @param {string[]} packages
 */
export function pythonOver(packages) {
  const python = pythonWith(Object.keys(releases)[0]);
  const left = [...NOT_NEEDED, "torch", "torchvision", "executorch", "numpy"];
  const own = installed(packages[0].replace("==", "-"), packages, left, "300 MB");
  const program = "import sysconfig; print(sysconfig.get_path('purelib'))";
  return { python, variables: { PYTHONPATH: run(own, ["-c", program]).trim() } };
}

/** Installed versions by package. @param {string} python @param {string[]} names @returns {Record<string, string>} */
export function versions(python, names) {
  const program =
    "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))";
  return JSON.parse(run(python, ["-c", program, ...names]));
}
