/** The self-test before V8's option is used: right kernels pass, wrong ones are named. */
import { expect, it } from "vitest";
import { wasmFeatures } from "./features.ts";
import { linearA8Wasm } from "./linear.ts";
import { findProblem } from "./revectorize.ts";

const isUsable = wasmFeatures().includes("simd128");

it.runIf(isUsable)("finds nothing wrong with the kernels as they are", () => {
  expect(findProblem()).toBeNull();
});

it.runIf(isUsable)("says which kernel is wrong and what it gives", () => {
  const wrong = linearA8Wasm.map((kernel) => ({
    ...kernel,
    bind: (...[args, scratch, threads]: Parameters<typeof kernel.bind>) => {
      const run = kernel.bind(args, scratch, threads);
      return () => {
        run();
        args.y[3] = Number.NaN;
      };
    },
  }));
  expect(findProblem(wrong)).toMatch(/linear_a8_wx_\S+ with \d bits gives NaN instead of -?\d/);
});
