/**
 * Runs compiled conformance tests of the native kernels in this process: what scripts/arm/test.js starts on each emulated
 * CPU. Rows in TypeScript and in WebAssembly are tested without emulation.
 *
 *     node scripts/arm/conformance.js build/arm-tests/src/kernels/conformance.test.js …
 */
import { basename, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { runFiles } from "./vitest.js";

const files = process.argv.slice(2).map((file) => [basename(file), () => import(pathToFileURL(resolve(file)).href)]);
const { failed, log } = await runFiles(Object.fromEntries(files), /_reference$|_wasm_/);
console.log(log.join("\n"));
process.exit(failed > 0 ? 1 : 0);
