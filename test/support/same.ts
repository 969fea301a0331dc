/** Exact comparison of large arrays and of objects with them, a hundred times faster than toEqual. */
import { expect } from "vitest";
import type { TypedArray } from "../../src/dtype.ts";

/** Fails, with the place and both values, unless the arrays have the same type, length and bits. */
export function expectSame(found: TypedArray | null, expected: TypedArray | null, message?: string): void {
  if (found === null || expected === null) {
    expect(found, message).toBe(expected);
    return;
  }
  // Tests compare millions: an `expect` for each takes longer than the comparison.
  if (found[Symbol.toStringTag] !== expected[Symbol.toStringTag] || found.length !== expected.length)
    expect([found[Symbol.toStringTag], found.length], message).toEqual([expected[Symbol.toStringTag], expected.length]);
  let at = 0;
  while (at < found.length && Object.is(found[at], expected[at])) at++;
  if (at < found.length) expect([at, found[at]], message).toEqual([at, expected[at]]);
}

/** The same for all fields of two objects. */
export function expectSameFields(found: object, expected: object, message?: string): void {
  const partsOf = (value: object) => {
    const fields = Object.entries(value);
    const isArray = ([, field]: [string, unknown]) => ArrayBuffer.isView(field);
    return {
      arrays: Object.fromEntries(fields.filter(isArray)),
      rest: fields.filter((field) => !isArray(field)).sort(),
    };
  };
  const [one, other] = [partsOf(found), partsOf(expected)];
  expect([one.rest, Object.keys(one.arrays).sort()], message).toEqual([other.rest, Object.keys(other.arrays).sort()]);
  for (const [name, array] of Object.entries(other.arrays)) expectSame(one.arrays[name], array, `${message} ${name}`);
}
