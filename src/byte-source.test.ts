/** Sources over memory: copies, and ranges checked before they are believed. */
import { expect, test } from "vitest";
import { checkRange, memorySource } from "./byte-source.ts";
import { InvalidFileError } from "./errors.ts";

test.each([
  ["Uint8Array", Uint8Array.of(1, 2, 3, 4)],
  ["Buffer", Buffer.from([1, 2, 3, 4])],
  ["part of a larger array", Uint8Array.of(0, 1, 2, 3, 4, 0).subarray(1, 5)],
])("reads a copy, aligned to its own buffer, of a %s", async (_, bytes) => {
  const source = memorySource("m", bytes);
  const read = await source.read(1, 2);
  expect(read).toEqual(Uint8Array.of(2, 3));
  expect([source.size, read.byteOffset]).toEqual([4, 0]);
  read[0] = 9;
  expect(bytes[1]).toBe(2);
});

test("a range may be empty, at the end too, and no range may leave the file", () => {
  expect(() => checkRange("f", 4, 4, 0)).not.toThrow();
  expect(() => checkRange("f", 4, 0, 4)).not.toThrow();
  const bad = [
    [0, 5],
    [4, 1],
    [-1, 2],
    [1, -1],
    [0.5, 1],
    [0, Number.NaN],
    [2 ** 53, 1],
    [0, Number.POSITIVE_INFINITY],
  ];
  for (const [offset, length] of bad) expect(() => checkRange("f", 4, offset!, length!)).toThrow(InvalidFileError);
});
