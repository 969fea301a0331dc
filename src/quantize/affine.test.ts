import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { InvalidArgumentError, ShapeError } from "../errors.ts";
import { f16Table } from "../half.ts";
import { dequantize, type QuantizedWeights, type ScaleDType } from "../quantized.ts";
import { type AffineOptions, quantizeAffine } from "./affine.ts";
import type { Algorithm, GroupSize, MappingType } from "./scheme.ts";

/** TorchAO's. */
const mappingTypes = ["symmetric", "symmetric_no_clipping_err", "asymmetric"] as const;
const allBits = [1, 2, 3, 4, 5, 6, 7, 8];

function options(changes: Partial<AffineOptions>): AffineOptions {
  return {
    n: 1,
    k: 1,
    bits: 4,
    groupSize: "axis",
    mappingType: "symmetric",
    algorithm: "affine",
    scaleDType: "f32",
    ...changes,
  };
}

/** Normally distributed numbers (sum of twelve uniforms), the same for the same seed. */
function gaussian(length: number, seed: number): Float32Array {
  let state = seed;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  return Float32Array.from({ length }, () => {
    let sum = -6;
    for (let i = 0; i < 12; i++) sum += uniform();
    return sum * 0.02;
  });
}

function squaredError(weights: Float32Array, quantized: QuantizedWeights): number {
  return dequantize(quantized).reduce((sum, value, i) => sum + (value - weights[i]!) ** 2, 0);
}

interface GoldenCase {
  readonly bits: number;
  readonly groupSize: GroupSize;
  readonly mappingType: MappingType;
  readonly algorithm: Algorithm;
  /** Hexadecimal bytes, as `qvals` and the rest. */
  readonly scales: string;
  readonly zeros: string | null;
  readonly qvals: string;
  readonly qvalsF16: string;
}

interface Golden {
  readonly n: number;
  readonly k: number;
  readonly weights: string;
  readonly cases: readonly GoldenCase[];
}

const golden = JSON.parse(readFileSync(new URL("affine.json.golden", import.meta.url), "utf8")) as Golden;
const floats = (hex: string) => new Float32Array(Uint8Array.from(Buffer.from(hex, "hex")).buffer);
const bytes = (hex: string) => new Int8Array(Uint8Array.from(Buffer.from(hex, "hex")).buffer);

describe("the same as TorchAO", () => {
  const weights = floats(golden.weights);
  it.each(golden.cases)("bits $bits, group $groupSize, $mappingType, $algorithm", (expected) => {
    const { n, k } = golden;
    const result = quantizeAffine(weights, options({ ...expected, n, k }));
    const scales = floats(expected.scales);
    // Sums of HQQ are in another order; everything else is exact.
    const tolerance = expected.algorithm === "affine" ? 0 : 1e-6;
    expect(result.scales.length).toBe(scales.length);
    for (const [i, scale] of scales.entries())
      expect(Math.abs(result.scales[i]! - scale)).toBeLessThanOrEqual(tolerance * scale);
    expect(result.zeros).toEqual(expected.zeros === null ? null : bytes(expected.zeros));
    expect(result.qvals).toEqual(bytes(expected.qvals));
    const half = quantizeAffine(weights, options({ ...expected, n, k, scaleDType: "f16" }));
    expect(half.qvals).toEqual(bytes(expected.qvalsF16));
    expect(half.zeros).toEqual(result.zeros);
  });
});

/** The definition in doubles, written group by group from the published formulas. */
function quantizeGroup(group: readonly number[], bits: number, mappingType: (typeof mappingTypes)[number]) {
  const qmin = -(2 ** (bits - 1));
  const qmax = 2 ** (bits - 1) - 1;
  const low = Math.min(0, ...group);
  const high = Math.max(0, ...group);
  const scale = {
    symmetric: Math.max(-low, high) / ((qmax - qmin) / 2),
    symmetric_no_clipping_err: Math.max(low / qmin, high / qmax),
    asymmetric: (high - low) / (qmax - qmin),
  }[mappingType];
  const zero = mappingType === "asymmetric" ? Math.min(qmax, Math.max(qmin, qmin - Math.round(low / scale))) : 0;
  const exact = group.map((w) => Math.min(qmax, Math.max(qmin, w / scale + zero)));
  return { scale, zero, exact };
}

describe("against the definition in doubles", () => {
  const n = 6;
  const k = 100;
  const weights = gaussian(n * k, 5);
  for (const mappingType of mappingTypes)
    for (const groupSize of [1, 16, 33, 100, 1000, "axis"] as const)
      it(`${mappingType}, group ${groupSize}`, () => {
        for (const bits of allBits.slice(mappingType === "asymmetric" ? 0 : 1)) {
          const result = quantizeAffine(weights, options({ n, k, bits, mappingType, groupSize }));
          const size = Math.min(k, groupSize === "axis" ? k : groupSize);
          expect(result.groupSize).toBe(size);
          let group = 0;
          for (let r = 0; r < n; r++)
            for (let c = 0; c < k; c += size, group++) {
              const start = r * k + c;
              const end = Math.min(start + size, r * k + k);
              const expected = quantizeGroup([...weights.subarray(start, end)], bits, mappingType);
              expect(result.scales[group]! / expected.scale).toBeCloseTo(1, 6);
              expect(result.zeros?.[group] ?? 0).toBe(expected.zero);
              const distances = expected.exact.map((exact, i) => Math.abs(result.qvals[start + i]! - exact));
              expect(Math.max(...distances)).toBeLessThanOrEqual(0.5001);
            }
          expect(result.scales.length).toBe(group);
        }
      });
});

describe("properties", () => {
  const n = 16;
  const k = 96;
  const weights = gaussian(n * k, 9);
  // Row 0 has outliers of both signs, row 1 is positive, row 2 negative, row 3 constant, row 4 zero.
  weights[3] = 2;
  weights[40] = -3;
  for (let c = 0; c < k; c++) {
    weights[k + c] = Math.abs(weights[k + c]!) + 0.5;
    weights[2 * k + c] = -Math.abs(weights[2 * k + c]!) - 0.5;
    weights[3 * k + c] = 0.07;
    weights[4 * k + c] = 0;
  }

  it.each(mappingTypes)("%s: every error is at most half a step", (mappingType) => {
    for (const bits of allBits.slice(1)) {
      const result = quantizeAffine(weights, options({ n, k, bits, mappingType, groupSize: 32 }));
      for (const [i, value] of dequantize(result).entries())
        expect(Math.abs(value - weights[i]!)).toBeLessThanOrEqual(0.5001 * result.scales[Math.floor(i / 32)]!);
    }
  });

  it("zero stays exactly zero", () => {
    for (const mappingType of mappingTypes)
      for (const scaleDType of ["f32", "f16"] as const)
        for (const bits of allBits) {
          const withZeros = weights.map((w, i) => (i % 7 === 0 ? 0 : w));
          if (bits === 1 && mappingType !== "asymmetric") continue; // levels -1 and +1
          const values = dequantize(quantizeAffine(withZeros, options({ n, k, bits, mappingType, scaleDType })));
          for (let i = 0; i < values.length; i += 7) expect(values[i]).toBe(0);
        }
  });

  it.each(["symmetric_no_clipping_err", "asymmetric"] as const)(
    "%s: quantizing again changes nothing",
    (mappingType) => {
      for (const bits of allBits) {
        const same = options({ n, k, bits, mappingType, groupSize: 32 });
        const first = quantizeAffine(weights, same);
        const second = quantizeAffine(dequantize(first), same);
        expect(second.qvals).toEqual(first.qvals);
        expect(second.zeros).toEqual(first.zeros);
      }
    },
  );

  it.each(mappingTypes)("%s: a short last group is a group filled up with zeros", (mappingType) => {
    const padded = new Float32Array(n * 105);
    for (let r = 0; r < n; r++) padded.set(weights.subarray(r * k, r * k + k), r * 105);
    for (const bits of allBits.slice(mappingType === "asymmetric" ? 0 : 1))
      for (const algorithm of mappingType === "symmetric"
        ? (["affine", "hqq_scale_only"] as const)
        : ["affine" as const]) {
        const scheme = { n, bits, mappingType, algorithm, groupSize: 35 };
        const short = quantizeAffine(weights, options({ ...scheme, k }));
        const full = quantizeAffine(padded, options({ ...scheme, k: 105 }));
        expect(short.scales).toEqual(full.scales);
        expect(short.zeros).toEqual(full.zeros);
        for (let r = 0; r < n; r++)
          expect(short.qvals.subarray(r * k, r * k + k)).toEqual(full.qvals.subarray(r * 105, r * 105 + k));
      }
  });

  it("f16 scales are finite binary16 numbers, and not zero where weights are divided by them", () => {
    const halves = new Set(f16Table());
    const scaled = weights.map((w, i) => w * [1, 1e-9, 1e7, 1e-4][Math.floor(i / k) % 4]!);
    for (const mappingType of mappingTypes)
      for (const bits of allBits) {
        const result = quantizeAffine(scaled, options({ n, k, bits, mappingType, groupSize: 32, scaleDType: "f16" }));
        for (const scale of result.scales) {
          expect(halves.has(scale)).toBe(true);
          expect(scale).toBeLessThanOrEqual(65504);
          if (!result.hasLevels) expect(scale).toBeGreaterThanOrEqual(2 ** -24);
        }
      }
  });
});

describe("one bit", () => {
  const n = 32;
  const k = 256;
  const weights = gaussian(n * k, 3);
  const power = weights.reduce((sum, w) => sum + w * w, 0);
  const scheme = { n, k, bits: 1, groupSize: 32 };

  it("has the levels -1 and +1 and the mean magnitude as scale", () => {
    const result = quantizeAffine(
      Float32Array.of(1, -2, 0, 5, -0.5, 0.25),
      options({ n: 1, k: 6, bits: 1, groupSize: 4 }),
    );
    expect(result).toMatchObject({ hasLevels: true, hasZeros: false, zeros: null, levels: Int8Array.of(-1, 1) });
    expect(result.qvals).toEqual(Int8Array.of(0, -1, 0, 0, -1, 0));
    expect([...result.scales]).toEqual([2, 0.375]);
    expect([...dequantize(result)]).toEqual([2, -2, 2, 2, -0.375, 0.375]);
  });

  it("loses 1 - 2/π of the power of Gaussian weights, where zeros lose all and asymmetric more", () => {
    for (const mappingType of ["symmetric", "symmetric_no_clipping_err"] as const) {
      const error = squaredError(weights, quantizeAffine(weights, options({ ...scheme, mappingType }))) / power;
      expect(error).toBeGreaterThan(0.33);
      expect(error).toBeLessThan(0.38);
    }
    const asymmetric = quantizeAffine(weights, options({ ...scheme, mappingType: "asymmetric" }));
    expect(squaredError(weights, asymmetric) / power).toBeGreaterThan(0.6);
  });

  it("has the best scale of all", () => {
    const best = quantizeAffine(weights, options(scheme));
    for (const factor of [0.9, 0.99, 1.01, 1.1]) {
      const other = { ...best, scales: best.scales.map((scale) => scale * factor) };
      expect(squaredError(weights, other)).toBeGreaterThan(squaredError(weights, best));
    }
  });

  it("keeps a row of zeros zero", () => {
    for (const scaleDType of ["f32", "f16"] satisfies ScaleDType[])
      expect([...dequantize(quantizeAffine(new Float32Array(64), options({ k: 64, bits: 1, scaleDType })))]).toEqual(
        Array(64).fill(0),
      );
  });
});

describe("hqq_scale_only", () => {
  const n = 8;
  const k = 128;
  const weights = gaussian(n * k, 11);
  weights[5] = 0.9;

  it("never has a greater squared error than its start, nor than affine", () => {
    for (const bits of allBits.slice(1))
      for (let r = 0; r < n; r++) {
        const row = weights.subarray(r * k, r * k + k);
        const result = quantizeAffine(row, options({ k, bits, algorithm: "hqq_scale_only" }));
        const qmin = -(2 ** (bits - 1));
        const start = row.reduce((peak, w) => Math.max(peak, Math.abs(w)), 0) / -qmin;
        const startError = row.reduce((sum, w) => {
          const q = Math.min(-qmin - 1, Math.max(qmin, Math.round(w / start)));
          return sum + (w - q * start) ** 2;
        }, 0);
        expect(squaredError(row, result)).toBeLessThanOrEqual(startError * (1 + 1e-6));
      }
    const [hqq, affine] = (["hqq_scale_only", "affine"] as const).map((algorithm) =>
      squaredError(weights, quantizeAffine(weights, options({ n, k, bits: 3, groupSize: 32, algorithm }))),
    );
    expect(hqq).toBeLessThan(affine!);
  });
});

describe("errors", () => {
  const weights = new Float32Array(6);
  it.each([
    [{ bits: 9 }, /bits must be a whole number from 1 to 8, got 9/],
    [{ groupSize: 0 }, /groupSize must be .* or "axis" for one scale a row, got 0/],
    [{ mappingType: "wide" as MappingType }, /mappingType must be one of symmetric, .*, got "wide"/],
    [{ algorithm: "hqq_scale_only", mappingType: "asymmetric" }, /has no zero points/],
    [{ n: 0 }, /n must be a whole number of at least 1, got 0/],
  ] satisfies [Partial<AffineOptions>, RegExp][])("%o", (changes, message) => {
    const act = () => quantizeAffine(weights, options({ n: 2, k: 3, ...changes }));
    expect(act).toThrow(InvalidArgumentError);
    expect(act).toThrow(message);
  });

  it("a wrong length", () => {
    expect(() => quantizeAffine(weights, options({ n: 2, k: 4 }))).toThrow(ShapeError);
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])("a weight %f", (value) => {
    const broken = Float32Array.of(1, 2, 3, 4, value, 6);
    for (const bits of [1, 4])
      expect(() => quantizeAffine(broken, options({ n: 2, k: 3, bits }))).toThrow(/in row 1, column 1/);
  });

  it("numbers at the ends of float32 are quantized, not refused", () => {
    const huge = Float32Array.of(3.4e38, -3.4e38, 1e-45, 0);
    for (const mappingType of mappingTypes)
      for (const scaleDType of ["f32", "f16"] as const)
        for (const scale of quantizeAffine(huge, options({ k: 4, bits: 8, mappingType, scaleDType })).scales)
          expect(Number.isFinite(scale)).toBe(true);
  });
});
