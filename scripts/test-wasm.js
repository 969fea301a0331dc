/**
 * `npm run test:wasm`: the WebAssembly rows and engines in the newest Node, from npm's package `node`, besides the Node
 * that the suite runs in: relaxed SIMD and 64-bit memories are not in all versions. Further arguments go to vitest.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./native-sources.js";

const folder = join(root, "build", "newest-node");
const executable = join(folder, "node_modules", "node", "bin", "node");

function installNode() {
  mkdirSync(folder, { recursive: true });
  if (!existsSync(join(folder, "package.json"))) writeFileSync(join(folder, "package.json"), "{}\n");
  execFileSync("npm", ["install", "--prefix", folder, "--no-audit", "--no-fund", "node@latest"], { stdio: "inherit" });
}

/** @param {string[]} args */
function vitest(...args) {
  const program = join(root, "node_modules", "vitest", "vitest.mjs");
  execFileSync(executable, [program, "run", ...args], { cwd: root, stdio: "inherit" });
}

installNode();
console.log(execFileSync(executable, ["--version"], { encoding: "utf8" }).trim());
vitest("src/kernels/conformance.test.ts", "src/kernels/conformance-float.test.ts", "-t", "wasm");
vitest("src/kernels/wasm", "test/wasm.test.ts", ...process.argv.slice(2));
