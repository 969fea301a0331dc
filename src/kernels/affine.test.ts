/** What grows evenly with sizes, against the same values worked out for each size. */
import { describe, expect, it } from "vitest";
import { type AtSizes, fitted, pointsOf, type SizeRange, type Sizes, slopesOf } from "./affine.ts";

const one: SizeRange = { smallest: [2], largest: [40] };
const two: SizeRange = { smallest: [2, 8], largest: [40, 30] };
const buffer = new ArrayBuffer(4096);

function of<T>(range: SizeRange, value: (...sizes: number[]) => T): AtSizes<T> | null {
  const values = pointsOf(range).map((sizes) => value(...sizes));
  return fitted(range, values);
}

function allSizes({ smallest, largest }: SizeRange): Sizes[] {
  return smallest.reduce<Sizes[]>(
    (found, first, i) =>
      Array.from({ length: largest[i]! - first + 1 }, (_, step) =>
        found.map((sizes) => [...sizes, first + step]),
      ).flat(),
    [[]],
  );
}

describe("values that grow evenly", () => {
  it.each<[string, SizeRange, (...sizes: number[]) => unknown]>([
    ["numbers", one, (t) => 7 + 3 * t],
    ["numbers of two sizes", two, (t, r) => 1 + 5 * t + 64 * r],
    ["numbers of one of two sizes", two, (_, r) => 2 * r],
    [
      "what stays",
      two,
      () => ({ scale: 0.125, name: "x", nothing: null, is: true, big: 3n, none: Number.NaN, low: -0 }),
    ],
    ["arrays", one, (t) => new Float32Array(buffer, 128, 4 * t)],
    ["fields and lists", two, (t, r) => ({ m: t, x: new Int8Array(buffer, 0, r), sizes: [1, t + r, { deep: [t] }] })],
    ["short arrays elsewhere that hold the same", one, (t) => ({ position: BigInt64Array.of(5n), m: t })],
    ["all sizes of a short range, whatever they are between", { smallest: [2], largest: [3] }, (t) => t * t],
  ])("%s are what they are for each of the sizes", (_, range, value) => {
    const at = of(range, value)!;
    for (const sizes of allSizes(range)) {
      expect(at(sizes)).toEqual(value(...sizes));
    }
  });

  it("keeps what does not differ as it is", () => {
    const weights = { bits: 4 };
    const bytes = new Uint8Array(buffer, 0, 8);
    const at = of(one, (t) => ({ m: t, weights, bytes }))!;
    expect(at([9]).weights).toBe(weights);
    expect(at([9]).bytes).toBe(bytes);
  });

  it.each<[string, (t: number, r: number) => unknown]>([
    ["a number that stops growing", (t) => Math.min(t, 20)],
    ["a number that begins to grow", (t) => Math.max(t, 20)],
    ["a product of sizes", (t, r) => t * r],
    ["whole halves", (t) => Math.ceil(t / 2)],
    ["halves", (t) => t / 2],
    ["a number that falls", (t) => 100 - t],
    ["arrays at other places", (t) => new Uint8Array(buffer, t, 4)],
    ["arrays elsewhere that hold other things", (t) => BigInt64Array.of(BigInt(t))],
    ["arrays of other types", (t) => (t === 3 ? new Int8Array(buffer, 0, 4) : new Uint8Array(buffer, 0, 4))],
    ["other fields", (t) => (t === 3 ? { a: 1 } : { b: 1 })],
    ["longer lists", (t) => Array(t).fill(1)],
    ["functions", (t) => () => t],
    ["objects of classes", (t) => new Map([[t, t]])],
    ["other text", (t) => `${t}`],
  ])("refuses %s", (_, value) => {
    expect(of(two, value)).toBeNull();
    expect(of(two, (t, r) => ({ deep: [value(t, r)] }))).toBeNull();
  });

  it("lets numbers fall where it is allowed", () => {
    expect(slopesOf(one, [98, 97, 60], Number.NEGATIVE_INFINITY)).toEqual([-1]);
    expect(slopesOf(one, [98, 97, 61], Number.NEGATIVE_INFINITY)).toBeNull();
    expect(slopesOf(one, [98, 97, 60])).toBeNull();
  });
});
