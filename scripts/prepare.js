/**
 * What `npm install` does in a checkout: compiles dist/, bundles the page, builds the native addon. Without the development
 * dependencies (`npm ci --omit=dev`) nothing is built: what was built before stays, and where nothing was, that is an error.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const compiler = join(root, "node_modules", "typescript", "bin", "tsc");

if (existsSync(compiler)) {
  const steps = [[compiler, "-p", "tsconfig.build.json"], ["scripts/build-web.js"], ["scripts/build-native.js"]];
  for (const step of steps) {
    const { status } = spawnSync(process.execPath, step, { cwd: root, stdio: "inherit" });
    if (status !== 0) process.exit(status ?? 1);
  }
} else if (existsSync(join(root, "dist", "index.js"))) {
  console.log("lowbit: nothing is built without the development dependencies; dist/ stays as it is");
} else {
  console.error(
    "lowbit: dist/ is not there and cannot be built without the development dependencies: run npm ci without " +
      "--omit=dev, then npm prune --omit=dev, which keeps what was built",
  );
  process.exitCode = 1;
}
