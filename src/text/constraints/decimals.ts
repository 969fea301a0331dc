/** Decimal numbers of any length. */

/** `digits` / 10^`places`. */
export interface Decimal {
  readonly digits: bigint;
  /** 0 or more. */
  readonly places: number;
}

const powers: bigint[] = [1n];

/** 10^`exponent`, from 0. */
export function powerOfTen(exponent: number): bigint {
  while (powers.length <= exponent) powers.push(10n * powers.at(-1)!);
  return powers[exponent]!;
}

/** The decimal that is written for a finite number: the shortest that is read as it. */
export function decimalOf(value: number): Decimal {
  const [, sign, whole, fraction = "", exponent = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value))!;
  return shifted({ digits: BigInt(`${sign}${whole}${fraction}`), places: fraction.length }, Number(exponent));
}

/** A whole number; one beyond 2^53 with all its digits, of which fewer may be written. */
export function integerOf(value: number): Decimal {
  return { digits: BigInt(value), places: 0 };
}

/** A decimal times 10^`exponent`. */
export function shifted({ digits, places }: Decimal, exponent: number): Decimal {
  return exponent <= places
    ? { digits, places: places - exponent }
    : { digits: digits * powerOfTen(exponent - places), places: 0 };
}

/** A decimal times 10^`places`, which are no fewer than its own. */
export function scaled({ digits, places: own }: Decimal, places: number): bigint {
  return digits * powerOfTen(places - own);
}

/** Below 0, 0 or above, as `a` is to `b`. */
export function compared(a: Decimal, b: Decimal): number {
  const places = Math.max(a.places, b.places);
  const [one, other] = [scaled(a, places), scaled(b, places)];
  return one < other ? -1 : one > other ? 1 : 0;
}

export function negated({ digits, places }: Decimal): Decimal {
  return { digits: -digits, places };
}

/** The least number that two above 0 divide. */
export function leastMultiple(a: Decimal, b: Decimal): Decimal {
  const places = Math.max(a.places, b.places);
  return { digits: commonMultiple(scaled(a, places), scaled(b, places)), places };
}

export function commonMultiple(a: bigint, b: bigint): bigint {
  let [greatest, rest] = [a, b];
  while (rest !== 0n) [greatest, rest] = [rest, greatest % rest];
  return (a / greatest) * b;
}
