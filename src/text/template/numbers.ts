/** Python's `int()` and `float()` of text and numbers. */
import { asFloat } from "./arithmetic.ts";
import { fault, typeError, valueError } from "./faults.ts";
import { chargeText } from "./limits.ts";
import { quote } from "./print.ts";
import { isSpace } from "./unicode.ts";
import { asInteger, Float, integer, isText, textOf, typeName, Undefined, type Value } from "./values.ts";

const PREFIXES: Readonly<Record<string, number>> = { "0b": 2, "0o": 8, "0x": 16 };
const FLOAT = /^[-+]?(?:(?:\d+(?:_\d+)*)(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:e[-+]?\d+(?:_\d+)*)?$/i;
const NAMED = /^([-+]?)(inf|infinity|nan)$/i;

/** The text trimmed of white space, with decimal digits of all scripts replaced by ASCII digits. */
function normalized(text: string): string {
  chargeText(text.length);
  let [start, end] = [0, text.length];
  while (start < end && isSpace(text[start]!)) start++;
  while (end > start && isSpace(text[end - 1]!)) end--;
  return text.slice(start, end).replace(/(?![0-9])\p{Nd}/gu, (digit) => {
    const code = digit.codePointAt(0)!;
    let first = code;
    while (/\p{Nd}/u.test(String.fromCodePoint(first - 1))) first--;
    return String((code - first) % 10);
  });
}

/** `int(text, base)`. */
export function parseInteger(text: string, base: number): number | bigint {
  const invalid = () => valueError(`invalid literal for int() with base ${base}: ${quote(text)}`);
  if (base !== 0 && (base < 2 || base > 36)) valueError("int() base must be >= 2 and <= 36, or 0");
  const match = /^([-+]?)(.*)$/s.exec(normalized(text).toLowerCase())!;
  let digits = match[2]!;
  const prefix = PREFIXES[digits.slice(0, 2)];
  const isPrefixed = prefix !== undefined && (base === 0 || base === prefix);
  if (isPrefixed) digits = digits.slice(2).replace(/^_/, "");
  const radix = base !== 0 ? base : (prefix ?? 10);
  if (!/^[\da-z]+(?:_[\da-z]+)*$/.test(digits)) return invalid();
  digits = digits.replaceAll("_", "");
  if (base === 0 && !isPrefixed && /^0+[1-9]/.test(digits)) return invalid();
  for (const digit of digits) if (Number.parseInt(digit, 36) >= radix) return invalid();
  if (digits.length > 4300 && (radix & (radix - 1)) !== 0)
    valueError(
      `Exceeds the limit (4300 digits) for integer string conversion: value has ${digits.length} digits; use sys.set_int_max_str_digits() to increase the limit`,
    );
  if (digits.length > 16384) fault("LimitError", "makes an integer of more than 16384 digits");
  let value = 0n;
  if (radix === 10) value = BigInt(digits);
  else for (const digit of digits) value = value * BigInt(radix) + BigInt(Number.parseInt(digit, 36));
  return integer(match[1] === "-" ? -value : value);
}

/** `int(value)`. */
export function toInteger(value: Value): number | bigint {
  if (isText(value)) return parseInteger(textOf(value), 10);
  if (value instanceof Float) {
    if (Number.isNaN(value.value)) valueError("cannot convert float NaN to integer");
    if (!Number.isFinite(value.value)) fault("OverflowError", "cannot convert float infinity to integer");
    return integer(BigInt(Math.trunc(value.value)));
  }
  if (value instanceof Undefined) value.fail();
  const number = asInteger(value);
  if (number === undefined)
    typeError(`int() argument must be a string, a bytes-like object or a real number, not '${typeName(value)}'`);
  return number;
}

/** `float(value)`. */
export function toFloat(value: Value): number {
  if (isText(value)) {
    const text = normalized(textOf(value));
    const named = NAMED.exec(text);
    if (named) return named[2]!.toLowerCase() === "nan" ? Number.NaN : named[1] === "-" ? -Infinity : Infinity;
    if (!FLOAT.test(text)) valueError(`could not convert string to float: ${quote(textOf(value))}`);
    return Number(text.replaceAll("_", ""));
  }
  if (value instanceof Undefined) value.fail();
  const number = value instanceof Float ? value : asInteger(value);
  if (number === undefined) typeError(`float() argument must be a string or a real number, not '${typeName(value)}'`);
  return asFloat(number);
}
