/** Numbers between bounds as grammars of their digits. */
import { anyOf, choice, type Node, optional, repeat, sequence, text } from "./grammar.ts";

const digit = (from: number, to: number): Node => anyOf("0123456789".slice(from, to + 1));
const ANY_DIGIT = digit(0, 9);
/** Digits of the largest numbers that are written where there is no bound. */
const DIGITS_MAX = 15;
export const WHOLE_MAX = 10 ** DIGITS_MAX - 1;

/** Fixed-length digit sequences from `low` to `high`, which have as many digits, each a list of nodes. */
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

/** Digits of whole numbers from `low` to `high`, 0 or more, with at least `least` digits. */
function wholes(low: number, high: number, least = 1): Node[][] {
  const found: Node[][] = [];
  for (let length = least; length <= Math.max(least, String(high).length); length++) {
    const from = Math.max(low, length === least ? 0 : 10 ** (length - 1));
    const to = Math.min(high, 10 ** length - 1);
    if (from <= to) found.push(...between(String(from).padStart(length, "0"), String(to).padStart(length, "0")));
  }
  return found;
}

/** Whole numbers within bounds, both included; null where there is none. */
export function integersBetween(low: number, high: number): Node | null {
  const options: Node[] = [];
  const [from, to] = [Math.max(Math.ceil(low), -WHOLE_MAX), Math.min(Math.floor(high), WHOLE_MAX)];
  if (from > to) return null;
  if (from < 0) {
    const negative = wholes(Math.max(1, -Math.min(-1, to)), -from).map((digits) => sequence(text("-"), ...digits));
    options.push(...negative);
  }
  if (to >= 0) options.push(...wholes(Math.max(0, from), to).map((digits) => sequence(...digits)));
  return choice(options);
}

/** Bounds of numbers. */
export interface Bounds {
  readonly low: number;
  readonly high: number;
  readonly isLowOpen: boolean;
  readonly isHighOpen: boolean;
}

/** Digits behind the point that bounds may have. */
const PLACES_MAX = 6;

/** Digits behind the point of a bound; null for more than bounds may have, and for numbers too large. */
export function placesOf(value: number): number | null {
  if (!Number.isFinite(value)) return 0;
  for (let places = 0; places <= PLACES_MAX; places++) {
    const scaled = value * 10 ** places;
    if (Math.abs(scaled) <= WHOLE_MAX && Number(`${Math.round(scaled)}e-${places}`) === value) return places;
  }
  return null;
}

/** Numbers within bounds that have at most six places; null where there is none. `places` is the most of the two bounds. */
export function numbersBetween(bounds: Bounds, places: number): Node | null {
  const { low, high, isLowOpen, isHighOpen } = bounds;
  const options: Node[] = [];
  // Zero is neither.
  if (!(low > 0 || high < 0 || (low === 0 && isLowOpen) || (high === 0 && isHighOpen))) options.push(text("0"));
  if (high > 0) options.push(...positive(Math.max(0, low), high, isLowOpen || low <= 0, isHighOpen, places));
  if (low < 0) {
    const found = positive(Math.max(0, -high), -low, isHighOpen || high >= 0, isLowOpen, places);
    options.push(...found.map((node) => sequence(text("-"), node)));
  }
  return options.length === 0 ? null : choice(options);
}

/** Further places of which the last is not 0, so that the number is beyond the step that it begins with. */
const FURTHER_PLACES = sequence(repeat(ANY_DIGIT, 0, 8), digit(1, 9));

/** Positive numbers: those with all places of the bounds, more places behind, and whole numbers. */
function positive(low: number, high: number, isLowOpen: boolean, isHighOpen: boolean, places: number): Node[] {
  const scale = 10 ** places;
  const from = Math.round(low * scale);
  const to = high === Number.POSITIVE_INFINITY ? WHOLE_MAX : Math.min(WHOLE_MAX, Math.round(high * scale));
  const options: Node[] = [];
  const point = (digits: Node[], ...rest: Node[]) => {
    const head = digits.slice(0, digits.length - places);
    const tail = digits.slice(digits.length - places);
    return sequence(...head, ...(places > 0 || rest.length > 0 ? [text(".")] : []), ...tail, ...rest);
  };
  // From a step of the last place up to the next, its beginning left out.
  if (from < to) options.push(...wholes(from, to - 1, places + 1).map((digits) => point(digits, FURTHER_PLACES)));
  const first = isLowOpen ? from + 1 : from;
  const last = isHighOpen ? to - 1 : to;
  if (places > 0 && Math.max(1, first) <= last)
    options.push(...wholes(Math.max(1, first), last, places + 1).map((digits) => point(digits)));
  const wholeFrom = Math.max(1, Math.floor(low) === low && !isLowOpen ? low : Math.floor(low) + 1);
  const wholeTo = Math.min(WHOLE_MAX, Math.ceil(high) === high && !isHighOpen ? high : Math.ceil(high) - 1);
  if (wholeFrom <= wholeTo) options.push(...wholes(wholeFrom, wholeTo).map((digits) => sequence(...digits)));
  return options;
}

/** Digits of multiples at most. */
const MULTIPLE_DIGITS = 9;

/** Whole numbers that a divisor divides. `state` is what may follow digits, by the remainder of their number, and how many. */
export function multiplesOf(divisor: number, state: (remainder: number, digits: number) => Node): Node {
  const heads = Array.from({ length: 9 }, (_, i) =>
    sequence(text(String(i + 1)), state((i + 1) % divisor, MULTIPLE_DIGITS - 1)),
  );
  return choice([text("0"), sequence(optional(text("-")), choice(heads))]);
}

/** What may follow digits whose number has a remainder: so many more at most. */
export function multipleEnds(
  divisor: number,
  remainder: number,
  digits: number,
  state: (remainder: number, digits: number) => Node,
): Node {
  const options: Node[] = remainder === 0 ? [text("")] : [];
  for (let digit = 0; digit <= 9; digit++) {
    const next = (10 * remainder + digit) % divisor;
    if (digits > 1) options.push(sequence(text(String(digit)), state(next, digits - 1)));
    else if (next === 0) options.push(text(String(digit)));
  }
  return choice(options);
}
