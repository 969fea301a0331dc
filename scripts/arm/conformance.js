/**
 * Runs the conformance tests of the native kernels in this process. scripts/arm/test.js bundles it and starts it on each
 * emulated CPU; scripts/sanitize/test.js uses it, too. Arguments select test files (default: all). Kernels in TypeScript and
 * WebAssembly are tested without emulation.
 */
import { writeSync } from "node:fs";
import { runFiles } from "./vitest.js";

const files = {
  emulated: () => import("../../src/kernels/families/linear/emulated.test.ts"),
  conformance: () => import("../../src/kernels/families/linear/conformance.test.ts"),
  "conformance-long": () => import("../../src/kernels/families/linear/long.test.ts"),
  "conformance-attention": () => import("../../src/kernels/families/attention/conformance.test.ts"),
  "conformance-int4": () => import("../../src/kernels/families/attention/int4.test.ts"),
  "conformance-rope": () => import("../../src/kernels/families/attention/rope.test.ts"),
  "conformance-choice": () => import("../../src/kernels/families/copy/conformance.test.ts"),
  "conformance-embedding": () => import("../../src/kernels/families/embedding/conformance.test.ts"),
  "conformance-experts": () => import("../../src/kernels/families/experts/conformance.test.ts"),
  "conformance-recurrent": () => import("../../src/kernels/families/recurrent/conformance.test.ts"),
  "conformance-sequences": () => import("../../src/kernels/families/attention/sequences.test.ts"),
  "conformance-packed": () => import("../../src/kernels/families/attention/packed.test.ts"),
  families: () => import("../../src/kernels/families/cases.test.ts"),
  elementwise: () => import("../../src/kernels/families/elementwise/elementwise.test.ts"),
  gate: () => import("../../src/kernels/families/gate/gate.test.ts"),
  norm: () => import("../../src/kernels/families/norm/norm.test.ts"),
  reduction: () => import("../../src/kernels/families/reduction/reduction.test.ts"),
  "rows-alone": () => import("../../src/kernels/rows-alone.test.ts"),
  edges: () => import("../../src/kernels/families/attention/edges.test.ts"),
  transformer: () => import("../../src/kernels/native/transformer.test.ts"),
  aqlm: () => import("../../packages/aqlm/src/operators.test.ts"),
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
// Written at once, so that it is there when a kernel ends the process.
const tell = (name) => writeSync(2, `running ${name}\n`);
const omitted = /_reference( |$)|_wasm_|^packed codes$|^operators$/;
const { failed, log } = await runFiles(chosen, omitted, process.env.LOWBIT_EMULATED ? tell : undefined);
console.log(log.join("\n"));
process.exit(failed > 0 ? 1 : 0);
