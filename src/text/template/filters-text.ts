/** Jinja's filters of texts and numbers. */
import { add, negate } from "./arithmetic.ts";
import { fault, isFault, typeError } from "./faults.ts";
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
  string: signature("s", (value: Value) => (value instanceof Markup ? value : toText(value))),
  title: signature("s", (value: Value) => onText(value, (text) => transformed(text, titleFilter))),
  trim: signature("value chars?", trim),
  upper: signature("s", (value: Value) => onText(value, (text) => transformed(text, (all) => all.toUpperCase()))),
};
