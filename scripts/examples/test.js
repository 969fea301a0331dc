/**
 * `npm run test:examples [-- --only chat-node,vite-page] [-- --short]`: installs the packed package into a copy of each
 * example, runs it with the demo model, and looks at what it says. `--short` leaves out what takes longest: Next.js and Electron.
 * Packages come from npm's cache or registry. Takes three minutes, `--short` two.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { demoProgram } from "../demo/model.js";
import { testElectron } from "./electron.js";
import { testChat, testInstall, testOperator, testQuantize } from "./node.js";
import { testNextPage, testVitePage } from "./pages.js";
import { packPackage } from "./project.js";

/** What runs for each folder of examples/, and for a project that begins empty. @type {Record<string, (context: import("./project.js").Context) => Promise<void>>} */
const tests = {
  install: testInstall,
  "chat-node": testChat,
  quantize: testQuantize,
  "squared-relu": testOperator,
  electron: testElectron,
  "vite-page": testVitePage,
  "next-page": testNextPage,
};
const LONG = ["next-page", "electron"];

const { values } = parseArgs({ options: { only: { type: "string" }, short: { type: "boolean", default: false } } });
const names = values.only?.split(",") ?? Object.keys(tests).filter((name) => !values.short || !LONG.includes(name));
for (const name of names)
  if (!tests[name]) {
    console.error(`--only ${name}: expected some of ${Object.keys(tests).join(", ")}`);
    process.exit(2);
  }

const folder = mkdtempSync(join(tmpdir(), "lowbit-examples-"));
try {
  const context = { folder, packages: packPackage(folder), program: await demoProgram() };
  for (const name of names) {
    const start = performance.now();
    await tests[name](context);
    console.log(`${name}: passed in ${((performance.now() - start) / 1000).toFixed(0)} s`);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
