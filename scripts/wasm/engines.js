/** Engines of WebAssembly that the conformance tests run in, each installed where it is missing. */
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { emulated, installNode, installPackages } from "../arm/toolchain.js";
import { bundleTests } from "../engines/bundle-tests.js";
import { root } from "../native/sources.js";
import { staticServer } from "../web/static-server.js";
import { launchChromium } from "./browser.js";

const folder = join(root, "build", "wasm-tests");

/** The executable of a Node from npm. @param {string} version as npm understands it */
export function nodeOfNpm(version) {
  const place = join(root, "build", `node-${version}`);
  mkdirSync(place, { recursive: true });
  if (!existsSync(join(place, "package.json"))) writeFileSync(join(place, "package.json"), "{}\n");
  const options = ["--no-audit", "--no-fund", "--loglevel=error"];
  execFileSync("npm", ["install", "--prefix", place, ...options, `node@${version}`], { stdio: "inherit" });
  // The package's own script links this file into place; npm need not have run it.
  const linked = join(place, "node_modules", "node", "bin", "node");
  const real = join(place, "node_modules", `node-bin-${process.platform}-${process.arch}`, "bin", "node");
  return [linked, real].find((path) => existsSync(path)) ?? linked;
}

/** Modules of the conformance tests, each made once for all engines. @type {Map<boolean, Promise<string>>} */
const bundles = new Map();

/** The module's file of the conformance tests. @param {boolean} isEmulated fewer sizes */
function bundle(isEmulated) {
  if (!bundles.has(isEmulated)) bundles.set(isEmulated, makeBundle(isEmulated));
  return bundles.get(isEmulated);
}

/** @param {boolean} isEmulated */
async function makeBundle(isEmulated) {
  const outfile = join(folder, isEmulated ? "small" : "full", "conformance.js");
  await bundleTests("wasm/conformance.js", outfile, {
    // Modules of Node are left out with the unused ones that import them.
    external: ["node:*"],
    define: { "process.env.LOWBIT_EMULATED": isEmulated ? '"1"' : '"0"' },
  });
  return outfile;
}

/** Runs a command and gives its output, which ends with a line of JSON. @param {string} command @param {string[]} args @param {NodeJS.ProcessEnv} env */
function runInProcess(command, args, env) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: root, env, stdio: ["ignore", "pipe", "inherit"] });
    let output = "";
    child.stdout.on("data", (data) => {
      output += data;
    });
    child.on("error", reject);
    child.on("close", (code, signal) => {
      if (code === 0) resolve(JSON.parse(output.trimEnd().split("\n").at(-1)));
      else reject(new Error(`${command} ended with ${code ?? signal}\n${output}`));
    });
  });
}

/** @param {string} file the bundle @param {boolean} isSmall */
function programFor(file, isSmall) {
  const address = JSON.stringify(pathToFileURL(file).href);
  const program =
    `const result = await (await import(${address})).runConformance(${isSmall});` +
    "const engine = ['Node', process.version, process.arch].join(' ');" +
    "console.log(JSON.stringify({ engine, ...result })); process.exit(0);";
  return ["--input-type=module", "--eval", program];
}

/** @param {string} executable @param {string[]} [flags] of V8 */
async function inNode(executable, flags = []) {
  const env = { ...process.env, LOWBIT_BACKEND: "wasm" };
  const result = await runInProcess(executable, [...flags, ...programFor(await bundle(false), false)], env);
  return { ...result, engine: [result.engine, ...flags].join(" ") };
}

async function inEmulatedArm() {
  installPackages({ "qemu-aarch64-static": "qemu-user-static", "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu" });
  const env = { ...emulated, LOWBIT_BACKEND: "wasm" };
  const args = ["-cpu", "max,pauth-impdef=on", installNode(), ...programFor(await bundle(true), true)];
  return runInProcess("qemu-aarch64-static", args, env);
}

/** In a worker of a page, as kernels run there. */
async function inChromium() {
  const file = await bundle(false);
  const page = '<!doctype html><title>conformance</title><link rel="icon" href="data:,">';
  writeFileSync(join(dirname(file), "index.html"), page);
  writeFileSync(
    join(dirname(file), "worker.js"),
    'import { runConformance } from "./conformance.js";\nrunConformance(false).then((result) => postMessage(result));\n',
  );
  const server = staticServer(dirname(file));
  await new Promise((resolve) => server.listen(0, () => resolve(null)));
  const browser = await launchChromium();
  try {
    const tab = await browser.newPage();
    await tab.goto(`http://localhost:${/** @type {import("node:net").AddressInfo} */ (server.address()).port}/`);
    const result = await tab.evaluate(
      () =>
        new Promise((resolve, reject) => {
          const worker = new Worker("worker.js", { type: "module" });
          worker.onmessage = ({ data }) => resolve(data);
          worker.onerror = (event) => reject(new Error(event.message || "the worker does not start"));
        }),
    );
    return { engine: `Chromium ${browser.version()}`, ...result };
  } finally {
    await browser.close();
    server.close();
  }
}

/** What each engine makes of the conformance tests. */
export const engines = {
  node20: () => inNode(nodeOfNpm("20")),
  newest: () => inNode(nodeOfNpm("latest")),
  // All code optimized from the start, or none of it would be paired.
  pairs: () => inNode(nodeOfNpm("latest"), ["--experimental-wasm-revectorize", "--no-liftoff"]),
  chromium: inChromium,
  arm64: inEmulatedArm,
};
