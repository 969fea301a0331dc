/** Floats to decimal digits with exact rounding, half to even, as C's printf and Python's round have it. */
import { chargeText } from "./limits.ts";

/** More digits after the point than these are zeros: 2 ** -1074 has as many. */
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

/** Digits of |value| with `digits` of them after the point. */
export function fixedText(value: number, digits: number): string {
  chargeText(digits);
  const kept = Math.min(digits, DIGITS_MAX);
  const text = scaled(value, kept)
    .toString()
    .padStart(kept + 1, "0");
  const fraction = text.slice(text.length - kept).padEnd(digits, "0");
  return digits === 0 ? text : `${text.slice(0, text.length - kept)}.${fraction}`;
}

/** |value| rounded to `digits` + 1 significant digits, and the power of ten of the first. */
function significant(value: number, digits: number): { text: string; exponent: number } {
  chargeText(digits);
  const kept = Math.min(digits, DIGITS_MAX);
  if (value === 0) return { text: "0".repeat(digits + 1), exponent: 0 };
  let exponent = Number(Math.abs(value).toExponential().split("e")[1]);
  let text = scaled(value, kept - exponent).toString();
  // The shortest digits may have been rounded up to a power of ten that the value does not reach, or rounding reaches it here.
  if (text.length !== kept + 1) {
    exponent += text.length > kept + 1 ? 1 : -1;
    text = scaled(value, kept - exponent).toString();
  }
  return { text: text.padEnd(digits + 1, "0"), exponent };
}

function exponentText(text: string, exponent: number): string {
  const mantissa = text.length > 1 ? `${text[0]}.${text.slice(1)}` : text;
  return `${mantissa}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

/** Digits of |value| in the form `type`, one of "e", "f" and "g"; `alternate` keeps the zeros and the point of "g". */
export function floatDigits(value: number, type: string, precision: number, alternate: boolean): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : "inf";
  if (type === "f") return fixedText(value, precision) + (alternate && precision === 0 ? "." : "");
  if (type === "e") {
    const { text, exponent } = significant(value, precision);
    return exponentText(text, exponent).replace(/^(\d)e/, alternate ? "$1.e" : "$1e");
  }
  const count = precision === 0 ? 1 : precision;
  const { text, exponent } = significant(value, count - 1);
  const isFixed = exponent >= -4 && exponent < count;
  const full = isFixed ? fixedText(value, count - 1 - exponent) : exponentText(text, exponent);
  return alternate || !full.includes(".") ? full : full.replace(/\.?0*(?=e|$)/, "");
}

/** `round(value, digits)`. */
export function roundTo(value: number, digits: number): number {
  if (!Number.isFinite(value) || digits > 400) return value;
  if (digits < -400) return 0 * value;
  const text = digits > 0 ? fixedText(value, digits) : `${scaled(value, digits)}e${-digits}`;
  return Number(value < 0 || Object.is(value, -0) ? `-${text}` : text);
}

/** Groups of `size` digits, up to the point or exponent. */
export function grouped(digits: string, separator: string, size = 3): string {
  const whole = /^[\da-fA-F]*/.exec(digits)![0];
  const groups: string[] = [];
  for (let end = whole.length; end > 0; end -= size) groups.push(whole.slice(Math.max(0, end - size), end));
  return groups.reverse().join(separator) + digits.slice(whole.length);
}
