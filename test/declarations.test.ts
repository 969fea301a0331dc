/** The declarations that the package has, as a project without Node's types and with checks of libraries sees them. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { temporaryFolder } from "./support/folders.ts";

const dist = fileURLToPath(new URL("../dist/", import.meta.url));
const isBuilt = existsSync(join(dist, "index.d.ts"));
const compiler = fileURLToPath(new URL("../node_modules/typescript/bin/tsc", import.meta.url));

it.skipIf(!isBuilt)(`need nothing else${isBuilt ? "" : " (skipped: dist is absent: npm run build)"}`, async () => {
  const folder = await temporaryFolder();
  const entries = [
    "index.js",
    "aqlm/index.js",
    "extension/index.js",
    "extension/checkpoint/index.js",
    "extension/wasm.js",
    "web/index.js",
  ].map((name) => JSON.stringify(join(dist, name)));
  await writeFile(join(folder, "user.mts"), entries.map((entry) => `export * from ${entry};\n`).join(""));
  const compilerOptions = {
    ...{ strict: true, noEmit: true, skipLibCheck: false, types: [] },
    ...{ target: "es2022", module: "nodenext", lib: ["es2022", "dom"] },
  };
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["user.mts"] }));
  const { stdout } = spawnSync(process.execPath, [compiler, "-p", folder], { encoding: "utf8" });
  expect(stdout).toBe("");
});
