/** Threads of AQLM's rows of WebAssembly leave each other's bytes alone. */
import { expect, it } from "vitest";
import { aqlmCalls } from "../../test/support/aqlm-calls.ts";
import { raceFaults } from "../../test/support/wasm-races.ts";
import { wasmFeatures } from "../kernels/wasm/features.ts";

const features = new Set<string>(wasmFeatures());
const usable = aqlmCalls().filter(({ needs }) => needs.every((need) => features.has(need)));

it.skipIf(usable.length === 0)("no threads race in any row", () => {
  expect(usable.flatMap((call) => raceFaults(call, 3, 3))).toEqual([]);
});
