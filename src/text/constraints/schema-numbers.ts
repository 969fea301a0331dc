/** Compiles numbers of JSON schemas to grammars. */
import { InvalidArgumentError } from "../../errors.ts";
import { compared, type Decimal, decimalOf, integerOf, leastMultiple, negated } from "./decimals.ts";
import { followed, type Node, relaxed, rule } from "./grammar.ts";
import { integersBetween } from "./number-ranges.ts";
import { type NumberForm, numberState } from "./number-states.ts";
import { Joined, type Schema } from "./schema-keywords.ts";

/** Grammar of a number or integer; null where none is valid. */
export function numberOf(keywords: Schema, at: string, isInteger: boolean): Node | null {
  const given = (name: string): number | null => {
    const value = keywords[name] ?? null;
    return value === null ? null : checkNumber(value, `${at}/${name}`);
  };
  const low = bound(given("minimum"), given("exclusiveMinimum"), isInteger, 1);
  const high = bound(given("maximum"), given("exclusiveMaximum"), isInteger, -1);
  const divisors = keywords.multipleOf === undefined ? [] : Joined.values(keywords.multipleOf);
  const step = divisors
    .map((divisor) => checkDivisor(divisor, `${at}/multipleOf`))
    .reduce<Decimal | null>((all, one) => (all ? leastMultiple(all, one) : one), null);
  if (!low && !high && !step) return rule(isInteger ? "integer" : "number");
  const form = step
    ? withinExact({ low, high, step: isInteger ? leastMultiple(step, ONE) : step, isInteger })
    : { low, high, step, isInteger };
  const state = numberState(form);
  return state && relaxed(followed(state), superset(form));
}

const ONE: Decimal = { digits: 1n, places: 0 };

const LARGEST_EXACT = integerOf(Number.MAX_SAFE_INTEGER);

/**
 * Limits multiples to the range in which doubles are exact, unless bounds ask for more: readers would see larger ones rounded.
 */
function withinExact(form: NumberForm): NumberForm {
  const { low, high } = form;
  const isLarge = [low, high && negated(high)].some((bound) => bound && compared(bound, LARGEST_EXACT) > 0);
  if (isLarge) return form;
  return { ...form, low: low ?? negated(LARGEST_EXACT), high: high ?? LARGEST_EXACT };
}

/** A looser form for the engine: integers of few digits within their bounds, any other number. */
function superset({ low, high, isInteger }: NumberForm): Node {
  if (!isInteger) return rule("number");
  return (low && high && integersBetween(low.digits, high.digits)) ?? rule("integer");
}

/**
 * The least (`sign` 1) or greatest (-1) number that two bounds allow; null without bounds. An exclusive bound becomes the next
 * double, since nearer decimals are read as the bound itself.
 */
function bound(closed: number | null, open: number | null, isInteger: boolean, sign: 1 | -1): Decimal | null {
  const read = (value: number) => (isInteger && Number.isInteger(value) ? integerOf(value) : decimalOf(value));
  const bounds = [
    closed === null ? null : whole(read(closed), isInteger, sign),
    open === null ? null : isInteger ? beyond(read(open), sign) : decimalOf(nextDouble(open, sign)),
  ].filter((one) => one !== null);
  const [first, second] = bounds;
  if (!first || !second) return first ?? null;
  return compared(first, second) * sign > 0 ? first : second;
}

/** The nearest integer that an inclusive bound allows. */
function whole(decimal: Decimal, isInteger: boolean, sign: 1 | -1): Decimal {
  const { digits, places } = decimal;
  if (!isInteger || places === 0) return decimal;
  const unit = 10n ** BigInt(places);
  const down = digits / unit - (digits % unit < 0n ? 1n : 0n);
  return { digits: sign > 0 && digits % unit !== 0n ? down + 1n : down, places: 0 };
}

/** The nearest integer beyond an exclusive bound. */
function beyond(decimal: Decimal, sign: 1 | -1): Decimal {
  const nearest = whole(decimal, true, sign);
  return compared(nearest, decimal) === 0 ? { digits: nearest.digits + BigInt(sign), places: 0 } : nearest;
}

/** The next double above (`sign` 1) or below (-1) a value. */
function nextDouble(value: number, sign: 1 | -1): number {
  if (value === 0) return sign * Number.MIN_VALUE;
  const bits = new BigInt64Array(1);
  const numbers = new Float64Array(bits.buffer);
  numbers[0] = value;
  bits[0]! += value > 0 === sign > 0 ? 1n : -1n;
  return numbers[0];
}

function checkNumber(value: unknown, at: string): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new InvalidArgumentError(`schema ${at}: expected a number but found ${JSON.stringify(value)}`);
}

function checkDivisor(value: unknown, at: string): Decimal {
  const divisor = checkNumber(value, at);
  if (divisor > 0) return decimalOf(divisor);
  throw new InvalidArgumentError(`schema ${at}: expected a number above 0 but found ${divisor}`);
}
