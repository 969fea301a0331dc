/**
 * Runs compiled conformance tests of the native kernels in this process: what scripts/arm/test.js starts on each emulated
 * CPU. Rows in TypeScript and in WebAssembly are tested without emulation.
 *
 *     node scripts/arm/conformance.js build/arm-tests/src/kernels/conformance.test.js …
 */
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { runFiles } from "./vitest.js";

const urls = process.argv.slice(2).map((file) => pathToFileURL(resolve(file)).href);
const failures = await runFiles(urls, /_reference$|_wasm_/);
process.exit(failures > 0 ? 1 : 0);
