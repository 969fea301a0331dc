/**
 * Conformance tests of the native kernels, run in this process: what scripts/arm/test.js bundles and starts on each emulated
 * CPU. Rows in TypeScript and in WebAssembly are tested without emulation.
 */
import { runFiles } from "./vitest.js";

const files = {
  emulated: () => import("../../src/kernels/emulated.test.ts"),
  conformance: () => import("../../src/kernels/conformance.test.ts"),
  "conformance-long": () => import("../../src/kernels/conformance-long.test.ts"),
  "conformance-float": () => import("../../src/kernels/conformance-float.test.ts"),
  "conformance-choice": () => import("../../src/kernels/conformance-choice.test.ts"),
  "conformance-embedding": () => import("../../src/kernels/conformance-embedding.test.ts"),
  "conformance-recurrent": () => import("../../src/kernels/conformance-recurrent.test.ts"),
  "rows-alone": () => import("../../src/kernels/rows-alone.test.ts"),
  edges: () => import("../../src/kernels/edges.test.ts"),
  transformer: () => import("../../src/kernels/native/transformer.test.ts"),
  aqlm: () => import("../../src/aqlm/operators.test.ts"),
};
const { failed, log } = await runFiles(files, /_reference( |$)|_wasm_|^packed codes$|^operators$/);
console.log(log.join("\n"));
process.exit(failed > 0 ? 1 : 0);
