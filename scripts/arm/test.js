/**
 * Conformance of the native Arm kernels on emulated CPUs, from plain NEON to i8mm: cross-builds the addon, compiles the
 * tests and runs them under qemu in an arm64 Node. Installs what is missing.
 *
 *     node scripts/arm/test.js [--each-row-once] [CPU …]
 *
 * --each-row-once: a row is tested whole on the first CPU that can run it; on later ones at one width, if it is a linear
 * layer with weights in bits. Emulators run the same instructions on all of them; what differs is which rows there are,
 * and selection.
 */
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { root } from "../native-sources.js";
import { emulated, installNode, installPackages } from "./toolchain.js";

const compiled = join(root, "build", "arm-tests");
const addon = join(root, "build", "lowbit-linux-arm64.node");

/**
 * The emulator's CPUs with names of src/kernels/known-cpus.ts that have the same features for kernels. pauth-impdef is a
 * cheaper pointer authentication: emulating the architecture's own takes half of the time.
 */
const allCpus = [
  { cpu: "cortex-a53", like: "cortex-a53" },
  { cpu: "neoverse-n1", like: "neoverse-n1" },
  { cpu: "max,sve=off,pauth-impdef=on", like: "neoverse-n2" },
  { cpu: "max,pauth-impdef=on", like: "neoverse-v2" },
];
const { values: options, positionals } = parseArgs({
  options: { "each-row-once": { type: "boolean", default: false } },
  allowPositionals: true,
});
const unknown = positionals.find((name) => !allCpus.some(({ cpu }) => cpu === name));
if (unknown) {
  console.error(`CPU "${unknown}": expected some of ${allCpus.map(({ cpu }) => cpu).join(" ")}`);
  process.exit(2);
}
const cpus = allCpus.filter(({ cpu }) => positionals.length === 0 || positionals.includes(cpu));

/** The tests that go through the rows of native kernels. */
const testFiles = [
  "src/kernels/emulated.test.js",
  "src/kernels/conformance.test.js",
  "src/kernels/conformance-float.test.js",
  "src/kernels/conformance-choice.test.js",
  "src/kernels/native/transformer.test.js",
  "src/aqlm/operators.test.js",
];

/** A CPU that takes longer hangs. */
const PATIENCE_MS = 15 * 60_000;

/** Types are checked elsewhere: a compiler that complains still writes its output. */
function compileTests() {
  rmSync(compiled, { recursive: true, force: true });
  const tsc = join(root, "node_modules", "typescript", "bin", "tsc");
  spawnSync(process.execPath, [tsc, "-p", "tsconfig.json", "--noEmit", "false", "--outDir", compiled, "--noCheck"], {
    cwd: root,
    stdio: "inherit",
  });
  copyFileSync(join(root, "package.json"), join(compiled, "package.json"));
  const replacement = join(compiled, "node_modules", "vitest");
  mkdirSync(replacement, { recursive: true });
  writeFileSync(join(replacement, "package.json"), '{ "type": "module", "main": "index.js" }');
  writeFileSync(join(replacement, "index.js"), 'export * from "../../../../scripts/arm/vitest.js";\n');
}

/**
 * Runs the tests on one CPU; resolves with its exit code, or the signal that ended it, and output.
 * @param {{ cpu: string, like: string }} emulatedCpu @param {string} node
 */
function testOn({ cpu, like }, node) {
  return new Promise((resolve) => {
    const before = options["each-row-once"] ? cpus[cpus.findIndex((other) => other.cpu === cpu) - 1] : undefined;
    const files = testFiles.map((file) => join(compiled, file));
    const args = ["-cpu", cpu, node, join(root, "scripts", "arm", "conformance.js"), ...files];
    const env = {
      ...emulated,
      LOWBIT_NATIVE_PATH: addon,
      LOWBIT_EMULATED: "1",
      LOWBIT_EMULATED_CPU: like,
      LOWBIT_TESTED_ELSEWHERE: before?.like,
    };
    const child = spawn("qemu-aarch64-static", args, { cwd: root, env, timeout: PATIENCE_MS });
    let output = "";
    child.stdout.on("data", (data) => {
      output += data;
    });
    child.stderr.on("data", (data) => {
      output += data;
    });
    child.on("close", (code, signal) => resolve({ end: code ?? signal, output }));
  });
}

installPackages({ "qemu-aarch64-static": "qemu-user-static", "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu" });
const node = installNode();
const build = [join(root, "scripts", "build-native.js"), "--target=linux-arm64", "--strict"];
execFileSync(process.execPath, build, { cwd: root, stdio: "inherit" });
compileTests();

let failed = 0;
const queue = [...cpus];
async function worker() {
  for (let next = queue.shift(); next; next = queue.shift()) {
    const start = performance.now();
    const { end, output } = await testOn(next, node);
    if (end !== 0) failed++;
    const seconds = Math.round((performance.now() - start) / 1000);
    console.log(`${next.cpu}: ${end === 0 ? "passed" : `FAILED, ended with ${end},`} in ${seconds} s\n${output}`);
  }
}
await Promise.all(Array.from({ length: availableParallelism() }, worker));
process.exit(failed > 0 ? 1 : 0);
