/** Rows divided by numbers, against the divided values. */
import { expect, it } from "vitest";
import { Random, randomWeights } from "../../test/support/random.ts";
import { packWeights } from "../kernels/layout/packed.ts";
import { panel16 } from "../kernels/layout/panel16.ts";
import { dequantize } from "../quantized.ts";
import { divideRows } from "./divided-scales.ts";

it.each(["f32", "f16", "i8"] as const)("are what they were by their divisors, with %s scales", (scaleDType) => {
  const [n, k] = [5, 600];
  const random = new Random(1);
  const made = randomWeights(random, { n, k, bits: 4, groupSize: 32, scaleDType });
  // None is so small that its quotient has fewer digits.
  const scales = made.scales.map(() => 0.25 * random.integer(-127, 127));
  const weights = { ...made, scales, ...(scaleDType === "i8" && { superScales: made.superScales!.map(() => 0.25) }) };
  const divided = divideRows(weights, (row) => 1.5 + row);
  const [before, after] = [dequantize(weights), dequantize(divided)];
  const error = before.reduce((most, value, i) => {
    const expected = value / (1.5 + Math.floor(i / k));
    return Math.max(most, Math.abs(after[i]! - expected) / (Math.abs(expected) || 1));
  }, 0);
  expect(error).toBeLessThan(scaleDType === "f32" ? 1e-6 : 2 ** -11);
  expect(packWeights(divided, null, panel16).length).toBeGreaterThan(0);
});
