/**
 * Conformance of the native Arm kernels on emulated CPUs, from plain NEON to SME2: cross-builds the addon, bundles the
 * tests and runs them under qemu in an arm64 Node. Installs what is missing.
 *
 *     node scripts/arm/test.js [--each-row-once] [CPU …]
 *
 * --each-row-once: each row is tested on one CPU, the first that can run it. Emulators run the same instructions on all of
 * them; what differs is which rows there are, and selection.
 */
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { bundleTests } from "../engines/bundle-tests.js";
import { root } from "../native/sources.js";
import { emulated, installNode, installPackages, installSme2Emulator } from "./toolchain.js";

const tests = join(root, "build", "arm-tests", "conformance.js");
const cases = join(root, "build", "arm-tests", "cases");
const addon = join(root, "build", "lowbit-linux-arm64.node");

/**
 * The emulator's CPUs with names of src/kernels/known-cpus.ts that have the same features for kernels. pauth-impdef is a
 * cheaper pointer authentication: emulating the architecture's own takes half of the time.
 */
/** @type {{ cpu: string, like: string, sme2?: true }[]} */
const allCpus = [
  { cpu: "cortex-a53", like: "cortex-a53" },
  { cpu: "neoverse-n1", like: "neoverse-n1" },
  { cpu: "max,sve=off,pauth-impdef=on", like: "neoverse-n2" },
  { cpu: "max,pauth-impdef=on,sme=off", like: "neoverse-v2" },
  { cpu: "max,pauth-impdef=on,sme-default-vector-length=64", like: "apple-m4", sme2: true },
  { cpu: "max,pauth-impdef=on,sme-default-vector-length=32", like: "apple-m4", sme2: true },
  { cpu: "max,pauth-impdef=on,sme-default-vector-length=16", like: "apple-m4", sme2: true },
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
const named = allCpus.filter(({ cpu }) => positionals.length === 0 || positionals.includes(cpu));
const hasOwnRows = (/** @type {{ like: string }} */ { like }, /** @type {number} */ i) =>
  i === 0 || named[i - 1].like !== like;
const cpus = options["each-row-once"] ? named.filter(hasOwnRows) : named;

/** A CPU that takes longer hangs. */
const PATIENCE_MS = 15 * 60_000;

/** Files of tests that know which rows are tested elsewhere: of those, a CPU that differs in linear layers tests no others. */
const linearFiles = ["emulated", "conformance", "conformance-long"];

/**
 * Runs the tests in a process; resolves with its exit code, or the signal that ended it, and output.
 * @param {string} command @param {string[]} args @param {NodeJS.ProcessEnv} env @param {string[]} files those to test, all if empty
 */
function runTests(command, args, env, files = []) {
  return new Promise((resolve) => {
    const sizes = { LOWBIT_EMULATED: "1", LOWBIT_CASES: cases };
    const child = spawn(command, [...args, tests, ...files], {
      cwd: root,
      env: { ...env, ...sizes },
      timeout: PATIENCE_MS,
    });
    let output = "";
    child.stdout.on("data", (data) => {
      output += data;
    });
    child.stderr.on("data", (data) => {
      output += data;
    });
    child.on("close", (code, signal) => resolve({ end: code ?? signal, output: withoutFinished(output, signal) }));
  });
}

/**
 * Leaves out the lines that say which test runs, but the last of a process that a signal ended.
 * @param {string} output @param {NodeJS.Signals | null} signal
 */
function withoutFinished(output, signal) {
  const lines = output.split("\n");
  const last = lines.findLastIndex((line) => line.startsWith("running "));
  return lines.filter((line, i) => !line.startsWith("running ") || (signal && i === last)).join("\n");
}

/** @param {(typeof allCpus)[number]} emulatedCpu @param {string} emulator @param {string} node */
function testOn({ cpu, like, sme2 }, emulator, node) {
  const before = options["each-row-once"] ? cpus[cpus.findIndex((other) => other.cpu === cpu) - 1] : undefined;
  const env = {
    ...emulated,
    LOWBIT_NATIVE_PATH: addon,
    LOWBIT_EMULATED_CPU: like,
    LOWBIT_TESTED_ELSEWHERE: before?.like,
  };
  return runTests(emulator, ["-cpu", cpu, node], env, before && sme2 ? linearFiles : []);
}

/** The plainest rows of this machine need all cases; emulated, making them would take longer than all else. */
async function makeCases() {
  rmSync(cases, { recursive: true, force: true });
  mkdirSync(cases, { recursive: true });
  const { end, output } = await runTests(process.execPath, [], {
    ...process.env,
    LOWBIT_NATIVE_PATH: join(root, "build", "lowbit.node"),
    LOWBIT_CPU: "sse2",
  });
  if (end === 0) return;
  console.error(`the tests on this machine, before emulated ones: ended with ${end}\n${output}`);
  process.exit(1);
}

installPackages({ "qemu-aarch64-static": "qemu-user-static", "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu" });
const node = installNode();
const build = [join(root, "scripts", "native", "build.js"), "--target=linux-arm64", "--strict"];
execFileSync(process.execPath, build, { cwd: root, stdio: "inherit" });
await bundleTests("arm/conformance.js", tests, { platform: "node", external: ["esbuild"] });
await makeCases();

let failed = 0;
const queue = [...cpus];
async function worker() {
  for (let next = queue.shift(); next; next = queue.shift()) {
    const found = next.sme2 ? installSme2Emulator() : { command: "qemu-aarch64-static" };
    if ("reason" in found) {
      console.log(`${next.cpu}: skipped: ${found.reason}`);
      continue;
    }
    const start = performance.now();
    const { end, output } = await testOn(next, found.command, node);
    if (end !== 0) failed++;
    const seconds = Math.round((performance.now() - start) / 1000);
    console.log(`${next.cpu}: ${end === 0 ? "passed" : `FAILED, ended with ${end},`} in ${seconds} s\n${output}`);
  }
}
await Promise.all(Array.from({ length: availableParallelism() }, worker));
process.exit(failed > 0 ? 1 : 0);
