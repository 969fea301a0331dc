/** Grammars of the digits of integers between bounds. */
import { anyOf, choice, type Node, sequence, text } from "./grammar.ts";

const digit = (from: number, to: number): Node => anyOf("0123456789".slice(from, to + 1));
const ANY_DIGIT = digit(0, 9);
/** Most digits of a bound. */
const DIGITS_MAX = 15;

/** Alternatives of digit classes for the numbers from `low` to `high`, which have equally many digits. */
function between(low: string, high: string): Node[][] {
  if (low === "") return [[]];
  const [a, b] = [Number(low[0]), Number(high[0])];
  const rest = low.length - 1;
  if (rest === 0) return [[digit(a, b)]];
  const [tailLow, tailHigh] = [low.slice(1), high.slice(1)];
  const free: Node[] = Array.from({ length: rest }, () => ANY_DIGIT);
  if (a === b) return between(tailLow, tailHigh).map((tail) => [digit(a, a), ...tail]);
  const isFullLow = /^0*$/.test(tailLow);
  const isFullHigh = /^9*$/.test(tailHigh);
  const first = isFullLow ? a : a + 1;
  const last = isFullHigh ? b : b - 1;
  return [
    ...(isFullLow ? [] : between(tailLow, "9".repeat(rest)).map((tail) => [digit(a, a), ...tail])),
    ...(first <= last ? [[digit(first, last), ...free]] : []),
    ...(isFullHigh ? [] : between("0".repeat(rest), tailHigh).map((tail) => [digit(b, b), ...tail])),
  ];
}

/** Alternatives of digit classes for the numbers from `low` to `high`, which are 0 or more. */
function wholes(low: number, high: number): Node[][] {
  const found: Node[][] = [];
  for (let length = 1; length <= String(high).length; length++) {
    const from = Math.max(low, length === 1 ? 0 : 10 ** (length - 1));
    const to = Math.min(high, 10 ** length - 1);
    if (from <= to) found.push(...between(String(from), String(to)));
  }
  return found;
}

/**
 * Grammar of the integers from `low` to `high`, both included; null where there is none, and for bounds of more than 15 digits.
 */
export function integersBetween(low: bigint, high: bigint): Node | null {
  const [from, to] = [Number(low), Number(high)];
  if (from > to || Math.max(-from, to) >= 10 ** DIGITS_MAX) return null;
  const options: Node[] = [];
  if (from < 0)
    for (const digits of wholes(Math.max(1, -Math.min(-1, to)), -from)) options.push(sequence(text("-"), ...digits));
  if (to >= 0) options.push(...wholes(Math.max(0, from), to).map((digits) => sequence(...digits)));
  return choice(options);
}
