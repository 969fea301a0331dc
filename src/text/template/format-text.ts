/** `str.format` and `format()`: replacement fields and format specifications. */
import { asFloat } from "./arithmetic.ts";
import { escapeHtml } from "./escape-html.ts";
import { fault, typeError, valueError } from "./faults.ts";
import { floatDigits, grouped } from "./float-format.ts";
import { asciiEscape } from "./format-percent.ts";
import { chargeText, checkLength } from "./limits.ts";
import { floatText, integerText, quote, represent, toText } from "./print.ts";
import { asInteger, Float, isText, type Keywords, Markup, textOf, typeName, Undefined, type Value } from "./values.ts";

/** How fields such as `{0.name[key]}` find attributes and items. */
export interface Lookup {
  attribute(value: Value, name: string): Value;
  item(value: Value, key: Value): Value;
}

/** `format.format(*args, **keywords)`; `escapes` for Markup. */
export function formatText(
  format: string,
  args: readonly Value[],
  keywords: Keywords,
  lookup: Lookup,
  escapes: boolean,
): string {
  return new Formatter(args, keywords, lookup, escapes).run(format, 2);
}

class Formatter {
  readonly #args: readonly Value[];
  readonly #keywords: Keywords;
  readonly #lookup: Lookup;
  readonly #escapes: boolean;
  /** The next field without a number; -1 once a field had one. */
  #automatic = 0;

  constructor(args: readonly Value[], keywords: Keywords, lookup: Lookup, escapes: boolean) {
    this.#args = args;
    this.#lookup = lookup;
    this.#keywords = keywords;
    this.#escapes = escapes;
  }

  run(format: string, levels: number): string {
    if (levels < 0) valueError("Max string recursion exceeded");
    chargeText(format.length);
    let result = "";
    for (let at = 0; at < format.length; ) {
      const character = format[at]!;
      if (character !== "{" && character !== "}") {
        const end = nextBrace(format, at);
        result += format.slice(at, end);
        at = end;
      } else if (format[at + 1] === character) {
        result += character;
        at += 2;
      } else if (character === "}") valueError("Single '}' encountered in format string");
      else {
        const end = closingBrace(format, at);
        result += this.#field(format.slice(at + 1, end), levels);
        at = end + 1;
      }
      checkLength(result.length);
    }
    return result;
  }

  #field(field: string, levels: number): string {
    const { name, conversion, specification } = divide(field);
    let value = this.#value(name);
    if (conversion === "r") value = represent(value);
    else if (conversion === "s") value = toText(value);
    else if (conversion === "a") value = represent(value).replace(/[^\0-\x7f]/gu, asciiEscape);
    else if (conversion !== undefined) valueError(`Unknown conversion specifier ${conversion}`);
    const text = formatValue(value, this.run(specification, levels - 1));
    return this.#escapes && !(value instanceof Markup) ? escapeHtml(text) : text;
  }

  #value(name: string): Value {
    const first = /^[^.[]*/.exec(name)![0];
    let value = this.#first(first);
    let rest = name.slice(first.length);
    while (rest !== "") {
      const part = /^(?:\.([^.[]*)|\[([^\]]*)\])/.exec(rest);
      if (!part)
        valueError(
          rest[0] === "[" ? "Missing ']' in format string" : "Only '.' or '[' may follow ']' in format field specifier",
        );
      if (part[1] === "" || part[2] === "") valueError("Empty attribute in format string");
      if (part[1] !== undefined) value = this.#lookup.attribute(value, part[1]);
      else value = this.#lookup.item(value, /^\d+$/.test(part[2]!) ? Number(part[2]) : part[2]!);
      rest = rest.slice(part[0].length);
    }
    return value;
  }

  #first(first: string): Value {
    let index = first;
    if (first === "") {
      if (this.#automatic < 0) valueError("cannot switch from manual field specification to automatic field numbering");
      index = String(this.#automatic++);
    } else if (/^\d+$/.test(first)) {
      if (this.#automatic > 0) valueError("cannot switch from automatic field numbering to manual field specification");
      this.#automatic = -1;
    } else return this.#keywords.get(first) ?? (this.#keywords.has(first) ? null : fault("KeyError", quote(first)));
    const value = this.#args[Number(index)];
    if (value === undefined) fault("IndexError", `Replacement index ${index} out of range for positional args tuple`);
    return value;
  }
}

function nextBrace(format: string, from: number): number {
  let at = from;
  while (at < format.length && format[at] !== "{" && format[at] !== "}") at++;
  return at;
}

function closingBrace(format: string, open: number): number {
  let depth = 0;
  for (let at = open; at < format.length; at++) {
    if (format[at] === "[" && depth === 1) {
      const end = format.indexOf("]", at);
      if (end === -1) valueError("expected '}' before end of string");
      at = end;
    } else if (format[at] === "{") depth++;
    else if (format[at] === "}" && --depth === 0) return at;
  }
  valueError(
    open + 1 >= format.length ? "Single '{' encountered in format string" : "expected '}' before end of string",
  );
}

/** The parts of a replacement field. */
function divide(field: string): { name: string; conversion: string | undefined; specification: string } {
  const name = /^(?:[^!:[]|\[[^\]]*\]?)*/.exec(field)![0];
  const rest = field.slice(name.length);
  if (!rest.startsWith("!")) return { name, conversion: undefined, specification: rest.slice(1) };
  if (rest.length < 2) valueError("end of string while looking for conversion specifier");
  if (rest.length > 2 && rest[2] !== ":") valueError("expected ':' after conversion specifier");
  return { name, conversion: rest[1], specification: rest.slice(3) };
}

const SPECIFICATION =
  /^(?:(?<fill>.)?(?<align>[<>=^]))?(?<sign>[-+ ])?(?<z>z)?(?<alternate>#)?(?<zero>0)?(?<width>\d+)?(?<group>[,_])?(?:\.(?<precision>\d+))?(?<type>[a-zA-Z%])?$/su;

type Specification = Record<string, string | undefined>;

/** `format(value, specification)`. */
function formatValue(value: Value, specification: string): string {
  if (specification === "") return toText(value);
  const isNumber = asInteger(value) !== undefined || value instanceof Float;
  if (!isText(value) && !isNumber) {
    if (value instanceof Undefined) typeError("unsupported format string passed to Undefined.__format__");
    typeError(`unsupported format string passed to ${typeName(value)}.__format__`);
  }
  const groups = SPECIFICATION.exec(specification)?.groups as Specification | undefined;
  if (!groups) valueError("Invalid format specifier");
  const width = Number(groups.width ?? 0);
  chargeText(width);
  chargeText(Number(groups.precision ?? 0));
  if (isText(value)) return formatString(textOf(value), groups, width);
  const { sign, prefix, digits } =
    value instanceof Float ? floatParts(value.value, groups) : integerParts(value, groups);
  const fill = groups.fill ?? (groups.zero ? "0" : " ");
  const align = groups.align ?? (groups.zero ? "=" : ">");
  if (align !== "=") return aligned(sign + prefix + digits, fill, align, width);
  const room = width - sign.length - prefix.length;
  if (fill === "0" && groups.group) return sign + prefix + groupedZeros(digits, groups, room);
  return sign + prefix + aligned(digits, fill, ">", room);
}

/** Zeros before the digits, with separators among them. */
function groupedZeros(digits: string, { group, type }: Specification, room: number): string {
  const size = type && "boxX".includes(type) ? 4 : 3;
  let plain = digits.replaceAll(group!, "");
  const whole = () => grouped(plain, group!, size);
  while (whole().length < room) plain = `0${plain}`;
  return whole();
}

function aligned(text: string, fill: string, align: string, width: number): string {
  const missing = width - Array.from(text).length;
  if (missing <= 0) return text;
  const before = align === "<" ? 0 : align === "^" ? Math.floor(missing / 2) : missing;
  return fill.repeat(before) + text + fill.repeat(missing - before);
}

function formatString(text: string, groups: Specification, width: number): string {
  const { type, sign, alternate, group, precision, align, fill, zero } = groups;
  if (type !== undefined && type !== "s") valueError(`Unknown format code '${type}' for object of type 'str'`);
  if (sign) valueError("Sign not allowed in string format specifier");
  if (alternate) valueError("Alternate form (#) not allowed in string format specifier");
  if (group) valueError(`Cannot specify '${group}' with 's'.`);
  if (align === "=") valueError("'=' alignment not allowed in string format specifier");
  const cut = precision === undefined ? text : Array.from(text).slice(0, Number(precision)).join("");
  return aligned(cut, fill ?? (zero ? "0" : " "), align ?? "<", width);
}

interface Parts {
  readonly sign: string;
  readonly prefix: string;
  readonly digits: string;
}

function signed(isNegative: boolean, sign: string | undefined): string {
  return isNegative ? "-" : sign === "+" || sign === " " ? sign : "";
}

function integerParts(value: Value, groups: Specification): Parts {
  const { type = "d", sign, alternate, group, precision } = groups;
  const number = asInteger(value)!;
  if ("eEfFgG%".includes(type)) return floatParts(asFloat(number), groups);
  const base = { b: 2, o: 8, x: 16, X: 16, d: 10, n: 10, c: 0 }[type];
  if (base === undefined) valueError(`Unknown format code '${type}' for object of type 'int'`);
  if (precision !== undefined) valueError("Precision not allowed in integer format specifier");
  if (base === 0) {
    if (number < 0 || number > 0x10ffff) fault("OverflowError", "%c arg not in range(0x110000)");
    return { sign: "", prefix: "", digits: String.fromCodePoint(Number(number)) };
  }
  if (group === "," && base !== 10) valueError(`Cannot specify ',' with '${type}'.`);
  const absolute = number < 0 ? -BigInt(number) : BigInt(number);
  let digits = base === 10 ? integerText(absolute) : absolute.toString(base);
  if (type === "X") digits = digits.toUpperCase();
  if (group) digits = grouped(digits, group, base === 10 ? 3 : 4);
  return { sign: signed(number < 0, sign), prefix: alternate && base !== 10 ? `0${type}` : "", digits };
}

function floatParts(number: number, { type, sign, alternate, group, precision, z }: Specification): Parts {
  if (type !== undefined && !"eEfFgGn%".includes(type))
    valueError(`Unknown format code '${type}' for object of type 'float'`);
  let digits = floatForm(Math.abs(type === "%" ? number * 100 : number), type, precision, Boolean(alternate));
  if (type === "E" || type === "F" || type === "G") digits = digits.toUpperCase();
  if (group && Number.isFinite(number)) digits = grouped(digits, group);
  const isNegative = number < 0 || Object.is(number, -0);
  const isZero = z !== undefined && !/[1-9]/.test(digits);
  return { sign: signed(isNegative && !isZero, sign), prefix: "", digits: type === "%" ? `${digits}%` : digits };
}

function floatForm(value: number, type: string | undefined, precision: string | undefined, alternate: boolean): string {
  if (type === "%") return floatDigits(value, "f", Number(precision ?? 6), alternate);
  if (type !== undefined)
    return floatDigits(value, type === "n" ? "g" : type.toLowerCase(), Number(precision ?? 6), alternate);
  if (precision === undefined) return floatText(value);
  const text = floatDigits(value, "g", Number(precision), alternate);
  if (/[.einf]/.test(text)) return text;
  // Without a type there is always a digit after the point; where there is no room for it, an exponent.
  return text.length >= Math.max(1, Number(precision)) && text !== "0"
    ? floatDigits(value, "e", Math.max(0, Number(precision) - 1), alternate).replace(/\.?0*(?=e)/, "")
    : `${text}.0`;
}
