/** Exact comparison of large arrays, a hundred times faster than toEqual. */
import { expect } from "vitest";
import type { TypedArray } from "../../src/dtype.ts";

/** Fails, with the place and both values, unless the arrays have the same type, length and bits. */
export function expectSame(found: TypedArray | null, expected: TypedArray | null, message?: string): void {
  if (found === null || expected === null) {
    expect(found, message).toBe(expected);
    return;
  }
  expect([found[Symbol.toStringTag], found.length], message).toEqual([expected[Symbol.toStringTag], expected.length]);
  let at = 0;
  while (at < found.length && Object.is(found[at], expected[at])) at++;
  if (at < found.length) expect([at, found[at]], message).toEqual([at, expected[at]]);
}
