/** The search for scales against a plain one in doubles over hundreds of scales. */
import { describe, expect, it } from "vitest";
import { Random } from "../../test/support/random.ts";
import { InvalidArgumentError, ShapeError } from "../errors.ts";
import { f16Table, f32ToF16 } from "../half.ts";
import { dequantize } from "../quantized.ts";
import type { AffineOptions } from "./affine.ts";
import { codebooks } from "./codebooks.ts";
import { quantizeMse, quantizeWeights } from "./mse.ts";
import { hasCodebook, mappingTypes } from "./scheme.ts";

const random = new Random(11);
/** Sums of three uniform numbers, cubed: tails as weights have them. */
const weightsOf = (length: number) =>
  Float32Array.from({ length }, () => random.floats(3).reduce((sum, value) => sum + value, 0) ** 3);

function options(changes: Partial<AffineOptions> = {}): AffineOptions {
  const scheme = { bits: 4, groupSize: "axis", mappingType: "symmetric", algorithm: "mse", scaleDType: "f32" } as const;
  return { n: 1, k: 32, ...scheme, ...changes };
}

function lossOf(weights: Float32Array, values: ArrayLike<number>, importance: Float32Array | null): number {
  return weights.reduce((sum, w, i) => sum + (importance ? importance[i]! : 1) * (w - values[i]!) ** 2, 0);
}

/** The same for the columns of a matrix. */
function columnLoss(weights: Float32Array, values: ArrayLike<number>, importance: Float32Array): number {
  return weights.reduce((sum, w, i) => sum + importance[i % importance.length]! * (w - values[i]!) ** 2, 0);
}

/** The least loss of all scales from a tenth of the largest weight's to it and a half more, of both signs. */
function leastLoss(weights: Float32Array, levels: readonly number[], importance: Float32Array | null): number {
  const peak = weights.reduce((most, w) => Math.max(most, Math.abs(w)), 0);
  const end = Math.max(...levels.map(Math.abs));
  let least = Number.POSITIVE_INFINITY;
  for (let step = 100; step <= 1500; step += 5)
    for (const sign of [1, -1]) {
      const scale = (sign * step * peak) / (1000 * end);
      const nearest = Array.from(weights, (w) =>
        levels.reduce((best, level) => (Math.abs(w - level * scale) < Math.abs(w - best * scale) ? level : best)),
      );
      const value = nearest.map((level) => level * scale);
      least = Math.min(least, lossOf(weights, value, importance));
    }
  return least;
}

const whole = (bits: number) => Array.from({ length: 2 ** bits }, (_, i) => i - 2 ** (bits - 1));

describe("is near the least of all scales", () => {
  for (const mappingType of ["symmetric", "codebook"] as const)
    for (const bits of mappingType === "codebook" ? [2, 3, 4] : [2, 3, 4, 5, 6])
      for (const isWeighted of [false, true])
        it(`${mappingType}, ${bits} bits${isWeighted ? ", weighted" : ""}`, () => {
          let [found, least] = [0, 0];
          for (let trial = 0; trial < 8; trial++) {
            const weights = weightsOf(32);
            const importance = isWeighted ? random.floats(32).map((value) => value * value) : null;
            const result = quantizeMse(weights, options({ bits, mappingType }), importance);
            found += lossOf(weights, dequantize(result), importance);
            const levels = mappingType === "codebook" ? Array.from(codebooks[bits]!) : whole(bits);
            least += leastLoss(weights, levels, importance);
          }
          expect(found / least).toBeLessThan(1.15);
        });
});

it.each(mappingTypes)("%s loses less than min-max, with f16 scales, too", (mappingType) => {
  const weights = weightsOf(64 * 96);
  for (const bits of hasCodebook(mappingType) ? [2, 3, 4] : [2, 3, 4, 6, 8]) {
    const scheme = { n: 64, k: 96, bits, groupSize: 32, scaleDType: "f16" } as const;
    const min = hasCodebook(mappingType) ? "symmetric" : mappingType;
    const affine = quantizeWeights(weights, options({ ...scheme, mappingType: min, algorithm: "affine" }));
    const found = quantizeWeights(weights, options({ ...scheme, mappingType }));
    expect(lossOf(weights, dequantize(found), null)).toBeLessThan(0.97 * lossOf(weights, dequantize(affine), null));
  }
});

describe("integer scales with a factor for 256 weights", () => {
  const forms = (["symmetric", "codebook"] as const).flatMap((mappingType) =>
    [2, 3, 4, 6].filter((bits) => mappingType === "symmetric" || bits <= 4).map((bits) => ({ mappingType, bits })),
  );

  it.each(forms)(
    "lose at most 2 %, at 6 bits 5 % more than scales of f32: $mappingType, $bits bits",
    ({ mappingType, bits }) => {
      const [n, k] = [24, 600];
      const weights = weightsOf(n * k);
      const importance = random.floats(k).map((value) => value * value);
      for (const groupSize of [16, 32]) {
        const scheme = { n, k, bits, groupSize, mappingType } as const;
        const lossWith = (scaleDType: "f32" | "i8") =>
          columnLoss(
            weights,
            dequantize(quantizeMse(weights, options({ ...scheme, scaleDType }), importance)),
            importance,
          );
        expect(lossWith("i8")).toBeLessThan((bits > 4 ? 1.05 : 1.02) * lossWith("f32"));
      }
    },
  );

  it.each(forms)("are integers times float16 factors: $mappingType, $bits bits", ({ mappingType, bits }) => {
    const [n, k, groupSize] = [3, 600, 16];
    const weights = weightsOf(n * k).map((weight, i) => (i < 300 ? weight : i < 400 ? 0 : weight * 1e-5));
    const found = quantizeMse(weights, options({ n, k, bits, groupSize, mappingType, scaleDType: "i8" }));
    expect(found.superScales).toHaveLength(3 * n);
    for (const factor of found.superScales!) expect(f16Table()[f32ToF16(factor)]).toBe(factor);
    const groups = Math.ceil(k / groupSize);
    found.scales.forEach((scale, i) => {
      const factor = found.superScales![3 * Math.floor(i / groups) + Math.floor((i % groups) / 16)]!;
      const whole = factor === 0 ? 0 : scale / factor;
      expect([Math.abs(whole) <= 127, Number.isInteger(whole)], `scale ${i}`).toEqual([true, true]);
    });
    expect(dequantize(found).subarray(304, 400)).toEqual(new Float32Array(96));
  });

  it.each([2, 3, 4])("shift the codebook where they are odd, which loses less: %d bits", (bits) => {
    const [n, k, groupSize] = [24, 512, 16];
    const weights = Float32Array.from({ length: n * k }, () => random.floats(6).reduce((sum, value) => sum + value, 0));
    const scheme = { n, k, bits, groupSize, mappingType: "codebook" } as const;
    const found = quantizeMse(weights, options({ ...scheme, scaleDType: "i8" }));
    const odd = Array.from(found.scales, (scale, i) => Math.abs(Math.round(scale / found.superScales![i >> 4]!)) % 2);
    expect(Array.from(found.zeros!)).toEqual(odd.map((is) => (is === 1 ? found.oddZero : 0)));
    const plain = quantizeMse(weights, options({ ...scheme, scaleDType: "f32" }));
    expect(lossOf(weights, dequantize(found), null)).toBeLessThan(0.95 * lossOf(weights, dequantize(plain), null));
  });

  it("are refused where they have no place", () => {
    const refused = (changes: Partial<AffineOptions>, message: RegExp) =>
      expect(() => quantizeMse(new Float32Array(32), options({ scaleDType: "i8", groupSize: 32, ...changes }))).toThrow(
        message,
      );
    refused({ groupSize: "axis" }, /scaleDType "i8" is for groups of 16 or 32, got "axis"/);
    refused({ groupSize: 64 }, /groups of 16 or 32, got 64/);
    refused({ groupSize: 16, bits: 5 }, /groups of 16 of weights of 2, 3, 4, 6 bits, got 5 bits/);
    refused({ mappingType: "asymmetric" }, /mappings without zero points, got "asymmetric"/);
    refused({ algorithm: "affine" }, /algorithm "mse" and those of texts, got "affine"/);
  });
});

it("one bit is the weighted mean of magnitudes", () => {
  const found = quantizeMse(Float32Array.of(1, -3, 0, 2), options({ bits: 1, k: 4 }), Float32Array.of(1, 2, 3, 0));
  expect([found.scales[0], ...found.qvals]).toEqual([Math.fround(7 / 6), 0, -1, 0, 0]);
});

it("importance moves the scale to what counts", () => {
  const weights = Float32Array.of(1, 0.1, -0.1, 0.12);
  const values = dequantize(quantizeMse(weights, options({ bits: 2, k: 4 }), Float32Array.of(1e-6, 1, 1, 1)));
  expect(values[1]).toBeCloseTo(0.1, 1);
  expect(values[0]).toBeLessThan(0.5);
});

it.each(mappingTypes)("%s keeps zeros, and takes weights that count for nothing", (mappingType) => {
  for (const scaleDType of ["f32", "f16"] as const) {
    const zeros = quantizeMse(new Float32Array(32), options({ mappingType, scaleDType }));
    expect([...dequantize(zeros)].every((value) => value === 0)).toBe(true);
    const found = quantizeMse(weightsOf(32), options({ mappingType, scaleDType }), new Float32Array(32));
    expect(found.scales.every((scale) => Number.isFinite(scale) && scale !== 0)).toBe(true);
  }
});

it.each(mappingTypes)("%s: numbers at the ends of float32 have finite scales", (mappingType) => {
  const huge = Float32Array.of(3.4e38, -3.4e38, 1e-45, 0);
  for (const scaleDType of ["f32", "f16"] as const)
    for (const scale of quantizeMse(huge, options({ k: 4, mappingType, scaleDType })).scales)
      expect(Number.isFinite(scale)).toBe(true);
});

it("refuses what cannot be", () => {
  const weights = weightsOf(32);
  const refused = (
    changes: Partial<AffineOptions>,
    importance: Float32Array | null,
    message: RegExp,
    type: unknown,
  ) => {
    const act = () => quantizeWeights(weights, options(changes), importance);
    expect(act).toThrow(message);
    expect(act).toThrow(type as typeof InvalidArgumentError);
  };
  refused({ mappingType: "codebook", bits: 5 }, null, /"codebook" is for bits 1, 2, 3, 4, got 5/, InvalidArgumentError);
  refused({ mappingType: "codebook", algorithm: "affine" }, null, /"affine" has no codebooks/, InvalidArgumentError);
  refused({ k: 31 }, null, /quantizeMse: expected 1 x 31 = 31 weights, got 32/, ShapeError);
  refused({}, new Float32Array(31), /a number for each of 32 columns but found 31/, ShapeError);
  refused({}, new Float32Array(32).fill(-1, 7), /found -1 for column 7/, InvalidArgumentError);
  weights[9] = Number.NaN;
  refused({}, null, /quantizeMse: weights must be finite, got NaN in row 0, column 9/, InvalidArgumentError);
});
