/** Rows of a head or table by GPTQ, whole and in parts, beside rounding. */
import { expect, it } from "vitest";
import { matrix } from "../../matrix.ts";
import { makeConfig } from "../../quantize/config.ts";
import { dequantize } from "../../quantized.ts";
import { createRandom } from "../../text/random.ts";
import { correctedBy, correctedRows } from "./corrected-rows.ts";
import { quantizeTensor } from "./quantize-rows.ts";

const [n, k, tokens] = [96, 64, 400];
const random = createRandom(7);
const weights = matrix(
  n,
  k,
  Float32Array.from({ length: n * k }, () => random.uniform() - 0.5),
);
/** Neighbouring inputs are alike. */
const inputs = Array.from({ length: tokens }, () => {
  const own = Array.from({ length: k }, () => random.uniform() - 0.5);
  return own.map((value, i) => value + 2 * (own[i - 1] ?? 0) + (own[i - 2] ?? 0));
});
const hessian = matrix(k, k);
for (const row of inputs)
  for (let i = 0; i < k; i++) for (let j = 0; j < k; j++) hessian.data[i * k + j]! += row[i]! * row[j]!;
const drift = matrix(
  k,
  k,
  Float32Array.from({ length: k * k }, () => random.uniform() - 0.5),
);
const config = makeConfig("sharedEmbedding", { bits: 3, groupSize: 32, mappingType: "codebook", algorithm: "gptq" });

function loss(values: Float32Array): number {
  let sum = 0;
  for (const row of inputs)
    for (let r = 0; r < n; r++) {
      let error = 0;
      for (let c = 0; c < k; c++) error += row[c]! * (values[r * k + c]! - weights.data[r * k + c]!);
      sum += error * error;
    }
  return sum;
}

it("loses less than rounding, changes nothing that it is given, and is the same in parts", async () => {
  const before = [weights.data.slice(), hessian.data.slice()];
  const whole = dequantize(await correctedRows(weights, { hessian, drift: null }, config));
  expect([weights.data, hessian.data]).toEqual(before);
  const power = Float32Array.from({ length: k }, (_, i) => hessian.data[i * k + i]! / tokens);
  const rounded = await quantizeTensor({ dtype: "f32", shape: [n, k], data: weights.data }, config, power);
  expect(loss(whole)).toBeLessThan(0.7 * loss(dequantize(rounded)));
  const moved = dequantize(await correctedRows(weights, { hessian, drift }, config));
  expect(moved).not.toEqual(whole);
  for (const [expected, correction] of [
    [whole, { hessian, drift: null }],
    [moved, { hessian, drift }],
  ] as const) {
    const quantize = correctedBy(correction);
    for (const first of [0, n / 2]) {
      const data = weights.data.subarray(first * k, (first + n / 2) * k);
      const part = await quantize({ dtype: "f32", shape: [n / 2, k], data }, config, null);
      expect(dequantize(part)).toEqual(expected.subarray(first * k, (first + n / 2) * k));
    }
  }
});
