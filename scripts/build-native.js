/**
 * Builds the native addon (build/lowbit.node) with this machine's C++ compiler. Without one, or where the build fails,
 * it says so and succeeds: the package works without the addon, only slower. `--strict` makes that an error.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const native = join(root, "native");
const objects = join(root, "build", "native");
const target = join(root, "build", "lowbit.node");
const strict = process.argv.includes("--strict");

/** Flags of instruction sets: a file whose name ends so is compiled with them, all others for the baseline. */
const isaFlags = {
  x64: {
    _avx2: ["-mavx2", "-mfma", "-mf16c"],
    _avxvnni: ["-mavx2", "-mfma", "-mf16c", "-mavxvnni"],
    _avx512: ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mfma", "-mf16c"],
    _amx: [
      "-mavx512f",
      "-mavx512bw",
      "-mavx512dq",
      "-mavx512vl",
      "-mavx512vnni",
      "-mavx512bf16",
      "-mavx512vbmi",
      "-mamx-tile",
      "-mamx-int8",
      "-mamx-bf16",
      "-mfma",
      "-mf16c",
    ],
  },
  arm64: {
    _dotprod: ["-march=armv8.2-a+dotprod+fp16"],
    _i8mm: ["-march=armv8.2-a+dotprod+fp16+i8mm+bf16"],
  },
};

const folders = { x64: ["", "linear", "generic", "x86"], arm64: ["", "linear", "generic", "arm"] };

function sources() {
  return (folders[process.arch] ?? []).flatMap((folder) => {
    const path = join(native, folder);
    return existsSync(path)
      ? readdirSync(path)
          .filter((name) => name.endsWith(".cc"))
          .map((name) => join(folder, name))
      : [];
  });
}

function newest(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true }).reduce(
    (time, entry) =>
      entry.isFile() ? Math.max(time, statSync(join(entry.parentPath ?? entry.path, entry.name)).mtimeMs) : time,
    0,
  );
}

function compiler() {
  const candidates = process.env.CXX ? [process.env.CXX] : ["c++", "g++", "clang++"];
  return candidates.find((name) => spawnSync(name, ["--version"]).status === 0);
}

function run(command, args) {
  return new Promise((resolve, reject) => {
    let errors = "";
    const child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe"] });
    child.stderr.on("data", (data) => {
      errors += data;
    });
    child.on("error", reject);
    child.on("close", (code) => (code === 0 ? resolve() : reject(new Error(errors.slice(0, 4000)))));
  });
}

async function build(cxx) {
  const include = join(root, "node_modules", "node-api-headers", "include");
  if (!existsSync(include)) throw new Error("node-api-headers is not installed");
  mkdirSync(objects, { recursive: true });
  const base = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-Wall",
    "-DNAPI_VERSION=8",
    `-I${include}`,
  ];
  const jobs = sources().map((source) => {
    const isa = Object.entries(isaFlags[process.arch] ?? {}).find(([suffix]) => source.endsWith(`${suffix}.cc`));
    const object = join(objects, `${source.replaceAll(/[\\/]/g, "_")}.o`);
    return { object, args: [...base, ...(isa?.[1] ?? []), "-c", join(native, source), "-o", object] };
  });
  const queue = [...jobs];
  const worker = async () => {
    for (let job = queue.shift(); job; job = queue.shift()) await run(cxx, job.args);
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  const shared = process.platform === "darwin" ? ["-bundle", "-undefined", "dynamic_lookup"] : ["-shared", "-pthread"];
  await run(cxx, [...shared, ...jobs.map(({ object }) => object), "-o", target]);
}

if (existsSync(target) && statSync(target).mtimeMs > newest(native)) process.exit(0);
rmSync(target, { force: true });
const cxx = folders[process.arch] ? compiler() : undefined;
try {
  if (!cxx) throw new Error(folders[process.arch] ? "no C++ compiler was found" : `no kernels for ${process.arch}`);
  await build(cxx);
  console.log("lowbit: native addon built");
} catch (error) {
  console.log(`lowbit: the native addon was not built and the reference kernels will serve: ${error.message}`);
  if (strict) process.exit(1);
}
