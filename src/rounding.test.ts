/** Rounding half to even against its definition. */
import { expect, it } from "vitest";
import { roundHalfEven } from "./rounding.ts";

it("rounds halves to the even neighbour and all else to the nearest", () => {
  for (let whole = -1000; whole <= 1000; whole++) {
    expect(roundHalfEven(whole)).toBe(whole);
    expect(roundHalfEven(whole + 0.5) + 0).toBe(whole % 2 === 0 ? whole : whole + 1);
    for (const rest of [0.25, 0.49999, 0.50001, 0.75])
      expect(roundHalfEven(whole + rest) === Math.round(whole + rest)).toBe(true);
  }
});

it("keeps every large float32, infinities and NaN", () => {
  for (const value of [2 ** 24 + 2, 2 ** 51, 2 ** 53, 3e38, 1e-45])
    for (const sign of [1, -1]) expect(roundHalfEven(sign * value) === (value < 1 ? 0 : sign * value)).toBe(true);
  expect(roundHalfEven(Number.POSITIVE_INFINITY)).toBe(Number.POSITIVE_INFINITY);
  expect(roundHalfEven(Number.NaN)).toBeNaN();
});
