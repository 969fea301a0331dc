/**
 * Builds the native addon (build/lowbit.node) with this machine's C++ compiler. Without one, or where the build fails,
 * it says so and succeeds: the package works without the addon, only slower. `--strict` makes that an error.
 * `--target=linux-arm64` builds build/lowbit-linux-arm64.node with a cross compiler instead: CXX ("python3 -m ziglang c++
 * -target aarch64-linux-gnu" works as well), else aarch64-linux-gnu-g++. `--out=file` writes the addon there.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, dirname, join } from "node:path";
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
/** Builds at the same time do not meet. */
const unfinished = `${objects}-${process.pid}`;
const target = option("--out=") ?? join(root, "build", cross ? `lowbit-${cross}.node` : "lowbit.node");
/** Holds the fingerprint of what the addon was built from. */
const note = `${target}.sources`;
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
    child.on("close", (code, signal) => {
      if (code === 0) resolve();
      else reject(new Error(errors.slice(0, 4000) || `${command} ended with ${signal ?? code}`));
    });
  });
}

/** Removes what builds whose processes were killed have left. */
function removeLeftovers() {
  for (const path of [objects, target]) {
    const folder = dirname(path);
    for (const name of existsSync(folder) ? readdirSync(folder) : []) {
      const pid = name.startsWith(basename(path)) && /^[-.](\d+)$/.exec(name.slice(basename(path).length))?.[1];
      if (pid && !isRunning(Number(pid))) rmSync(join(folder, name), { recursive: true, force: true });
    }
  }
}

/** @param {number} pid */
function isRunning(pid) {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error.code === "EPERM";
  }
}

/** Objects and addon get their names when they are whole: who loads half an addon dies of it. Until then the old one stays. */
async function build(cxx, fingerprint) {
  const base = baseFlags();
  removeLeftovers();
  mkdirSync(unfinished, { recursive: true });
  const jobs = sources.map(({ file, features }) => {
    const object = join(unfinished, objectName(file));
    const flags = [...base, ...featureFlags(arch, features, cxx.includes("ziglang") ? "zig" : "cc")];
    return { object, args: [...flags, "-c", join(nativeFolder, file), "-o", object] };
  });
  const queue = [...jobs];
  let failure;
  const worker = async () => {
    for (let job = queue.shift(); job; job = queue.shift())
      await run(cxx, job.args).catch((error) => {
        failure ??= error;
        queue.length = 0;
      });
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  if (failure) throw failure;
  const shared = platform === "darwin" ? ["-bundle", "-undefined", "dynamic_lookup"] : ["-shared", "-pthread"];
  const addon = `${target}.${process.pid}`;
  try {
    await run(cxx, [...shared, ...jobs.map(({ object }) => object), "-o", addon]);
    rmSync(objects, { recursive: true, force: true });
    renameSync(unfinished, objects);
    // Without its note, the addon is built again should this process end between the two.
    rmSync(note, { force: true });
    renameSync(addon, target);
    writeFileSync(note, fingerprint);
  } finally {
    rmSync(addon, { force: true });
  }
}

try {
  const fingerprint = sourcesFingerprint(`${platform}-${arch}`);
  if (existsSync(target) && existsSync(note) && readFileSync(note, "utf8") === fingerprint) process.exit(0);
  if (sources.length === 0) throw new Error(`there are no kernels for ${arch}`);
  const cxx = compiler();
  if (!cxx) throw new Error(`no C++ compiler was found${process.env.CXX ? `: CXX is ${process.env.CXX}` : ""}`);
  await build(cxx, fingerprint);
  console.log(`lowbit: native addon built`);
} catch (error) {
  const outcome = existsSync(target) ? "; the one built before stays" : " and slower kernels will serve";
  console.log(`lowbit: the native addon was not built${outcome}: ${error.message}`);
  if (strict) process.exitCode = 1;
} finally {
  rmSync(unfinished, { recursive: true, force: true });
}
