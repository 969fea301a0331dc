/**
 * What `npm install` does in a checkout: compiles and joins dist/, bundles the page, and beside that builds the native addon for
 * this CPU. Without the development dependencies (`npm ci --omit=dev`) nothing is built: what was built before stays, and
 * where nothing was, that is an error.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const compiler = join(root, "node_modules", "typescript", "bin", "tsc");

/** Runs scripts one after the other; the code of the first that fails. @param {string[][]} steps */
async function run(steps) {
  for (const step of steps) {
    const child = spawn(process.execPath, step, { cwd: root, stdio: "inherit" });
    const [code] = await once(child, "close");
    if (code !== 0) return code ?? 1;
  }
  return 0;
}

if (existsSync(compiler)) {
  const pages = [
    [compiler, "-p", "tsconfig.build.json"],
    [compiler, "-p", "packages/aqlm/tsconfig.build.json"],
    ["scripts/package/join.js"],
    ["scripts/web/build.js"],
  ];
  const codes = await Promise.all([run(pages), run([["scripts/native/build.js"]])]);
  process.exitCode = codes.find((code) => code !== 0) ?? 0;
} else if (existsSync(join(root, "dist", "index.js"))) {
  console.log("lowbit: nothing is built without the development dependencies; dist/ stays as it is");
} else {
  console.error(
    "lowbit: dist/ is not there and cannot be built without the development dependencies: run npm ci without " +
      "--omit=dev, then npm prune --omit=dev, which keeps what was built",
  );
  process.exitCode = 1;
}
