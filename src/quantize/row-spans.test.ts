import { expect, it } from "vitest";
import { Random } from "../../test/support/random.ts";
import { usedSpans } from "./row-spans.ts";

const sizes = (shares: Float64Array, count: number, step: number) =>
  usedSpans(shares, count, step).map(({ first, end }) => end - first);

it("ends spans where shares change", () => {
  const shares = Float64Array.from({ length: 20_000 }, (_, row) => {
    if (row < 672) return 0.001;
    return row >= 15_360 && row < 16_032 ? 0.01 : 0.00001 * (1 + (row % 3));
  });
  expect(sizes(shares, 4, 32)).toEqual([672, 14_688, 672, 3968]);
});

it("has the least error of all divisions, with the best bits for each span", () => {
  const random = new Random(5);
  for (let trial = 0; trial < 20; trial++) {
    const shares = Float64Array.from({ length: 45 }, () => random.next() ** 4);
    const sum = (part: Float64Array) => part.reduce((total, value) => total + value, 0);
    const all = sum(shares);
    // Bits b of each span, 32 a row in all: minimizes the sum of share * 4^-b, by Lagrange's multiplier.
    const error = (ends: readonly number[]) => {
      const parts = ends.map((end, i) => shares.subarray(ends[i - 1] ?? 0, end));
      const means = parts.map((part) => (0.99 * sum(part) + (0.01 * all * part.length) / 45) / part.length);
      const logs = means.map((mean, i) => (Math.log(mean) / Math.log(4)) * (parts[i]!.length / 45));
      const level = 32 - logs.reduce((total, value) => total + value, 0);
      return parts.reduce((total, part, i) => {
        const bits = level + Math.log(means[i]!) / Math.log(4);
        return total + part.length * means[i]! * 4 ** (32 - bits);
      }, 0);
    };
    let best = Number.POSITIVE_INFINITY;
    for (let a = 4; a < 45; a += 4) for (let b = a + 4; b < 45; b += 4) best = Math.min(best, error([a, b, 45]));
    const found = usedSpans(shares, 3, 4).map(({ end }) => end);
    expect(found.slice(0, -1).every((end) => end % 4 === 0)).toBe(true);
    expect(error(found)).toBeCloseTo(best, 9);
  }
});

it("says which part of all uses each span has, a hundredth of them spread evenly", () => {
  const shares = Float64Array.from({ length: 128 }, (_, row) => (row < 32 ? 3 : 0));
  const [first, last] = usedSpans(shares, 2, 32);
  expect(first).toMatchObject({ first: 0, end: 32 });
  expect(first!.part).toBeCloseTo(0.99 + 0.01 / 4, 12);
  expect(last!.part).toBeCloseTo(0.0075, 12);
});

it("has as many spans as there are blocks, where those are fewer", () => {
  expect(sizes(Float64Array.of(1, 2, 3), 4, 2)).toEqual([2, 1]);
  expect(sizes(new Float64Array(64).fill(1), 1, 32)).toEqual([64]);
});
