/** The conformance tests of the WebAssembly rows as one module for any engine; engines.js bundles it. */
import { runFiles } from "../arm/vitest.js";

/** Rows of others, and what needs an engine's worker threads, which bundles do not have. */
const others = /_reference$|^(?!.*_wasm_)\S+_\d+x\d+x\d+_|^in an engine/;

/** Tells of the rows that this engine cannot run, too. @param {boolean} isSmall only half of the bit widths */
export function runConformance(isSmall) {
  const files = {
    conformance: () => import("../../src/kernels/families/linear/conformance.test.ts"),
    "conformance-attention": () => import("../../src/kernels/families/attention/conformance.test.ts"),
    "conformance-rope": () => import("../../src/kernels/families/attention/rope.test.ts"),
    "conformance-choice": () => import("../../src/kernels/families/copy/conformance.test.ts"),
    "conformance-embedding": () => import("../../src/kernels/families/embedding/conformance.test.ts"),
    "conformance-recurrent": () => import("../../src/kernels/families/recurrent/conformance.test.ts"),
    families: () => import("../../src/kernels/families/cases.test.ts"),
    elementwise: () => import("../../src/kernels/families/elementwise/elementwise.test.ts"),
    gate: () => import("../../src/kernels/families/gate/gate.test.ts"),
    norm: () => import("../../src/kernels/families/norm/norm.test.ts"),
    reduction: () => import("../../src/kernels/families/reduction/reduction.test.ts"),
    "rows-alone": () => import("../../src/kernels/rows-alone.test.ts"),
    sequences: () => import("../../src/kernels/families/attention/wasm/sequences.test.ts"),
    aqlm: () => import("../../packages/aqlm/src/operators.test.ts"),
  };
  return runFiles(files, isSmall ? new RegExp(`${others.source}|, [3567] bits$`) : others);
}
