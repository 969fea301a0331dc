import { describe, expect, it } from "vitest";
import { fieldTables } from "./fields.ts";

describe.each([1, 2, 3, 4, 5, 6, 7, 8])("fields of %i bits", (bits) => {
  const { vectors, fields } = fieldTables[bits]!;

  it("use every bit of every byte once", () => {
    const uses = new Map<number, number>();
    for (const { vector, shift, width } of fields.flat())
      for (let bit = shift; bit < shift + width; bit++)
        uses.set(8 * vector + bit, (uses.get(8 * vector + bit) ?? 0) + 1);
    expect([...uses.keys()].sort((a, b) => a - b)).toEqual(Array.from({ length: 8 * vectors }, (_, i) => i));
    expect(new Set(uses.values())).toEqual(new Set([1]));
  });

  it("hold every bit of every weight once", () => {
    expect(fields.length * bits).toBe(8 * vectors);
    for (const pieces of fields) {
      const covered = pieces.flatMap(({ at, width }) => Array.from({ length: width }, (_, i) => at + i));
      expect(covered.sort((a, b) => a - b)).toEqual(Array.from({ length: bits }, (_, i) => i));
    }
  });

  it("divide 32 consecutive weights", () => {
    expect(32 % (4 * fields.length)).toBe(0);
  });
});
