/** Bits for each of several matrices so that all together stay within a budget at the least cost. */
import { InvalidArgumentError } from "../errors.ts";

export interface BudgetItem {
  readonly weights: number;
  /** Cost of each choice of bits, in the order of `choices`. */
  readonly costs: readonly number[];
}

/** More units than these are not told apart. */
const UNITS_MAX = 2 ** 18;

/**
 * The choice for each item, by index into `choices`, with the least sum of costs among all whose mean number of bits a
 * weight is at most `budget`. By dynamic programming over the bits spent, in units of the greatest common divisor of
 * the numbers of weights: exact. InvalidArgumentError when even the fewest bits are too many.
 */
export function spendBits(items: readonly BudgetItem[], choices: readonly number[], budget: number): number[] {
  const total = items.reduce((sum, { weights }) => sum + weights, 0);
  const divisor = items.reduce((known, { weights }) => greatestCommonDivisor(known, weights), 0);
  const unit = Math.max(divisor, Math.ceil((budget * total) / UNITS_MAX));
  const sizeOf = (weights: number, bits: number) => Math.ceil((bits * weights) / unit);
  const room = Math.floor((budget * total) / unit + 1e-9);
  // costs[spent]: the least cost of the items so far; picks[item][spent]: the last item's choice in it.
  let costs = new Float64Array(room + 1);
  const picks: Uint8Array[] = [];
  for (const item of items) {
    const next = new Float64Array(room + 1).fill(Number.POSITIVE_INFINITY);
    const pick = new Uint8Array(room + 1);
    for (const [choice, bits] of choices.entries()) {
      const size = sizeOf(item.weights, bits);
      const cost = item.costs[choice]!;
      for (let spent = size; spent <= room; spent++) {
        const sum = costs[spent - size]! + cost;
        if (sum < next[spent]!) {
          next[spent] = sum;
          pick[spent] = choice;
        }
      }
    }
    costs = next;
    picks.push(pick);
  }
  if (costs[room] === Number.POSITIVE_INFINITY)
    throw new InvalidArgumentError(
      `budget: expected at least ${Math.min(...choices)} bits a weight but found ${budget}`,
    );
  const chosen: number[] = [];
  let spent = room;
  for (let i = items.length - 1; i >= 0; i--) {
    const choice = picks[i]![spent]!;
    chosen.unshift(choice);
    spent -= sizeOf(items[i]!.weights, choices[choice]!);
  }
  return chosen;
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
