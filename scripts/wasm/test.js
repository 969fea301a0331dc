/**
 * `npm run test:wasm`: conformance of the WebAssembly rows in Node 20, the newest Node, the same with V8's pairing of
 * operations, headless Chromium and an emulated arm64 Node, whose relaxed SIMD and 64-bit memories differ; then engines and
 * whole programs in the newest Node. What is missing is installed. `--short`: the newest Node and Chromium alone.
 *
 *     node scripts/wasm/test.js [--short | node20 | newest | pairs | chromium | arm64 | programs …]
 */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { root } from "../native/sources.js";
import { engines, nodeOfNpm } from "./engines.js";

function testPrograms() {
  const program = join(root, "node_modules", "vitest", "vitest.mjs");
  const args = [
    program,
    "run",
    "src/kernels/wasm",
    "src/kernels/families/sample-calls.test.ts",
    "test/backends.test.ts",
  ];
  execFileSync(nodeOfNpm("latest"), args, { cwd: root, stdio: "inherit" });
}

const all = [...Object.keys(engines), "programs"];
const SHORT = ["newest", "chromium"];
const { values, positionals } = parseArgs({
  options: { short: { type: "boolean", default: false } },
  allowPositionals: true,
});
const chosen = positionals.length > 0 ? positionals : all;
const names = values.short ? SHORT : chosen;
const unknown = names.find((name) => !all.includes(name));
if (unknown) throw new Error(`engine "${unknown}": expected one of ${all.join(", ")}`);
let failures = 0;
for (const [name, run] of Object.entries(engines)) {
  if (!names.includes(name)) continue;
  const start = performance.now();
  const { engine, failed, log } = await run();
  failures += failed;
  const seconds = Math.round((performance.now() - start) / 1000);
  console.log(`${engine}: ${failed === 0 ? "passed" : "FAILED"} in ${seconds} s\n${log.join("\n")}\n`);
}
if (names.includes("programs")) testPrograms();
process.exit(failures > 0 ? 1 : 0);
