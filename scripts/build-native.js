/**
 * Builds the native addon (build/lowbit.node) with this machine's C++ compiler. Without one, or where the build fails,
 * it says so and succeeds: the package works without the addon, only slower. `--strict` makes that an error.
 * `--target=linux-arm64` builds build/lowbit-linux-arm64.node with a cross compiler instead: CXX ("python3 -m ziglang c++
 * -target aarch64-linux-gnu" works as well), else aarch64-linux-gnu-g++. `--out=file` writes the addon there.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import {
  baseFlags,
  featureFlags,
  nativeFolder,
  nativeSources,
  objectName,
  root,
  sourcesFingerprint,
} from "./native-sources.js";

/** @param {string} name */
const option = (name) => process.argv.find((argument) => argument.startsWith(name))?.slice(name.length);
const cross = option("--target=");
const [platform, arch] = cross?.split("-") ?? [process.platform, process.arch];
const objects = join(root, "build", cross ? `native-${cross}` : "native");
const target = option("--out=") ?? join(root, "build", cross ? `lowbit-${cross}.node` : "lowbit.node");
const strict = process.argv.includes("--strict");
const sources = nativeSources(arch);

/** A command and its first arguments, or undefined. */
function compiler() {
  const known = cross ? ["aarch64-linux-gnu-g++"] : ["c++", "g++", "clang++"];
  const candidates = (process.env.CXX ? [process.env.CXX] : known).map((command) => command.split(" "));
  return candidates.find(([name, ...args]) => spawnSync(name, [...args, "--version"]).status === 0);
}

function run([command, ...first], args) {
  return new Promise((resolve, reject) => {
    let errors = "";
    const child = spawn(command, [...first, ...args], { stdio: ["ignore", "ignore", "pipe"] });
    child.stderr.on("data", (data) => {
      errors += data;
    });
    child.on("error", reject);
    child.on("close", (code) => (code === 0 ? resolve() : reject(new Error(errors.slice(0, 4000)))));
  });
}

async function build(cxx) {
  const base = baseFlags();
  mkdirSync(objects, { recursive: true });
  const jobs = sources.map(({ file, features }) => {
    const object = join(objects, objectName(file));
    const flags = [...base, ...featureFlags(arch, features, cxx.includes("ziglang") ? "zig" : "cc")];
    return { object, args: [...flags, "-c", join(nativeFolder, file), "-o", object] };
  });
  const queue = [...jobs];
  const worker = async () => {
    for (let job = queue.shift(); job; job = queue.shift()) await run(cxx, job.args);
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  const shared = platform === "darwin" ? ["-bundle", "-undefined", "dynamic_lookup"] : ["-shared", "-pthread"];
  await run(cxx, [...shared, ...jobs.map(({ object }) => object), "-o", target]);
}

/** Holds the fingerprint of the sources that the addon was built from. */
const note = `${target}.sources`;
const fingerprint = sourcesFingerprint();
if (existsSync(target) && existsSync(note) && readFileSync(note, "utf8") === fingerprint) process.exit(0);
rmSync(target, { force: true });
try {
  if (sources.length === 0) throw new Error(`there are no kernels for ${arch}`);
  const cxx = compiler();
  if (!cxx) throw new Error("no C++ compiler was found");
  await build(cxx);
  writeFileSync(note, fingerprint);
  console.log(`lowbit: native addon built`);
} catch (error) {
  console.log(`lowbit: the native addon was not built and slower kernels will serve: ${error.message}`);
  if (strict) process.exit(1);
}
