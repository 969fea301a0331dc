/** Tables, sizes and ranges as people read them. */
import { describe, expect, test } from "vitest";
import { formatBytes, formatRanges, formatTable } from "./table.ts";

describe("text for people", () => {
  test("tables are aligned, numbers to the right", () => {
    const rows = [
      ["name", "count", "share"],
      ["a", 5, "0.25"],
      ["long name", 123, "-12.50"],
    ];
    expect(formatTable(rows).split("\n")).toEqual([
      "name       count   share",
      "a              5    0.25",
      "long name    123  -12.50",
    ]);
  });

  test("sizes have three digits", () => {
    const sizes = [0, 999, 1000, 4_136_888, 999_499, 999_500, 1_234_567_890];
    const texts = ["0 bytes", "999 bytes", "1.00 kB", "4.14 MB", "999 kB", "1.00 MB", "1.23 GB"];
    expect(sizes.map(formatBytes)).toEqual(texts);
  });

  test("neighbours are ranges", () => {
    expect(formatRanges([1, 2, 3, 5, 7, 8])).toBe("1-3, 5, 7-8");
    expect(formatRanges([])).toBe("");
  });
});
