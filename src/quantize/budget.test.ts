import { expect, it } from "vitest";
import { Random } from "../../test/support/random.ts";
import { type BudgetItem, spendBytes } from "./budget.ts";

/** The least cost of all choices within the room; infinite where none fits. */
function bruteForce(items: readonly BudgetItem[], room: number): number {
  const [first, ...rest] = items;
  if (room < 0) return Number.POSITIVE_INFINITY;
  if (!first) return 0;
  return Math.min(...first.bytes.map((bytes, i) => first.costs[i]! + bruteForce(rest, room - bytes)));
}

const sum = (items: readonly BudgetItem[], chosen: readonly number[], field: "bytes" | "costs") =>
  items.reduce((total, item, i) => total + item[field][chosen[i]!]!, 0);

function randomItems(random: Random, scale: number): BudgetItem[] {
  return Array.from({ length: random.integer(1, 6) }, () => {
    const bytes = Array.from({ length: 4 }, () => scale * random.integer(1, 40));
    return { bytes, costs: bytes.map((size) => (random.next() * scale) / size) };
  });
}

it.each([1, 4096 * 1024])("finds the least cost within the room, sizes times %d", (scale) => {
  const random = new Random(3);
  for (let trial = 0; trial < 60; trial++) {
    const items = randomItems(random, scale);
    const room = scale * random.integer(5, 120);
    const chosen = spendBytes(items, room);
    const best = bruteForce(items, room);
    expect(chosen === null).toBe(best === Number.POSITIVE_INFINITY);
    if (!chosen) continue;
    expect(sum(items, chosen, "bytes")).toBeLessThanOrEqual(room);
    expect(sum(items, chosen, "costs")).toBeCloseTo(best, 12);
  }
});

it("stays within the room, and near the best, for sizes without a common divisor", () => {
  const random = new Random(4);
  for (let trial = 0; trial < 20; trial++) {
    const items = randomItems(random, 1e6).map(({ bytes, costs }) => ({
      bytes: bytes.map((size) => size + random.integer(0, 999)),
      costs,
    }));
    const room = sum(
      items,
      items.map(() => 1),
      "bytes",
    );
    const chosen = spendBytes(items, room)!;
    expect(sum(items, chosen, "bytes")).toBeLessThanOrEqual(room);
    expect(sum(items, chosen, "costs")).toBeLessThanOrEqual(
      bruteForce(items, room - 6 * Math.ceil(room / 2 ** 16)) + 1e-12,
    );
  }
});

it("takes no choice of infinite cost, and says when nothing fits", () => {
  const items = [{ bytes: [1, 2], costs: [Number.POSITIVE_INFINITY, 1] }];
  expect(spendBytes(items, 2)).toEqual([1]);
  expect(spendBytes(items, 1)).toBeNull();
  expect(spendBytes(items, 0)).toBeNull();
});
