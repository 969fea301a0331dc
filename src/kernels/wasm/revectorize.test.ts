/** The self-test before V8's option is used: right kernels pass, wrong ones of any family are named. */
import { expect, it } from "vitest";
import * as rows from "../families/index.ts";
import { sampleCalls } from "../families/sample-calls.ts";
import { wasmFeatures } from "./features.ts";
import { findProblem } from "./revectorize.ts";

const isUsable = wasmFeatures().includes("simd128");

it.runIf(isUsable)("finds nothing wrong with the kernels as they are", () => {
  expect(findProblem()).toBeNull();
});

it("has a call of every row", () => {
  const all = Object.values(rows).flatMap((family) => family.filter(({ target }) => target === "wasm"));
  const called = new Set(sampleCalls().map(({ kernel }) => kernel));
  expect(all.filter(({ name }) => !called.has(name)).map(({ name }) => name)).toEqual([]);
});

it
  .runIf(isUsable)
  .each(["linear_a8_wx_1x16x32_wasm_simd", "attention_f32_1x1x4_wasm_simd", "rms_norm_f32_1x1x4_wasm_simd"])(
  "says that %s is wrong and what it gives",
  (name) => {
    const calls = sampleCalls().filter(({ kernel }) => kernel === name);
    const wrong = calls.slice(0, 1).map((call) => ({
      ...call,
      bind: () => {
        const { run, results } = call.bind();
        const spoil = () => {
          run();
          results[3] = Number.NaN;
        };
        return { results, run: spoil };
      },
    }));
    expect(findProblem(wrong)).toMatch(new RegExp(`^${name}.* gives NaN instead of -?\\d`));
  },
);
