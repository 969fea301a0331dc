/** Threads of AQLM's rows of WebAssembly leave each other's bytes alone. */
import { expect, it } from "vitest";
import { wasmFeatures } from "../../../src/kernels/wasm/features.ts";
import { raceFaults } from "../../../test/support/wasm-races.ts";
import { aqlmCalls } from "../test/sample-calls.ts";

const features = new Set<string>(wasmFeatures());
const usable = aqlmCalls().filter(({ needs }) => needs.every((need) => features.has(need)));

it.skipIf(usable.length === 0)("no threads race in any row", () => {
  expect(usable.flatMap((call) => raceFaults(call, 3, 3))).toEqual([]);
});
