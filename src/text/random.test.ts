/** Random numbers: published first outputs of both generators, and an independent xoshiro128** in BigInt. */
import { expect, it } from "vitest";
import { createRandom, splitMix64, xoshiro128 } from "./random.ts";

it("SplitMix64 gives the published first outputs", () => {
  expect(splitMix64(0n)()).toBe(0xe220a8397b1dcdafn);
  const next = splitMix64(1234567n);
  expect([next(), next(), next()]).toEqual([6457827717110365317n, 3203168211198807973n, 9817491932198370423n]);
});

it("xoshiro128** follows its definition", () => {
  const word = (value: bigint) => value & 0xffffffffn;
  const rotate = (value: bigint, count: bigint) => word(value << count) | (value >> (32n - count));
  let [a, b, c, d] = [1n, 2n, 3n, 4n];
  const random = xoshiro128(Uint32Array.of(1, 2, 3, 4));
  for (let i = 0; i < 1000; i++) {
    const result = word(rotate(word(b * 5n), 7n) * 9n);
    if (i === 0) expect(result).toBe(11520n);
    const shifted = word(b << 9n);
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= shifted;
    d = rotate(d, 11n);
    expect(random.uint32()).toBe(Number(result));
  }
});

it("uniform lies in [0, 1) with mean one half, and depends on all bits of the seed", () => {
  const random = createRandom(5);
  let sum = 0;
  for (let i = 0; i < 10000; i++) {
    const value = random.uniform();
    expect(value >= 0 && value < 1).toBe(true);
    sum += value;
  }
  expect(Math.abs(sum / 10000 - 0.5)).toBeLessThan(0.015);
  const firsts = [0, 1, 2 ** 32, 2 ** 53 - 1].map((seed) => createRandom(seed).uint32());
  expect(new Set(firsts).size).toBe(4);
});
