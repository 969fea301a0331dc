/**
 * Builds the native addon (build/lowbit.node) and the libraries of packages beside it (build/lowbit-aqlm.node) with this
 * machine's C++ compiler, with the kernels that this CPU can run; those that it never chooses are not optimized. Without a
 * compiler, or if the build fails, it says so and succeeds: the package works without the addon, only slower.
 *
 * - `--fast`: all kernels that this CPU can run are optimized.
 * - `--all`: kernels of every instruction set of this architecture, all optimized.
 * - `--strict`: a failure is an error. Kernels of other instruction sets are compiled, too, without optimizing: it shows that
 *   they compile, and which kernels they have.
 * - `--target=linux-arm64`: builds build/lowbit-linux-arm64.node, with all kernels, by a cross compiler: CXX ("python3 -m
 *   ziglang c++ -target aarch64-linux-gnu" works as well), else aarch64-linux-gnu-g++.
 * - `--sanitize=address,undefined`: instruments the kernels that this CPU can run with these sanitizers of gcc and clang.
 * - `--out=file`: writes the addon there.
 */
import { spawn, spawnSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism, hostname } from "node:os";
import { basename, dirname, join } from "node:path";
import { CompileProgress } from "./compile-progress.js";
import {
  baseFlags,
  emptyTables,
  fileFlags,
  filesFingerprint,
  includedFiles,
  instructionSetsOf,
  libraries,
  libraryBeside,
  librarySources,
  nativeFolder,
  nativeSources,
  objectName,
  passedOver,
  probeProgram,
  root,
  slowestFirst,
  sourcesFingerprint,
} from "./sources.js";

/** @param {string} name */
const option = (name) => process.argv.find((argument) => argument.startsWith(name))?.slice(name.length);
const cross = option("--target=");
const [platform, arch] = cross?.split("-") ?? [process.platform, process.arch];
/** The sanitizers to build with, as the compiler lists them. */
const sanitizers = option("--sanitize=");
const kind = cross ?? sanitizers?.replaceAll(",", "-");
const objects = join(root, "build", kind ? `native-${kind}` : "native");
/** Builds at the same time do not meet, in containers that share the folder, either, whose processes have equal numbers. */
const ownName = `${placeName()}-${process.pid}-${randomBytes(6).toString("hex")}`;
const unfinished = `${objects}-${ownName}`;
const target = option("--out=") ?? join(root, "build", kind ? `lowbit-${kind}.node` : "lowbit.node");
/** Holds the fingerprint of what the addon was built from, and on a second line the instruction sets that it has. */
const note = `${target}.sources`;
const strict = process.argv.includes("--strict");
const all = cross !== undefined || process.argv.includes("--all");
const fast = all || process.argv.includes("--fast");
/** What is linked: the addon, then the libraries of packages. @typedef {{ path: string, sources: import("./sources.js").Source[] }} Product */
/** @type {Product[]} */
const products = [
  { path: target, sources: nativeSources(arch) },
  ...libraries.map((name) => ({ path: libraryBeside(target, name), sources: librarySources(arch, name) })),
];

/** A command and its first arguments, and what it says of its version; or undefined. */
function compiler() {
  const known = cross ? ["aarch64-linux-gnu-g++"] : ["c++", "g++", "clang++"];
  for (const command of process.env.CXX ? [process.env.CXX] : known) {
    const [name, ...args] = command.split(" ");
    const { status, stdout } = spawnSync(name, [...args, "--version"], { encoding: "utf8" });
    if (status === 0) return { cxx: [name, ...args], version: stdout };
  }
  return undefined;
}

/** Functions of ours stay functions, and nothing is optimized: a file takes seconds where it takes minutes else. */
const unoptimized = ["-O0", "-Dalways_inline=unused"];

/** Whether a file that this CPU never chooses is optimized a little, since tests compute much with it. @param {string} file */
const isTestedLong = (file) => /(attention|transformer|quantize)[_.]/.test(file);
const lightlyOptimized = ["-O1", "-Dalways_inline=unused"];

/** Flags of sanitizers: reports name lines, and frames are there. Optimizing checks of each access would take minutes. */
const instrumented = sanitizers ? [...unoptimized, "-g1", "-fno-omit-frame-pointer", `-fsanitize=${sanitizers}`] : [];

/** Node has templates of the standard library, too, whose atomics the sanitizers do not see: the addon's are its own. */
const ownTemplates = sanitizers ? ["-Wl,-Bsymbolic"] : [];

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

/** Tells machines and namespaces of processes apart. */
function placeName() {
  const facts = [hostname()];
  if (existsSync("/proc/self/ns/pid")) facts.push(readlinkSync("/proc/self/ns/pid"));
  return createHash("sha256").update(facts.join()).digest("hex").slice(0, 8);
}

/** Removes what builds whose processes were killed have left. */
function removeLeftovers() {
  const leftover = new RegExp(`^[-.]${placeName()}-(\\d+)-[0-9a-f]{12}$`);
  for (const path of [objects, ...products.map((product) => product.path)]) {
    const folder = dirname(path);
    for (const name of existsSync(folder) ? readdirSync(folder) : []) {
      const pid = name.startsWith(basename(path)) && leftover.exec(name.slice(basename(path).length))?.[1];
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

/**
 * What to optimize: instruction sets, all or those of this CPU, and of their files, which not, as this CPU passes them over.
 * Where the CPU does not say what it has, all.
 * @param {string[] | undefined} cxx
 * @returns {Promise<{ sets: string[], slowFiles: string[] }>}
 */
async function whatToOptimize(cxx) {
  const known = instructionSetsOf(arch);
  if (all || !cxx) return { sets: known, slowFiles: [] };
  const program = join(unfinished, "probe.cc");
  const probe = join(unfinished, process.platform === "win32" ? "probe.exe" : "probe");
  mkdirSync(unfinished, { recursive: true });
  writeFileSync(program, probeProgram(arch));
  await run(cxx, ["-std=c++17", `-I${nativeFolder}`, program, "-o", probe]);
  const { status, stdout } = spawnSync(probe, { encoding: "utf8" });
  if (status !== 0) return { sets: known, slowFiles: [] };
  const names = stdout.split(/\s+/);
  return { sets: names.filter((name) => known.includes(name)), slowFiles: names.filter((name) => passedOver[name]) };
}

/**
 * An object of a source, its compiler arguments, and the fingerprint of its compiler and flags.
 * @param {string[]} cxx @param {string} version @param {{ sets: string[], slowFiles: string[] }} optimized
 */
function compilation(cxx, version, { sets, slowFiles }) {
  const base = [...baseFlags(), ...instrumented];
  const kind = cxx.includes("ziglang") ? "zig" : "cc";
  return (/** @type {{ file: string, set: string, features: string[] }} */ source) => {
    const { file, set } = source;
    const isPassedOver = !fast && !sanitizers && slowFiles.includes(file.replaceAll("\\", "/"));
    const isUnused = isPassedOver || (set !== "" && !sets.includes(set));
    const speed = isPassedOver && isTestedLong(file) ? lightlyOptimized : isUnused ? unoptimized : [];
    const flags = [...fileFlags(arch, source, kind), ...speed];
    // Objects that a copy of this folder brings along are good there, too.
    const command = [version, ...cxx, ...base, ...flags].map((word) => word.replaceAll(root, ""));
    return { name: objectName(file), args: [...base, ...flags, "-c", join(nativeFolder, file)], command };
  };
}

/** Whether the object is there as it would be compiled now. @param {{ name: string, command: string[] }} job */
function isCompiled({ name, command }) {
  const object = join(objects, name);
  const of = `${object}.source`;
  if (!existsSync(object) || !existsSync(of)) return false;
  const [fingerprint, ...files] = readFileSync(of, "utf8").split("\n");
  return fingerprint === filesFingerprint(command, files);
}

/**
 * Compiles one source. The object gets its name when it is whole, and then what it is made of is noted: a fingerprint, and
 * the source and the headers that it includes, one a line.
 * @param {string[]} cxx @param {{ name: string, args: string[], command: string[] }} job
 */
async function compile(cxx, { name, args, command }) {
  const [made, object] = [join(unfinished, name), join(objects, name)];
  await run(cxx, [...args, "-MMD", "-MF", `${made}.d`, "-o", made]);
  const files = includedFiles(readFileSync(`${made}.d`, "utf8"));
  rmSync(`${object}.source`, { force: true });
  renameSync(made, object);
  writeFileSync(`${object}.source`, [filesFingerprint(command, files), ...files].join("\n"));
}

/** Compiles what is not compiled yet, on all cores, what takes longest first. @param {string[]} cxx */
async function compileAll(cxx, jobs) {
  const queue = jobs.filter((job) => !isCompiled(job));
  const progress = new CompileProgress(queue.length);
  let failure;
  const worker = async () => {
    for (let job = queue.shift(); job; job = queue.shift()) {
      await compile(cxx, job).catch((error) => {
        failure ??= error;
        queue.length = 0;
      });
      progress.add();
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  progress.end();
  if (failure) throw failure;
}

/** The object that stands in for sources that are left out. @param {string[]} cxx @param {string} name @param {{ file: string }[]} absent */
async function compileEmptyTables(cxx, name, absent) {
  const source = join(unfinished, `${name}.absent.cc`);
  writeFileSync(source, emptyTables(absent.map(({ file }) => file)));
  await run(cxx, [...baseFlags(), ...instrumented, `-I${nativeFolder}`, "-c", source, "-o", `${source}.o`]);
  return `${source}.o`;
}

/**
 * Links a product under a name of this process. @param {string[]} cxx @param {Product} product
 * @param {(source: { set: string }) => boolean} isWanted
 */
async function link(cxx, { path, sources }, isWanted) {
  const linked = sources.filter(isWanted).map(({ file }) => join(objects, objectName(file)));
  const absent = sources.filter((source) => !isWanted(source));
  if (absent.length > 0) linked.push(await compileEmptyTables(cxx, basename(path), absent));
  const shared = platform === "darwin" ? ["-bundle", "-undefined", "dynamic_lookup"] : ["-shared", "-pthread"];
  await run(cxx, [...shared, ...instrumented, ...ownTemplates, ...linked, "-o", `${path}.${ownName}`]);
}

/**
 * The addon and libraries get their names when they are whole: who loads half an addon dies of it. Until then the old ones stay.
 * @param {{ cxx: string[], version: string }} compiler
 * @param {{ sets: string[], slowFiles: string[] }} optimized @param {string} fingerprint
 */
async function build({ cxx, version }, optimized, fingerprint) {
  const { sets } = optimized;
  for (const folder of [unfinished, objects]) mkdirSync(folder, { recursive: true });
  const isWanted = (/** @type {{ set: string }} */ { set }) => strict || set === "" || sets.includes(set);
  const sources = products.flatMap((product) => product.sources);
  const describe = compilation(cxx, version, optimized);
  await compileAll(cxx, slowestFirst(sources.filter(isWanted)).map(describe));
  try {
    for (const product of products) await link(cxx, product, isWanted);
    // Without its note, all is built again should this process end between the two.
    rmSync(note, { force: true });
    for (const { path } of products) renameSync(`${path}.${ownName}`, path);
    const more = [...(sources.every(isWanted) ? [WHOLE] : []), ...(fast ? [FAST] : [])];
    writeFileSync(note, `${fingerprint}\n${[...sets, ...more].join(" ")}`);
  } finally {
    for (const { path } of products) rmSync(`${path}.${ownName}`, { force: true });
  }
}

/** Stands among the instruction sets of an addon that has rows for all of them, optimized or not. */
const WHOLE = "whole";

/** Stands there where all rows are as fast as they can be. */
const FAST = "fast";

/**
 * Instruction sets that the addon that is there is optimized for, or undefined where it is of other sources.
 * @param {string} fingerprint
 */
function builtSets(fingerprint) {
  if (![note, ...products.map(({ path }) => path)].every((path) => existsSync(path))) return undefined;
  const [of, sets = ""] = readFileSync(note, "utf8").split("\n");
  return of === fingerprint ? sets.split(" ") : undefined;
}

/** Whether an addon has these instruction sets. @param {string[] | undefined} built @param {string[]} sets */
const hasAll = (built, sets) => built !== undefined && sets.every((set) => built.includes(set));

try {
  const fingerprint = sourcesFingerprint(`${platform}-${arch}`);
  const built = builtSets(fingerprint);
  if (products[0].sources.length === 0) throw new Error(`there are no kernels for ${arch}`);
  const effort = fast ? [FAST] : [];
  if (!hasAll(built, [...instructionSetsOf(arch), ...effort])) {
    removeLeftovers();
    const found = compiler();
    const optimized = await whatToOptimize(found?.cxx);
    const { sets } = optimized;
    const isKept = !found && !all && !strict && built !== undefined;
    if (!isKept && !hasAll(built, [...sets, ...effort, ...(strict ? [WHOLE] : [])])) {
      if (!found) throw new Error(`no C++ compiler was found${process.env.CXX ? `: CXX is ${process.env.CXX}` : ""}`);
      await build(found, optimized, fingerprint);
      const whole = sets.length === instructionSetsOf(arch).length;
      const others = strict ? "; those of other instruction sets are not optimized" : "";
      console.log(`lowbit: native addon built${whole ? "" : `, with the kernels that this CPU runs${others}`}`);
    }
  }
} catch (error) {
  const outcome = existsSync(target) ? "; the one built before stays" : " and slower kernels will serve";
  console.log(`lowbit: the native addon was not built${outcome}: ${error.message}`);
  if (strict || sanitizers) process.exitCode = 1;
} finally {
  rmSync(unfinished, { recursive: true, force: true });
}
