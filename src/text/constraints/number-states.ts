/** States of texts of numbers within bounds, or of multiples, followed digit by digit. */
import { commonMultiple, compared, type Decimal, decimalOf, negated, powerOfTen, scaled, shifted } from "./decimals.ts";
import type { State, StateLeaf } from "./states.ts";

/** A set of numbers. */
export interface NumberForm {
  /** Bounds, both included; null for none. */
  readonly low: Decimal | null;
  readonly high: Decimal | null;
  /** Numbers are multiples of this; null for any number. */
  readonly step: Decimal | null;
  /** Whether numbers are integers, written in digits alone. */
  readonly isInteger: boolean;
}

/** Most digits before the point, where bounds have no more. */
const WHOLE_DIGITS = 64;
/** Most digits after the point, without and with an exponent: no double is printed with more. */
const PLACES_MAX = 30;
const SCIENTIFIC_PLACES_MAX = 17;
const EXPONENT_DIGITS_MAX = 3;
const LARGEST = decimalOf(Number.MAX_VALUE);
const LEAST = decimalOf(Number.MIN_VALUE);
const LEAST_EXPONENT = -324;
const LARGEST_EXPONENT = 308;
const ZERO: Decimal = { digits: 0n, places: 0 };

/** The beginning of a number. */
interface Prefix {
  readonly isNegative: boolean;
  /** Digits before the point. */
  readonly whole: string;
  /** Digits after the point; null before the point. */
  readonly fraction: string | null;
  /** Sign and digits of the exponent; null before it. */
  readonly exponent: string | null;
  /** Value of `whole` and `fraction`, without sign and exponent. */
  readonly value: Decimal;
}

function prefixOf(text: string): Prefix {
  const [, sign, whole, , fraction, , exponent] = /^(-?)(\d*)(\.(\d*))?([eE]([+-]?\d*))?$/.exec(text)!;
  const digits = BigInt(`0${whole}${fraction ?? ""}`);
  return {
    ...{ isNegative: sign === "-", whole: whole!, fraction: fraction ?? null, exponent: exponent ?? null },
    value: { digits, places: fraction?.length ?? 0 },
  };
}

/** Absolute values of the allowed numbers of one sign, first and last. */
interface Magnitudes {
  readonly first: Decimal;
  readonly last: Decimal;
}

const larger = (a: Decimal, b: Decimal): Decimal => (compared(a, b) < 0 ? b : a);
const smaller = (a: Decimal, b: Decimal): Decimal => (compared(a, b) < 0 ? a : b);

class NumberTexts {
  readonly #form: NumberForm;
  /** Whether any number is allowed, however it is written. */
  readonly #isFree: boolean;
  /** Null where no number of the sign is allowed. */
  readonly #positive: Magnitudes | null;
  readonly #negative: Magnitudes | null;
  readonly #states = new Map<string, State | null>();
  readonly #wholeDigits: number;

  constructor(form: NumberForm) {
    const { low, high, step, isInteger } = form;
    this.#form = form;
    this.#wholeDigits = Math.max(WHOLE_DIGITS, ...[low, high, step].map((one) => (one ? sizeOf(one) + 2 : 0)));
    this.#isFree = !low && !high && !step && !isInteger;
    const of = (from: Decimal | null, to: Decimal | null, least: Decimal): Magnitudes | null => {
      const magnitudes = { first: larger(from ?? ZERO, least), last: smaller(to ?? LARGEST, LARGEST) };
      return compared(magnitudes.first, magnitudes.last) > 0 ? null : magnitudes;
    };
    this.#positive = of(low, high, ZERO);
    // The integer 0 is written without a sign.
    this.#negative = of(high && negated(high), low && negated(low), isInteger ? { digits: 1n, places: 0 } : ZERO);
  }

  state(text: string): State | null {
    const known = this.#states.get(text);
    if (known !== undefined) return known;
    const prefix = prefixOf(text);
    const state = this.#isLive(prefix) ? this.#made(text, prefix) : null;
    this.#states.set(text, state);
    return state;
  }

  #made(text: string, prefix: Prefix): State {
    const leavesOf = () => this.#leaves(text, prefix);
    let leaves: StateLeaf[] | null = null;
    return {
      canEnd: this.#canEnd(prefix),
      get leaves() {
        leaves ??= leavesOf();
        return leaves;
      },
    };
  }

  #leaves(text: string, prefix: Prefix): StateLeaf[] {
    return [...this.#following(prefix)].flatMap((character): StateLeaf[] => {
      const next = this.state(text + character);
      const point = character.charCodeAt(0);
      return next ? [{ ranges: [[point, point]], next }] : [];
    });
  }

  /** Characters that may continue this beginning in some number, allowed or not. */
  #following({ whole, fraction, exponent, isNegative }: Prefix): string {
    const digits = "0123456789";
    if (exponent !== null) {
      const own = exponent.replace(/^[+-]/, "");
      return (exponent === "" ? "+-" : "") + (own.length < EXPONENT_DIGITS_MAX ? digits : "");
    }
    if (whole === "") return isNegative ? digits : `-${digits}`;
    const ends = this.#hasExponent(whole, fraction) ? "eE" : "";
    if (fraction !== null) return (fraction.length < PLACES_MAX ? digits : "") + (fraction === "" ? "" : ends);
    const more = whole === "0" || whole.length >= this.#wholeDigits ? "" : digits;
    return this.#form.isInteger ? more : `${more}.${ends}`;
  }

  /**
   * Whether an exponent may follow. With bounds, only in the usual form: after a single digit that is not 0, with a fraction.
   */
  #hasExponent(whole: string, fraction: string | null): boolean {
    const isShort = (fraction?.length ?? 0) <= SCIENTIFIC_PLACES_MAX;
    return this.#isFree || (isShort && !this.#form.isInteger && /^[1-9]$/.test(whole));
  }

  #magnitudes({ isNegative }: Prefix): Magnitudes | null {
    return isNegative ? this.#negative : this.#positive;
  }

  #canEnd(prefix: Prefix): boolean {
    const { whole, fraction, exponent, value } = prefix;
    if (whole === "" || fraction === "" || (exponent !== null && !/\d$/.test(exponent))) return false;
    const number = shifted(value, Number(exponent ?? 0));
    return this.#has(this.#magnitudes(prefix), number, number, number.places);
  }

  /** Whether some allowed number begins with this. */
  #isLive(prefix: Prefix): boolean {
    const { whole, fraction, exponent } = prefix;
    if (whole === "") return this.#isLiveSign(prefix);
    const magnitudes = this.#magnitudes(prefix);
    if (!magnitudes) return false;
    if (exponent !== null) return this.#isLiveExponent(prefix, magnitudes, exponent);
    if (this.#isLivePlain(prefix, magnitudes)) return true;
    return this.#hasExponent(whole, fraction) && this.#isLiveBefore(prefix, magnitudes);
  }

  #isLiveSign(prefix: Prefix): boolean {
    const sign = prefix.isNegative ? "-" : "";
    const starts = [..."0123456789"].map((digit) => sign + digit);
    return starts.some((start) => this.state(start)) || (sign === "" && this.state("-") !== null);
  }

  /** Whether digits alone can complete this to an allowed number. */
  #isLivePlain({ whole, fraction, value }: Prefix, magnitudes: Magnitudes): boolean {
    const places = this.#form.isInteger ? 0 : PLACES_MAX;
    const last = whole === "0" || fraction !== null ? 0 : this.#wholeDigits - whole.length;
    for (let more = 0; more <= last; more++) {
      const first = shifted(value, more);
      if (compared(first, magnitudes.last) > 0) return false;
      if (this.#has(magnitudes, first, lastOf(value, more, places), places)) return true;
    }
    return false;
  }

  /** Whether digits and an exponent can complete this to an allowed number. */
  #isLiveBefore({ value }: Prefix, magnitudes: Magnitudes): boolean {
    const largest = Math.min(LARGEST_EXPONENT, sizeOf(magnitudes.last) - sizeOf(value) + 1);
    for (let exponent = largest; exponent >= LEAST_EXPONENT; exponent--) {
      const first = shifted(value, exponent);
      if (compared(first, magnitudes.last) > 0) continue;
      const places = SCIENTIFIC_PLACES_MAX - exponent;
      const last = lastOf(value, exponent, places);
      if (compared(last, magnitudes.first) < 0) return false;
      if (this.#has(magnitudes, first, last, places)) return true;
    }
    return false;
  }

  #isLiveExponent({ value }: Prefix, magnitudes: Magnitudes, exponent: string): boolean {
    const [, sign, digits] = /^([+-]?)(\d*)$/.exec(exponent)!;
    const size = sizeOf(value);
    const [least, most] = [sizeOf(larger(magnitudes.first, LEAST)) - size, sizeOf(magnitudes.last) - size];
    const signs = sign === "" && digits === "" ? [1, -1] : [sign === "-" ? -1 : 1];
    for (let more = 0; digits!.length + more <= EXPONENT_DIGITS_MAX; more++) {
      if (digits === "" && more === 0) continue;
      const first = Number(digits) * 10 ** more;
      for (let power = first; power < first + 10 ** more; power++)
        for (const one of signs) {
          // 0 stays 0 with any exponent.
          if (value.digits !== 0n && (one * power < least || one * power > most)) continue;
          const number = shifted(value, one * power);
          if (this.#has(magnitudes, number, number, number.places)) return true;
        }
    }
    return false;
  }

  /** Whether some multiple of 10^-`places` from `first` to `last` is allowed; `places` may be negative. */
  #has(magnitudes: Magnitudes | null, first: Decimal, last: Decimal, places: number): boolean {
    if (!magnitudes) return false;
    const from = larger(first, magnitudes.first);
    const to = smaller(last, magnitudes.last);
    if (compared(from, to) > 0) return false;
    if (from.digits === 0n) return true;
    // Smaller numbers are read as 0 by a double.
    const start = larger(from, LEAST);
    const { step } = this.#form;
    const scale = Math.max(places, start.places, to.places, step?.places ?? 0);
    const grid = powerOfTen(scale - places);
    const unit = step ? commonMultiple(grid, scaled(step, scale)) : grid;
    const lowest = scaled(start, scale);
    return ((lowest + unit - 1n) / unit) * unit <= scaled(to, scale);
  }
}

/** The largest number with `places` decimal places that begins with the digits of a decimal times 10^`exponent`. */
function lastOf({ digits, places: own }: Decimal, exponent: number, places: number): Decimal {
  const next = shifted({ digits: digits + 1n, places: own }, exponent);
  const scale = Math.max(next.places, places);
  return { digits: scaled(next, scale) - powerOfTen(scale - places), places: scale };
}

/** Number of digits before the point; negative: the number of zeros after it. */
function sizeOf({ digits, places }: Decimal): number {
  return String(digits).length - places;
}

/** The start state of the numbers of a form; null where there is none. */
export function numberState(form: NumberForm): State | null {
  return new NumberTexts(form).state("");
}
