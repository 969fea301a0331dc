/** Exact decimal numbers of any length. */

/** The number `digits` / 10^`places`. */
export interface Decimal {
  readonly digits: bigint;
  /** 0 or more. */
  readonly places: number;
}

const powers: bigint[] = [1n];

/** 10^`exponent`; the exponent is 0 or more. */
export function powerOfTen(exponent: number): bigint {
  while (powers.length <= exponent) powers.push(10n * powers.at(-1)!);
  return powers[exponent]!;
}

/** The shortest decimal that parses to a finite number. */
export function decimalOf(value: number): Decimal {
  const [, sign, whole, fraction = "", exponent = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value))!;
  return shifted({ digits: BigInt(`${sign}${whole}${fraction}`), places: fraction.length }, Number(exponent));
}

/** All digits of an integer, also beyond 2^53, where JavaScript prints fewer. */
export function integerOf(value: number): Decimal {
  return { digits: BigInt(value), places: 0 };
}

/** A decimal times 10^`exponent`. */
export function shifted({ digits, places }: Decimal, exponent: number): Decimal {
  return exponent <= places
    ? { digits, places: places - exponent }
    : { digits: digits * powerOfTen(exponent - places), places: 0 };
}

/** The integer `decimal` * 10^`places`; `places` is at least the decimal's own. */
export function scaled({ digits, places: own }: Decimal, places: number): bigint {
  return digits * powerOfTen(places - own);
}

/** Negative, 0 or positive as `a` is less than, equal to or greater than `b`. */
export function compared(a: Decimal, b: Decimal): number {
  const places = Math.max(a.places, b.places);
  const [one, other] = [scaled(a, places), scaled(b, places)];
  return one < other ? -1 : one > other ? 1 : 0;
}

export function negated({ digits, places }: Decimal): Decimal {
  return { digits: -digits, places };
}

/** Least common multiple of two positive numbers. */
export function leastMultiple(a: Decimal, b: Decimal): Decimal {
  const places = Math.max(a.places, b.places);
  return { digits: commonMultiple(scaled(a, places), scaled(b, places)), places };
}

export function commonMultiple(a: bigint, b: bigint): bigint {
  let [greatest, rest] = [a, b];
  while (rest !== 0n) [greatest, rest] = [rest, greatest % rest];
  return (a / greatest) * b;
}
