/**
 * `npm run stress`: looks for races among the threads of kernels, while other processes keep all cores busy.
 *
 *   npm run stress                                        WebAssembly in Node and in Chromium, then native rows under the thread sanitizer
 *   npm run stress -- --only node --rounds 1000           Node alone, each row so often on each number of threads
 *   npm run stress -- --only node,chromium --rows expert  rows whose names match
 *
 * Rows of WebAssembly run on 2 to 4 threads (`--threads 2,8`), and each call's memory accesses are compared, too, without
 * any luck of timing (test/support/wasm-races.ts). Native rows run once: the sanitizer needs no luck either.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { bundleTests } from "../engines/bundle-tests.js";
import { root } from "../native/sources.js";
import { launchChromium } from "../wasm/browser.js";
import { listenAt, staticServer } from "../web/static-server.js";

/** @typedef {import("./rows.js").StressOptions} StressOptions */
/** @typedef {{ name: string, rows: number, calls: number, failures: string[] }} Outcome */

const file = join(root, "build", "stress", "rows.js");

/** Processes that want all cores until they are ended, or this process has ended. */
function keepCoresBusy() {
  const program = "for (const parent = process.ppid; process.ppid === parent; ) for (let i = 0; i < 1e6; i++);";
  return Array.from({ length: availableParallelism() }, () => spawn(process.execPath, ["-e", program]));
}

/** @param {StressOptions} options */
async function inNode(options) {
  const { stressRows } = await import(pathToFileURL(file).href);
  return { name: `Node ${process.version}`, ...(await stressRows(options)) };
}

/** In a page, as an engine runs there. @param {StressOptions} options */
async function inChromium(options) {
  writeFileSync(
    join(dirname(file), "index.html"),
    '<!doctype html><title>stress</title><link rel="icon" href="data:,"><script type="module">' +
      'import { stressRows } from "./rows.js"; globalThis.stressRows = stressRows;</script>',
  );
  const server = staticServer(dirname(file));
  const browser = await launchChromium();
  try {
    const page = await browser.newPage();
    await page.goto(await listenAt(server, "0"));
    await page.waitForFunction(() => "stressRows" in globalThis);
    const found = await page.evaluate((/** @type {StressOptions} */ given) => globalThis.stressRows(given), options);
    return { name: `Chromium ${browser.version()}`, ...found };
  } finally {
    await browser.close();
    server.close();
  }
}

/** @type {Record<string, (options: StressOptions) => Promise<Outcome>>} */
const engines = { node: inNode, chromium: inChromium };

async function native() {
  const { status } = spawnSync(process.execPath, [join(root, "scripts", "sanitize", "test.js"), "--only", "thread"], {
    stdio: "inherit",
  });
  return status === 0;
}

const { values } = parseArgs({
  options: {
    only: { type: "string", default: [...Object.keys(engines), "native"].join() },
    rounds: { type: "string", default: "300" },
    threads: { type: "string", default: "2,3,4" },
    rows: { type: "string", default: "" },
  },
});
const chosen = values.only.split(",");
const options = { rounds: Number(values.rounds), threads: values.threads.split(",").map(Number), rows: values.rows };
const unknown = chosen.find((name) => !(name in engines) && name !== "native");
if (unknown !== undefined || !(options.rounds > 0) || !options.threads.every((count) => count > 0)) {
  console.error(`stress: expected --only of ${Object.keys(engines)},native, and --rounds and --threads above 0`);
  process.exit(2);
}

mkdirSync(dirname(file), { recursive: true });
await bundleTests("stress/rows.js", file, { external: ["node:*"] });
let failed = false;
const busy = keepCoresBusy();
try {
  for (const name of chosen.filter((each) => each in engines)) {
    const start = performance.now();
    const { name: engine, rows, calls, failures } = await engines[name](options);
    const seconds = Math.round((performance.now() - start) / 1000);
    console.log([`${engine}: ${rows} rows, ${calls} calls in ${seconds} s`, ...failures].join("\n"));
    failed ||= failures.length > 0 || rows === 0;
  }
} finally {
  for (const each of busy) each.kill();
}
if (chosen.includes("native") && !(await native())) failed = true;
console.log(`stress: ${failed ? "FAILED" : "passed"}`);
process.exit(failed ? 1 : 0);
