/** Chooses an option for each of several matrices: the least total cost within a number of bytes (a knapsack problem). */

/** Bytes and costs of the choices for a matrix, in the same order. */
export interface BudgetItem {
  /** Bytes of each choice. */
  readonly bytes: readonly number[];
  /** Cost of each choice; infinite for one that must not be taken. */
  readonly costs: readonly number[];
}

/** Largest number of units; the budget is counted in units of bytes. */
const UNITS_MAX = 2 ** 16;

/**
 * The choice for each item, by index, with the least sum of costs among all that take at most `room` bytes together; null when
 * even the smallest choices take more. By dynamic programming over units of bytes, the greatest common divisor of all sizes
 * where that leaves at most 65,536 of them: then exact, else each item is rounded up to whole units.
 */
export function spendBytes(items: readonly BudgetItem[], room: number): number[] | null {
  const least = items.map(({ bytes }) => Math.min(...bytes));
  const spare = room - least.reduce((sum, bytes) => sum + bytes, 0);
  if (spare < 0) return null;
  const divisor = items.reduce(
    (known, { bytes }, i) => bytes.reduce((d, size) => greatestCommonDivisor(d, size - least[i]!), known),
    0,
  );
  const unit = Math.max(divisor, Math.ceil(spare / UNITS_MAX), 1);
  const units = Math.floor(spare / unit);
  // costs[spent]: the least cost of the items so far; picks[item][spent]: the last item's choice in it.
  let costs = new Float64Array(units + 1);
  const picks: Uint8Array[] = [];
  const sizeOf = (item: number, choice: number) => Math.ceil((items[item]!.bytes[choice]! - least[item]!) / unit);
  for (const [i, item] of items.entries()) {
    const next = new Float64Array(units + 1).fill(Number.POSITIVE_INFINITY);
    const pick = new Uint8Array(units + 1);
    for (const [choice, cost] of item.costs.entries()) {
      const size = sizeOf(i, choice);
      for (let spent = size; spent <= units; spent++) {
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
  if (costs[units] === Number.POSITIVE_INFINITY) return null;
  const chosen: number[] = [];
  let spent = units;
  for (let i = items.length - 1; i >= 0; i--) {
    const choice = picks[i]![spent]!;
    chosen.unshift(choice);
    spent -= sizeOf(i, choice);
  }
  return chosen;
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
