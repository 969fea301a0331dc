/** Grammars of numbers between bounds, as expressions that are asked for every number near the bounds. */
import { describe, expect, it } from "vitest";
import type { Node } from "./grammar.ts";
import { type Bounds, integersBetween, numbersBetween } from "./number-ranges.ts";

/** Source of the expression of what a grammar gives. */
function sourceOf(node: Node): string {
  switch (node.kind) {
    case "text":
      return node.text.replace(/[.]/g, "\\.");
    case "class":
      return `[${node.ranges.map(([first, last]) => `${String.fromCodePoint(first)}-${String.fromCodePoint(last)}`).join("")}]`;
    case "sequence":
      return node.parts.map(sourceOf).join("");
    case "choice":
      return `(?:${node.options.map(sourceOf).join("|")})`;
    case "repeat":
      return `(?:${sourceOf(node.part)}){${node.min},${Number.isFinite(node.max) ? node.max : ""}}`;
    default:
      throw new Error(`unexpected ${node.kind}`);
  }
}

/** What a grammar gives, as a function of texts. */
function taker(node: Node | null): (text: string) => boolean {
  if (node === null) return () => false;
  const expression = new RegExp(`^(?:${sourceOf(node)})$`);
  return (text) => expression.test(text);
}

const bounds: [low: number, high: number, places: number][] = [
  [0, 1, 0],
  [0, 0.5, 1],
  [0.125, 0.458, 3],
  [0.25, 0.75, 2],
  [0.9, 1.1, 1],
  [-0.5, 0.5, 1],
  [-0.458, -0.125, 3],
  [-0.5, 0, 1],
  [0.001, 0.002, 3],
  [9.5, 10.5, 1],
  [-12, 105, 0],
  [0.5, 2, 1],
];

describe("numbers between bounds", () => {
  it.each(
    bounds.flatMap((given) => [
      [...given, false, false] as const,
      [...given, true, true] as const,
      [...given, true, false] as const,
    ]),
  )("from %s to %s of %s places, open: %s, %s", (low, high, places, isLowOpen, isHighOpen) => {
    const isWithin = (value: number) =>
      (isLowOpen ? value > low : value >= low) && (isHighOpen ? value < high : value <= high);
    const given: Bounds = { low, high, isLowOpen, isHighOpen };
    const takes = taker(numbersBetween(given, places));
    // Steps of half a last place, so that bounds, what is between them and what is right beside them are all there.
    const scale = 2 * 10 ** places;
    for (let step = Math.round(low * scale) - 4; step <= Math.round(high * scale) + 4; step++) {
      const value = step / scale;
      // As they are written with all places of the bounds, and, where that is the same number, as whole ones.
      const text = Number.isInteger(value) ? String(value) : value.toFixed(step % 2 === 0 ? places : places + 1);
      expect(takes(text), text).toBe(isWithin(value));
    }
  });

  it("is nothing where the bounds leave no room", () => {
    expect(numbersBetween({ low: 2, high: 1, isLowOpen: false, isHighOpen: false }, 0)).toBeNull();
    expect(integersBetween(0.1, 0.9)).toBeNull();
  });
});

describe("whole numbers between bounds", () => {
  it.each([
    [0, 0],
    [-3, 12],
    [-120, -7],
    [8, 1003],
    [99, 101],
  ])("from %s to %s", (low, high) => {
    const takes = taker(integersBetween(low, high));
    for (let value = low - 15; value <= high + 15; value++)
      expect(takes(String(value)), String(value)).toBe(value >= low && value <= high);
  });
});
