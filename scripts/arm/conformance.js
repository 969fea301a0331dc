/**
 * Conformance tests of the native kernels, run in this process: what scripts/arm/test.js bundles and starts on each emulated
 * CPU, and scripts/sanitize/test.js. Arguments name some of the files; all run without any. Rows in TypeScript and in
 * WebAssembly are tested without emulation.
 */
import { runFiles } from "./vitest.js";

const files = {
  emulated: () => import("../../src/kernels/emulated.test.ts"),
  conformance: () => import("../../src/kernels/conformance.test.ts"),
  "conformance-long": () => import("../../src/kernels/conformance-long.test.ts"),
  "conformance-attention": () => import("../../src/kernels/conformance-attention.test.ts"),
  "conformance-rope": () => import("../../src/kernels/conformance-rope.test.ts"),
  "conformance-choice": () => import("../../src/kernels/conformance-choice.test.ts"),
  "conformance-embedding": () => import("../../src/kernels/conformance-embedding.test.ts"),
  "conformance-experts": () => import("../../src/kernels/conformance-experts.test.ts"),
  "conformance-recurrent": () => import("../../src/kernels/conformance-recurrent.test.ts"),
  "conformance-sequences": () => import("../../src/kernels/conformance-sequences.test.ts"),
  "conformance-texts": () => import("../../src/kernels/conformance-texts.test.ts"),
  families: () => import("../../src/kernels/families/families.test.ts"),
  elementwise: () => import("../../src/kernels/families/elementwise/elementwise.test.ts"),
  gate: () => import("../../src/kernels/families/gate/gate.test.ts"),
  norm: () => import("../../src/kernels/families/norm/norm.test.ts"),
  reduction: () => import("../../src/kernels/families/reduction/reduction.test.ts"),
  "rows-alone": () => import("../../src/kernels/rows-alone.test.ts"),
  edges: () => import("../../src/kernels/edges.test.ts"),
  transformer: () => import("../../src/kernels/native/transformer.test.ts"),
  aqlm: () => import("../../src/aqlm/operators.test.ts"),
};
const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !(name in files));
if (unknown.length > 0) {
  console.error(`conformance: expected names among ${Object.keys(files).join(", ")} but found ${unknown.join(", ")}`);
  process.exit(2);
}
const chosen = Object.fromEntries(
  Object.entries(files).filter(([name]) => wanted.length === 0 || wanted.includes(name)),
);
const { failed, log } = await runFiles(chosen, /_reference( |$)|_wasm_|^packed codes$|^operators$/);
console.log(log.join("\n"));
process.exit(failed > 0 ? 1 : 0);
