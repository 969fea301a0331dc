/**
 * `npm run test:release`: makes the published packages for this machine, and for linux-arm64 where qemu-aarch64-static
 * and the arm64 C library are installed, installs them with npm into an empty project and uses them there: types,
 * import and require, kernels, quantize, run; then without the addon. A registry in this process serves @lowbit, so npm
 * chooses the addon as it will for users. Other packages come from npm's cache or registry. Takes two minutes, up
 * to ten where zig builds its libraries first.
 */
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { emulated, installNode } from "../arm/toolchain.js";
import { walkthrough } from "../docs/walkthrough.js";
import { libraries, librarySources, nativeSources, objectName, root } from "../native/sources.js";
import { binaryFaults } from "./release-checks.js";
import { binaries, mainManifest, platformManifest, platforms, tarballName } from "./release-packages.js";

// Where sums in another order round an activation to the next of 256 integers, logits (about -10 to 10) move so far.
const LOGITS_DIFFERENCE_MAX = 0.3;
const PROMPT_IDS = "403,29,1,77,512,90,1500,8,260,33,1024,700";
const release = join(root, "build", "release");
const manifest = mainManifest();
const tsc = [
  ...[process.execPath, join(root, "node_modules", "typescript", "bin", "tsc"), "--strict", "--module", "nodenext"],
  ...["--target", "es2022", "--lib", "es2022", "--typeRoots", join(root, "node_modules", "@types"), "--types", "node"],
];
const checkpoint = join(root, "models", "shakespeare");

/** Runs a program to its end; its output. @param {string[]} command @param {import("node:child_process").SpawnOptions} [options] */
function run([program, ...args], options = {}) {
  return new Promise((resolve, reject) => {
    const output = { stdout: "", stderr: "" };
    const child = spawn(program, args, { env: emulated, ...options, stdio: ["ignore", "pipe", "pipe"] });
    for (const name of ["stdout", "stderr"]) {
      child[name].setEncoding("utf8");
      child[name].on("data", (text) => {
        output[name] += text;
      });
    }
    child.on("error", reject);
    child.on("close", (code) => {
      if (code === 0) resolve(output);
      else reject(new Error(`${program} ${args.join(" ")} ended with ${code}\n${output.stdout}${output.stderr}`));
    });
  });
}

/** A machine to test on: its platform, how to run Node there, and what to tell npm about it. */
function thisMachine() {
  const glibc = process.report.getReport().header.glibcVersionRuntime;
  const libc = process.platform === "linux" ? `-${glibc ? "gnu" : "musl"}` : "";
  return { name: `${process.platform}-${process.arch}${libc}`, node: [process.execPath], npm: [], tokens: 24 };
}

function emulatedArm() {
  if (process.arch === "arm64" || !existsSync("/usr/aarch64-linux-gnu/lib/libstdc++.so.6")) return [];
  if (spawnSync("qemu-aarch64-static", ["--version"]).status !== 0) return [];
  const node = ["qemu-aarch64-static", "-cpu", "max,pauth-impdef=on", installNode()];
  return [{ name: "linux-arm64-gnu", node, npm: ["--os=linux", "--cpu=arm64", "--libc=glibc"], tokens: 6 }];
}

/** A registry of the platform packages: all manifests, and the tarballs that were built. */
async function startRegistry() {
  const server = createServer((request, response) => {
    const path = decodeURIComponent(request.url);
    const { port } = server.address();
    if (path.endsWith(".tgz")) {
      const file = join(release, path.slice(1));
      response.writeHead(existsSync(file) ? 200 : 404).end(existsSync(file) ? readFileSync(file) : undefined);
      return;
    }
    const found = platforms.map(platformManifest).find(({ name }) => path === `/${name}`);
    const tarball = found && `http://127.0.0.1:${port}/${tarballName(found)}`;
    const versions = found && { [found.version]: { ...found, dist: { tarball } } };
    const document = found && { name: found.name, "dist-tags": { latest: found.version }, versions };
    response
      .writeHead(document ? 200 : 404, { "content-type": "application/json" })
      .end(JSON.stringify(document ?? {}));
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", () => listening(undefined)));
  return server;
}

/** What must hold for a package's files, wherever it is installed. @param {string} folder */
function checkMainPackage(folder) {
  const installed = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  assert.equal(installed.scripts, undefined, "the published package has no scripts");
  assert.equal(installed.devDependencies, undefined);
  const files = readdirSync(folder, { recursive: true }).map(String);
  const strays = files.filter(
    (file) => !/^(dist|native$|native.kernel\.h$|package\.json|README\.md|LICENSE)/.test(file) || /\.test\./.test(file),
  );
  assert.deepEqual(strays, [], "the published package has dist, texts and the header of kernels only, without tests");
  for (const file of installed.files.filter((name) => !name.startsWith("!")))
    assert.ok(existsSync(join(folder, file)), `files: ${file} is missing`);
  for (const [path, target] of Object.entries(installed.exports)) {
    const targets = typeof target === "string" ? [target] : Object.values(target);
    for (const file of targets) assert.ok(existsSync(join(folder, file)), `exports["${path}"]: ${file} is missing`);
    if (target.types) assert.equal(Object.keys(target)[0], "types", `exports["${path}"]: types first`);
  }
  const notices = readFileSync(join(folder, "dist/web/constraints-bundle.js.LICENSE.txt"), "utf8");
  assert.match(notices, /web-xgrammar[\s\S]*Apache License/, "the bundle with xgrammar has its licence beside it");
  for (const file of Object.values(installed.bin)) assert.ok(existsSync(join(folder, file)), `bin: ${file} is missing`);
}

/** @param {string} folder @param {string} name */
function checkPlatformPackage(folder, name) {
  assert.deepEqual(readdirSync(folder).sort(), ["LICENSE", ...binaries, "package.json"].sort());
  const installed = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  assert.equal(installed.version, manifest.version);
  assert.equal(installed.scripts, undefined);
  const platform = platforms.find((candidate) => candidate.name === name);
  for (const file of binaries)
    assert.deepEqual(binaryFaults(platform, file, readFileSync(join(folder, file))), [], `${name}: ${file}`);
}

/** Functions that the linker may share must not come from files compiled for special instruction sets. @param {string} name */
function checkObjects(name) {
  const { cpu } = platforms.find((platform) => platform.name === name);
  if (spawnSync("nm", ["--version"]).status !== 0) return console.log(`${name}: no nm, object files not checked`);
  const sources = [...nativeSources(cpu), ...libraries.flatMap((library) => librarySources(cpu, library))];
  for (const { file, features } of sources) {
    if (features.length === 0) continue;
    const object = join(root, "build", "zig", "objects", name, objectName(file));
    const symbols = execFileSync("nm", ["-C", "--defined-only", object], { encoding: "utf8" }).split("\n");
    const shared = symbols.filter((line) => / [WVu] /.test(line));
    assert.deepEqual(shared, [], `native/${file}: shared functions, which CPUs without ${features.at(-1)} might run`);
  }
}

/** Installs into an empty project. @param {string} project @param {string[]} npm @param {number} port */
async function install(project, npm, port) {
  writeFileSync(join(project, "package.json"), JSON.stringify({ private: true, type: "module" }));
  writeFileSync(join(project, ".npmrc"), `@lowbit:registry=http://127.0.0.1:${port}/\n`);
  const flags = ["--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--no-package-lock", ...npm];
  await run(["npm", "install", ...flags, join(release, tarballName(manifest))], { cwd: project });
}

/** Types, import and require. @param {string} project @param {string[]} node */
async function checkImports(project, node) {
  const show = "console.log(typeof loadProgram, typeof quantize)";
  writeFileSync(join(project, "esm.js"), `import { loadProgram, quantize } from "${manifest.name}";\n${show};\n`);
  writeFileSync(
    join(project, "required.cjs"),
    `const { loadProgram, quantize } = require("${manifest.name}");\n${show};\n`,
  );
  for (const file of ["esm.js", "required.cjs"])
    assert.equal((await run([...node, join(project, file)], { cwd: project })).stdout, "function function\n", file);
  const use = `import { loadProgram } from "${manifest.name}";\nexport const text: string = (await loadProgram("x")).nothing;\n`;
  writeFileSync(join(project, "typed.ts"), use);
  const typed = await run([...tsc, "--noEmit", "typed.ts"], { cwd: project }).catch((error) => error);
  const errors = `${typed.message ?? ""}`.split("\n").filter((line) => line.includes("error TS"));
  assert.match(
    errors.join("\n"),
    /^typed\.ts\(2,\d+\): error TS2339: Property 'nothing' [^\n]*$/,
    "the types are found",
  );
}

/** The ways of docs/custom-operator.md, those in C++ where code of this machine runs. @param {string} project @param {string[]} node */
async function checkWalkthrough(project, node) {
  const isNative = node[0] === process.execPath && process.platform !== "win32";
  for (const { files, compile, environment, printed } of walkthrough()) {
    if (compile && !isNative) continue;
    for (const [name, text] of files) writeFileSync(join(project, name), text);
    await run([...tsc, "--rewriteRelativeImportExtensions", "main.ts"], { cwd: project });
    if (compile) await run(["sh", "-c", compile], { cwd: project });
    const env = { ...emulated, LOWBIT_NATIVE_PATH: "", ...environment };
    assert.equal((await run([...node, join(project, "main.js")], { cwd: project, env })).stdout, printed);
  }
}

/**
 * Kernels, quantize, run and logits through the command line, with the addon and then without.
 * @param {string} project @param {{ name: string, node: string[], tokens: number }} machine
 */
async function checkUse(project, { name, node, tokens }) {
  const program = join(project, "node_modules", manifest.name, manifest.bin.lowbit);
  const env = { ...emulated, LOWBIT_LOG: "info", LOWBIT_NATIVE_PATH: "", LOWBIT_BACKEND: undefined };
  const lowbit = (...args) => run([...node, program, ...args], { cwd: project, env });
  const nativeRows = async () =>
    JSON.parse((await lowbit("kernels", "--json")).stdout).rows.filter(({ target }) => target === "native");
  const generate = () => lowbit("run", "model.pte", "ROMEO:", "-n", String(tokens), "--temperature", "0");
  const logits = async () =>
    JSON.parse((await lowbit("logits", "model.pte", "--ids", PROMPT_IDS, "--json")).stdout).logits;
  await lowbit("quantize", checkpoint, "--qmode", "8da4w", "--shared-embedding", "-o", "model.pte");

  const active = (await nativeRows()).filter(({ refusal }) => refusal === null);
  assert.ok(active.length > 0, "native kernels serve");
  const { stdout: text, stderr } = await generate();
  assert.ok(text.trim().length > 0, "text is generated");
  assert.doesNotMatch(stderr, /no native addon/);
  const native = await logits();

  rmSync(join(project, "node_modules", "@lowbit"), { recursive: true });
  assert.deepEqual(await nativeRows(), []);
  const alone = await generate();
  assert.ok(alone.stdout.trim().length > 0, "text is generated without the addon");
  assert.match(alone.stderr, new RegExp(`no native addon.*@lowbit/${name} is not installed`));
  const reference = await logits();
  const difference = Math.max(...reference.map((value, i) => Math.abs(value - native[i])));
  assert.ok(difference < LOGITS_DIFFERENCE_MAX, `logits with and without the addon differ by ${difference}`);
  const numbers = `logits within ${difference.toExponential(1)} of those without addon`;
  console.log(`${name}: ${active.length} native kernels, ${numbers}; ${JSON.stringify(text)}`);
}

/** @param {{ name: string, node: string[], npm: string[], tokens: number }} machine @param {number} port */
async function testMachine(machine, port) {
  const { name, node, npm } = machine;
  const project = mkdtempSync(join(tmpdir(), "lowbit-release-"));
  try {
    await install(project, npm, port);
    assert.deepEqual(readdirSync(join(project, "node_modules", "@lowbit")), [name], "npm installs one addon");
    checkMainPackage(join(project, "node_modules", manifest.name));
    checkPlatformPackage(join(project, "node_modules", "@lowbit", name), name);
    checkObjects(name);
    await checkImports(project, node);
    await checkWalkthrough(project, node);
    await checkUse(project, machine);
  } finally {
    rmSync(project, { recursive: true, force: true });
  }
}

const machines = [thisMachine(), ...emulatedArm()];
const only = machines.map(({ name }) => name).join(",");
const build = [join(root, "scripts", "release", "release.js"), "--out", release, "--only", only];
execFileSync(process.execPath, build, { stdio: "inherit" });
const registry = await startRegistry();
try {
  for (const machine of machines) await testMachine(machine, registry.address().port);
} finally {
  registry.close();
}
