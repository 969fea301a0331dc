import { expect, it } from "vitest";
import { Random } from "../../test/support/random.ts";
import { type BudgetItem, spendBits } from "./budget.ts";

/** The least cost of all choices. */
function bruteForce(items: readonly BudgetItem[], choices: readonly number[], room: number): number {
  const [first, ...rest] = items;
  if (!first) return room < 0 ? Number.POSITIVE_INFINITY : 0;
  const costs = choices.map((bits, i) => first.costs[i]! + bruteForce(rest, choices, room - bits * first.weights));
  return Math.min(...costs);
}

it("finds the least cost within the budget", () => {
  const random = new Random(3);
  const choices = [2, 3, 4, 6];
  for (let trial = 0; trial < 60; trial++) {
    const items = Array.from({ length: random.integer(1, 6) }, () => ({
      weights: 12 * random.integer(1, 9),
      costs: choices.map((bits) => random.next() * 4 ** -bits),
    }));
    const total = items.reduce((sum, { weights }) => sum + weights, 0);
    const budget = 2 + random.next() * 4;
    const chosen = spendBits(items, choices, budget);
    const spent = items.reduce((sum, { weights }, i) => sum + weights * choices[chosen[i]!]!, 0);
    expect(spent).toBeLessThanOrEqual(budget * total);
    const cost = items.reduce((sum, { costs }, i) => sum + costs[chosen[i]!]!, 0);
    expect(cost).toBeCloseTo(bruteForce(items, choices, budget * total), 12);
  }
});

it("is exact for the sizes of large models, too", () => {
  const random = new Random(4);
  const choices = [2, 3, 4, 6];
  for (let trial = 0; trial < 10; trial++) {
    const items = Array.from({ length: 6 }, () => ({
      weights: random.integer(1, 9),
      costs: choices.map((bits) => random.next() * 4 ** -bits),
    }));
    const bits = items.reduce((sum, { weights }) => sum + weights * random.pick(choices), 0);
    const budget = bits / items.reduce((sum, { weights }) => sum + weights, 0);
    const large = items.map(({ weights, costs }) => ({ weights: weights * 4096 * 1024, costs }));
    expect(spendBits(large, choices, budget)).toEqual(spendBits(items, choices, budget));
  }
});

it("spends a budget that fits exactly, and refuses one that is too small", () => {
  const items = [7, 14, 21].map((weights) => ({ weights, costs: [4, 1, 0] }));
  expect(spendBits(items, [2, 3, 4], 3)).toEqual([1, 1, 1]);
  expect(spendBits(items, [2, 3, 4], 8)).toEqual([2, 2, 2]);
  expect(() => spendBits(items, [2, 3, 4], 1.9)).toThrow("budget: expected at least 2 bits a weight but found 1.9");
});
