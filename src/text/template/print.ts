/** Values as Python prints them: `str()` and `repr()`. */
import { valueError } from "./faults.ts";
import { charge, chargeText, enter, leave } from "./limits.ts";
import { UNPRINTABLE } from "./unicode.ts";
import { Dict, DictView, Float, iterate, Markup, Namespace, Range, Tuple, Undefined, type Value } from "./values.ts";

/** `str(value)`. */
export function toText(value: Value): string {
  if (typeof value === "string") return value;
  if (value instanceof Undefined) return "";
  return value instanceof Markup ? value.text : represent(value);
}

/** `repr(value)`. */
export function represent(value: Value): string {
  charge();
  if (value === null) return "None";
  switch (typeof value) {
    case "string":
      return quote(value);
    case "boolean":
      return value ? "True" : "False";
    case "number":
      return String(value);
    case "bigint":
      return integerText(value);
  }
  if (value instanceof Float) return floatText(value.value);
  enter();
  const text = compound(value);
  leave();
  return text;
}

function compound(value: Exclude<Value, null | string | boolean | number | bigint>): string {
  if (Array.isArray(value)) return list("[", value, "]");
  if (value instanceof Tuple) return list("(", value.items, value.items.length === 1 ? ",)" : ")");
  if (value instanceof Dict) {
    const pairs: string[] = [];
    for (const [key, item] of value.entries()) pairs.push(`${represent(key)}: ${represent(item)}`);
    return joined("{", pairs, "}");
  }
  if (value instanceof DictView) return `${value.typeName}(${list("[", [...iterate(value)], "]")})`;
  if (value instanceof Undefined) return "Undefined";
  if (value instanceof Markup) return `Markup(${quote(value.text)})`;
  if (value instanceof Range) {
    const { start, stop, step } = value;
    return step === 1 ? `range(${start}, ${stop})` : `range(${start}, ${stop}, ${step})`;
  }
  return value instanceof Namespace ? `<Namespace ${represent(value.attributes)}>` : value.describe();
}

function list(open: string, items: readonly Value[], close: string): string {
  return joined(open, items.map(represent), close);
}

function joined(open: string, parts: readonly string[], close: string): string {
  let length = 2;
  for (const part of parts) length += part.length + 2;
  chargeText(length);
  return open + parts.join(", ") + close;
}

/** Text of an integer; ValueError above 4300 digits, as in Python, since printing takes quadratic time. */
export function integerText(value: bigint): string {
  // 4300 decimal digits take about 3571 hexadecimal ones, so that more than 3600 are surely too many.
  const hexadecimal = value.toString(16);
  const text = hexadecimal.length > 3600 ? "" : value.toString();
  if (text === "" || text.replace("-", "").length > 4300)
    valueError(
      "Exceeds the limit (4300 digits) for integer string conversion; use sys.set_int_max_str_digits() to increase the limit",
    );
  return text;
}

/** `repr` of a float: the shortest digits that read back the same, with an exponent from 1e16 and below 1e-4. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (Object.is(value, -0)) return "-0.0";
  const [mantissa, power] = value.toExponential().split("e") as [string, string];
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16)
    return `${mantissa}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  const sign = value < 0 ? "-" : "";
  const digits = mantissa.replace("-", "").replace(".", "");
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${sign}${whole}.${digits.slice(exponent + 1) || "0"}`;
}

const PLAIN = /^[ -&(-[\]-~]*$/;
const ESCAPES: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };

/** `repr` of a str. */
export function quote(text: string): string {
  chargeText(text.length);
  if (PLAIN.test(text)) return `'${text}'`;
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  let result = "";
  for (const character of text) {
    if (character === mark) result += `\\${mark}`;
    else result += ESCAPES[character] ?? (UNPRINTABLE.test(character) ? escapeOf(character) : character);
  }
  return mark + result + mark;
}

function escapeOf(character: string): string {
  const code = character.codePointAt(0)!;
  const hex = code.toString(16);
  if (code < 0x100) return `\\x${hex.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}
