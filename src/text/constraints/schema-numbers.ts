/** Numbers of JSON schemas as grammars. */
import { InvalidArgumentError } from "../../errors.ts";
import { choice, type Node, rule, text } from "./grammar.ts";
import { integersBetween, multipleEnds, multiplesOf, numbersBetween, placesOf, WHOLE_MAX } from "./number-ranges.ts";
import { refused, type Schema } from "./schema-keywords.ts";
import type { SchemaScope } from "./schema-scope.ts";

const DIVISOR_MAX = 32;
/** Multiples within bounds are listed up to so many. */
const LISTED_MAX = 500;

/** A number or integer; null where there is none. */
export function numberOf(keywords: Schema, at: string, isInteger: boolean, scope: SchemaScope): Node | null {
  const given = (name: string): number | undefined => {
    const value = keywords[name];
    if (value === undefined || (typeof value === "number" && Number.isFinite(value)))
      return value as number | undefined;
    throw new InvalidArgumentError(`schema ${at}/${name}: expected a number but found ${JSON.stringify(value)}`);
  };
  const [minimum, above, maximum, below] = [
    ...[given("minimum"), given("exclusiveMinimum"), given("maximum"), given("exclusiveMaximum")],
  ];
  const low = Math.max(minimum ?? Number.NEGATIVE_INFINITY, above ?? Number.NEGATIVE_INFINITY);
  const high = Math.min(maximum ?? Number.POSITIVE_INFINITY, below ?? Number.POSITIVE_INFINITY);
  const bounds = { low, high, isLowOpen: above === low, isHighOpen: below === high };
  const isBounded = low !== Number.NEGATIVE_INFINITY || high !== Number.POSITIVE_INFINITY;
  const divisor = given("multipleOf");
  if (divisor !== undefined) return multiples(divisor, bounds, isBounded, isInteger, at, scope);
  if (!isBounded) return rule(isInteger ? "integer" : "number");
  if (isInteger) return whole(bounds);
  const places = [low, high].map(placesOf);
  if (places.some((count) => count === null)) throw refused(at, "a bound of so many digits");
  return numbersBetween(bounds, Math.max(...(places as number[])));
}

interface Bounded {
  readonly low: number;
  readonly high: number;
  readonly isLowOpen: boolean;
  readonly isHighOpen: boolean;
}

function whole({ low, high, isLowOpen, isHighOpen }: Bounded): Node | null {
  const from = isLowOpen && Number.isInteger(low) ? low + 1 : low;
  const to = isHighOpen && Number.isInteger(high) ? high - 1 : high;
  return integersBetween(from, to);
}

function multiples(
  divisor: number,
  bounds: Bounded,
  isBounded: boolean,
  isInteger: boolean,
  at: string,
  scope: SchemaScope,
): Node | null {
  if (!(divisor > 0))
    throw new InvalidArgumentError(`schema ${at}/multipleOf: expected a number above 0 but found ${divisor}`);
  if (isBounded) return listed(divisor, bounds, isInteger, at);
  if (divisor === 1) return rule("integer");
  if (!Number.isInteger(divisor)) {
    const places = placesOf(divisor);
    // Validators divide in floating point: what is written must be the nearest number to a multiple.
    if (isInteger || places === null || divisor !== Number(`1e-${places}`))
      throw refused(`${at}/multipleOf`, `the divisor ${divisor}`);
    throw refused(`${at}/multipleOf`, `the divisor ${divisor} without bounds`);
  }
  if (divisor > DIVISOR_MAX) throw refused(`${at}/multipleOf`, `a divisor above ${DIVISOR_MAX} without bounds`);
  const states = new Map<string, Node>();
  const state = (remainder: number, digits: number): Node => {
    const key = `${remainder} ${digits}`;
    const known = states.get(key) ?? scope.define(multipleEnds(divisor, remainder, digits, state));
    states.set(key, known);
    return known;
  };
  return multiplesOf(divisor, state);
}

/** Multiples within bounds, one by one. */
function listed(
  divisor: number,
  { low, high, isLowOpen, isHighOpen }: Bounded,
  isInteger: boolean,
  at: string,
): Node | null {
  const first = Math.max(Math.ceil(low / divisor), -WHOLE_MAX);
  const last = Math.min(Math.floor(high / divisor), WHOLE_MAX);
  if (!(last - first < LISTED_MAX))
    throw refused(`${at}/multipleOf`, `more than ${LISTED_MAX} multiples within bounds`);
  const texts: string[] = [];
  for (let n = first; n <= last; n++) {
    const value = n * divisor;
    const isWithin = (isLowOpen ? value > low : value >= low) && (isHighOpen ? value < high : value <= high);
    const isExact = Number.isInteger(value / divisor) && (!isInteger || Number.isInteger(value));
    if (isWithin && isExact && !/e/.test(String(value))) texts.push(JSON.stringify(value));
  }
  return texts.length === 0 ? null : choice(texts.map((value) => text(value)));
}
