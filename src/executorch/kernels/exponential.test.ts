/** exp32 against glibc's expf (2.36): values that are not rounded correctly there, and plain ones. */
import { expect, it } from "vitest";
import { exp32 } from "./exponential.ts";

const values = [
  [-10.284222602844238, 3.416794788790867e-5],
  [7.8281331062316895, 2510.23876953125],
  [-0.2010025531053543, 0.817910373210907],
  [-10.9642972946167, 1.730877011141274e-5],
  [-0.8929852247238159, 0.40943169593811035],
  [6.9239678382873535, 1016.3447265625],
  [0.0, 1.0],
  [-0.0, 1.0],
  [1.0, 2.7182817459106445],
  [-3.25, 0.03877420723438263],
  [20.5, 799902208.0],
  [-87.5, 9.982351397596697e-39],
] as const;

it("gives what expf of glibc gives", () => {
  for (const [x, expected] of values) expect(exp32(x)).toBe(Math.fround(expected));
});

it("keeps to the ends of the range", () => {
  expect([exp32(-200), exp32(200), exp32(Number.NaN)]).toEqual([0, Number.POSITIVE_INFINITY, Number.NaN]);
});
