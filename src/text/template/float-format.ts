/** Rounds floats exactly to decimal digits, half to even, as Python's round does. */
import { chargeText } from "./limits.ts";

/** Most digits after the point that can be other than 0: 2 ** -1074 has 1074. */
const DIGITS_MAX = 1100;

/** A finite float as m * 2 ** e. */
function decompose(value: number): { mantissa: bigint; exponent: number } {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, Math.abs(value));
  const raw = view.getBigUint64(0);
  const fraction = raw & 0xfffffffffffffn;
  const biased = Number(raw >> 52n);
  return biased === 0
    ? { mantissa: fraction, exponent: -1074 }
    : { mantissa: fraction | 0x10000000000000n, exponent: biased - 1075 };
}

/** |value| * 10 ** digits, rounded to an integer. */
function scaled(value: number, digits: number): bigint {
  const { mantissa, exponent } = decompose(value);
  const numerator = (mantissa * 10n ** BigInt(Math.max(0, digits))) << BigInt(Math.max(0, exponent));
  const denominator = (10n ** BigInt(Math.max(0, -digits))) << BigInt(Math.max(0, -exponent));
  const whole = numerator / denominator;
  const twice = (numerator - whole * denominator) * 2n;
  return twice > denominator || (twice === denominator && whole % 2n === 1n) ? whole + 1n : whole;
}

/** Text of |value| with `digits` digits after the point. */
function fixedText(value: number, digits: number): string {
  chargeText(digits);
  const kept = Math.min(digits, DIGITS_MAX);
  const text = scaled(value, kept)
    .toString()
    .padStart(kept + 1, "0");
  const fraction = text.slice(text.length - kept).padEnd(digits, "0");
  return digits === 0 ? text : `${text.slice(0, text.length - kept)}.${fraction}`;
}

/** `round(value, digits)`. */
export function roundTo(value: number, digits: number): number {
  if (!Number.isFinite(value) || digits > 400) return value;
  if (digits < -400) return 0 * value;
  const text = digits > 0 ? fixedText(value, digits) : `${scaled(value, digits)}e${-digits}`;
  return Number(value < 0 || Object.is(value, -0) ? `-${text}` : text);
}
