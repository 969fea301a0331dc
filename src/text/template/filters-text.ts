/** Jinja's filters of texts and numbers. */
import { add, asFloat, negate, power } from "./arithmetic.ts";
import { fault, isFault, typeError } from "./faults.ts";
import { roundTo } from "./float-format.ts";
import { chargeText } from "./limits.ts";
import { parseInteger, toFloat, toInteger } from "./numbers.ts";
import { toText } from "./print.ts";
import { bind, type Signature, signature } from "./signature.ts";
import { capitalize, STRING_METHODS, transformed } from "./string-methods.ts";
import { replaceText, splitLines, strip } from "./text-parts.ts";
import { WHITE_SPACE } from "./unicode.ts";
import {
  asIndex,
  asInteger,
  Float,
  integer,
  isText,
  isTrue,
  Markup,
  NO_KEYWORDS,
  textOf,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** Applies `change` to the value's text; Markup stays Markup. */
function onText(value: Value, change: (text: string) => string): Value {
  return value instanceof Markup ? new Markup(change(value.text)) : change(toText(value));
}

/** Text of a value that must be a str, since Jinja calls its method. */
function textArgument(value: Value, method: string): string {
  if (isText(value)) return textOf(value);
  if (value instanceof Undefined) value.fail();
  fault("AttributeError", `'${typeName(value)}' object has no attribute '${method}'`);
}

const TITLE_WORD = new RegExp(`[^-${WHITE_SPACE}({[<]+`, "gu");

/** Title case; words begin after white space, hyphens and opening brackets. */
function titleFilter(text: string): string {
  return text.replace(TITLE_WORD, (word) => {
    const first = String.fromCodePoint(word.codePointAt(0)!);
    return first.toUpperCase() + word.slice(first.length).toLowerCase();
  });
}

function indent(value: Value, width: Value = 4, first: Value = false, blank: Value = false): Value {
  const indention = isText(width) ? textOf(width) : " ".repeat(checkedWidth(width));
  const text = textArgument(add(value, "\n"), "splitlines");
  const lines = splitLines(text);
  const result = lines.map((line, i) => {
    const isIndented = i === 0 ? isTrue(first) : isTrue(blank) || line !== "";
    return isIndented ? indention + line : line;
  });
  let length = 0;
  for (const line of result) length += line.length + 1;
  chargeText(length);
  const joined = result.join("\n");
  return value instanceof Markup ? new Markup(joined) : joined;
}

function checkedWidth(width: Value): number {
  const count = Math.max(0, asIndex(width));
  chargeText(count);
  return count;
}

function toIntegerOr(value: Value, fallback: Value = 0, base: Value = 10): Value {
  try {
    return isText(value) ? parseInteger(textOf(value), asIndex(base)) : toInteger(value);
  } catch (cause) {
    if (!isFault(cause, "TypeError", "ValueError")) throw cause;
  }
  try {
    return toInteger(new Float(toFloat(value)));
  } catch (cause) {
    if (!isFault(cause, "TypeError", "ValueError", "OverflowError")) throw cause;
    return fallback;
  }
}

function toFloatOr(value: Value, fallback: Value = new Float(0)): Value {
  try {
    return new Float(toFloat(value));
  } catch (cause) {
    if (!isFault(cause, "TypeError", "ValueError")) throw cause;
    return fallback;
  }
}

function numberArgument(value: Value, use: string): number | bigint | Float {
  if (value instanceof Float) return value;
  const number = asInteger(value);
  if (number !== undefined) return number;
  if (value instanceof Undefined) value.fail();
  typeError(use.replace("{}", typeName(value)));
}

function round(value: Value, precision: Value = 0, method: Value = "common"): Value {
  const how = isText(method) ? textOf(method) : "";
  if (!["common", "ceil", "floor"].includes(how)) fault("FilterArgumentError", "method must be common, ceil or floor");
  if (how === "common") {
    const digits = asIndex(precision);
    if (value instanceof Undefined) typeError("type Undefined doesn't define __round__ method");
    const number = numberArgument(value, "type {} doesn't define __round__ method");
    return number instanceof Float ? new Float(roundTo(number.value, digits)) : roundInteger(number, digits);
  }
  const scale = power(10, precision);
  const [number, by] = [numberArgument(value, "must be real number, not {}"), scale as number | bigint | Float];
  if (!(number instanceof Float) && !(by instanceof Float)) return new Float(asFloat(number));
  const product = asFloat(number) * asFloat(by);
  if (!Number.isFinite(product)) toInteger(new Float(product));
  return new Float((how === "ceil" ? Math.ceil(product) : Math.floor(product)) / asFloat(by) + 0);
}

/** Rounds an integer to tens, hundreds and so on, half to even. */
function roundInteger(value: number | bigint, digits: number): number | bigint {
  if (digits >= 0) return value;
  if (digits < -5000) return 0;
  const unit = 10n ** BigInt(-digits);
  const number = BigInt(value);
  const rest = ((number % unit) + unit) % unit;
  const down = number - rest;
  const isUp = 2n * rest > unit || (2n * rest === unit && (down / unit) % 2n !== 0n);
  return integer(isUp ? down + unit : down);
}

function absolute(value: Value): Value {
  if (value instanceof Undefined) typeError("bad operand type for abs(): 'Undefined'");
  const number = numberArgument(value, "bad operand type for abs(): '{}'");
  if (number instanceof Float) return new Float(Math.abs(number.value));
  return number < 0 ? negate(number) : number;
}

function trim(value: Value, characters: Value = null): Value {
  const method = STRING_METHODS.get("strip")!;
  return onText(value, (text) =>
    characters === null
      ? strip(text, "both")
      : (method.run(text, ...bind("strip", method, [characters], NO_KEYWORDS)) as string),
  );
}

function replace(value: Value, old: Value, replacement: Value, count: Value = null): string {
  const limit = count === null ? -1 : asIndex(count);
  return replaceText(toText(value), toText(old), toText(replacement), limit < 0 ? Number.POSITIVE_INFINITY : limit);
}

export const TEXT_FILTERS: Readonly<Record<string, Signature>> = {
  abs: signature("/ x", absolute),
  capitalize: signature("s", (value: Value) => onText(value, capitalize)),
  float: signature("value default?", toFloatOr),
  indent: signature("s width? first? blank?", indent),
  int: signature("value default? base?", toIntegerOr),
  lower: signature("s", (value: Value) => onText(value, (text) => transformed(text, (all) => all.toLowerCase()))),
  replace: signature("s old new count?", replace),
  round: signature("value precision? method?", round),
  string: signature("s", (value: Value) => (value instanceof Markup ? value : toText(value))),
  title: signature("s", (value: Value) => onText(value, (text) => transformed(text, titleFilter))),
  trim: signature("value chars?", trim),
  upper: signature("s", (value: Value) => onText(value, (text) => transformed(text, (all) => all.toUpperCase()))),
};
