/** `text % values`: printf-style formatting. */

import { escapeHtml } from "./escape-html.ts";
import { fault, typeError, valueError } from "./faults.ts";
import { floatDigits } from "./float-format.ts";
import { chargeText, checkLength } from "./limits.ts";
import { integerText, quote, represent, toText } from "./print.ts";
import {
  asInteger,
  Dict,
  Float,
  isText,
  Markup,
  Range,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

const CONVERSION =
  /%(?:\((?<key>(?:[^()]|\([^()]*\))*)\))?(?<flags>[-+ #0]*)(?<width>\*|\d*)(?:\.(?<precision>\*|\d*))?[hlL]?(?<type>.?)/sy;

export function formatPercent(format: string | Markup, values: Value): string | Markup {
  if (format instanceof Markup) return new Markup(new PercentFormatter(format.text, escaped(values)).run());
  return new PercentFormatter(format, values).run();
}

/** Markup escapes the texts that are put into it. */
function escaped(value: Value): Value {
  if (value instanceof Tuple) return new Tuple(value.items.map(escaped));
  if (value instanceof Dict) {
    const copy = new Dict();
    for (const [key, item] of value.entries()) copy.set(key, escaped(item));
    return copy;
  }
  return typeof value === "string" ? escapeHtml(value) : value;
}

class PercentFormatter {
  readonly #format: string;
  readonly #values: Value;
  readonly #items: readonly Value[];
  #used = 0;

  constructor(format: string, values: Value) {
    this.#format = format;
    this.#values = values;
    this.#items = values instanceof Tuple ? values.items : [values];
  }

  run(): string {
    const format = this.#format;
    chargeText(format.length);
    let result = "";
    let done = 0;
    for (let at = format.indexOf("%"); at !== -1; at = format.indexOf("%", done)) {
      result += format.slice(done, at);
      CONVERSION.lastIndex = at;
      const match = CONVERSION.exec(format);
      if (!match) fault("ValueError", "incomplete format key");
      result += this.#convert(match);
      checkLength(result.length);
      done = CONVERSION.lastIndex;
      CONVERSION.lastIndex = done;
    }
    if (this.#used < this.#items.length && !this.#isMapping())
      typeError("not all arguments converted during string formatting");
    return result + format.slice(done);
  }

  #isMapping(): boolean {
    const values = this.#values;
    return values instanceof Dict || Array.isArray(values) || values instanceof Undefined || values instanceof Range;
  }

  #next(): Value {
    if (this.#used >= this.#items.length) typeError("not enough arguments for format string");
    return this.#items[this.#used++]!;
  }

  #count(text: string | undefined): number | undefined {
    if (text === undefined) return undefined;
    if (text !== "*") return Number(text);
    const value = this.#next();
    if (typeof value !== "number") typeError("* wants int");
    return value;
  }

  #convert(match: RegExpExecArray): string {
    const { key, flags: written, width: widthText, precision: precisionText, type } = match.groups!;
    if (type === "") valueError("incomplete format");
    if (type === "%" && match[0] === "%%") return "%";
    let flags = written!;
    let keyed: Value | undefined;
    if (key !== undefined) {
      if (!(this.#values instanceof Dict)) typeError("format requires a mapping");
      keyed = this.#values.get(key);
      if (keyed === undefined) fault("KeyError", quote(key));
      this.#used = this.#items.length;
    }
    let width = widthText ? this.#count(widthText)! : 0;
    const precision = this.#count(precisionText);
    if (width < 0) {
      flags += "-";
      width = -width;
    }
    chargeText(width);
    if (type === "%") return "%";
    const value = keyed === undefined ? this.#next() : keyed;
    return pad(this.#text(value, type!, flags, precision, match), flags, width, "diouxXeEfFgG".includes(type!));
  }

  #text(value: Value, type: string, flags: string, precision: number | undefined, match: RegExpExecArray): string {
    if (type === "s" || type === "r" || type === "a") {
      let text = type === "s" ? toText(value) : represent(value);
      if (type === "a") text = text.replace(/[^\0-\x7f]/gu, asciiEscape);
      return precision === undefined ? text : Array.from(text).slice(0, precision).join("");
    }
    if (type === "c") return characterOf(value);
    if ("diuoxX".includes(type)) return integerDigits(value, type, flags, precision ?? 0);
    if ("eEfFgG".includes(type)) return floatWithSign(value, type, flags, precision ?? 6);
    const at = match.index + match[0].length - 1;
    valueError(`unsupported format character '${type}' (0x${type.codePointAt(0)!.toString(16)}) at index ${at}`);
  }
}

export function asciiEscape(character: string): string {
  const code = character.codePointAt(0)!;
  const hex = code.toString(16);
  if (code < 0x100) return `\\x${hex.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}

function characterOf(value: Value): string {
  if (isText(value) && Array.from(textOf(value)).length === 1) return textOf(value);
  const code = asInteger(value);
  if (code === undefined) typeError("%c requires int or char");
  if (code < 0 || code > 0x10ffff) fault("OverflowError", "%c arg not in range(0x110000)");
  return String.fromCodePoint(Number(code));
}

function signOf(isNegative: boolean, flags: string): string {
  if (isNegative) return "-";
  return flags.includes("+") ? "+" : flags.includes(" ") ? " " : "";
}

function integerDigits(value: Value, type: string, flags: string, precision: number): string {
  let number = asInteger(value);
  if (number === undefined && value instanceof Float && "diu".includes(type)) {
    if (!Number.isFinite(value.value))
      fault(Number.isNaN(value.value) ? "ValueError" : "OverflowError", "cannot convert float to integer");
    number = BigInt(Math.trunc(value.value));
  }
  if (number === undefined) {
    const kind = "diu".includes(type) ? "a real number is required" : "an integer is required";
    typeError(`%${type} format: ${kind}, not ${typeName(value)}`);
  }
  const absolute = number < 0 ? -BigInt(number) : BigInt(number);
  const base = { o: 8, x: 16, X: 16 }[type];
  let digits = base ? absolute.toString(base) : integerText(absolute);
  chargeText(precision);
  digits = digits.padStart(precision, "0");
  if (base && flags.includes("#")) digits = `0${type}${digits}`;
  if (type === "X") digits = digits.toUpperCase();
  return signOf(number < 0, flags) + digits;
}

function floatWithSign(value: Value, type: string, flags: string, precision: number): string {
  const integer = asInteger(value);
  if (integer === undefined && !(value instanceof Float)) {
    if (value instanceof Undefined) value.fail();
    typeError(`must be real number, not ${typeName(value)}`);
  }
  const number = value instanceof Float ? value.value : Number(integer);
  if (!Number.isFinite(number) && !(value instanceof Float))
    fault("OverflowError", "int too large to convert to float");
  const digits = floatDigits(number, type.toLowerCase(), precision, flags.includes("#"));
  const isNegative = number < 0 || Object.is(number, -0);
  return signOf(isNegative, flags) + (type === type.toLowerCase() ? digits : digits.toUpperCase());
}

function pad(text: string, flags: string, width: number, isNumber: boolean): string {
  const missing = width - Array.from(text).length;
  if (missing <= 0) return text;
  if (flags.includes("-")) return text + " ".repeat(missing);
  if (!isNumber || !flags.includes("0")) return " ".repeat(missing) + text;
  const start = /^[-+ ]?(?:0[xXo])?/.exec(text)![0].length;
  return text.slice(0, start) + "0".repeat(missing) + text.slice(start);
}
