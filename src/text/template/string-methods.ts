/** Methods of str. Each takes the text and its arguments; positions count code points. */
import { escapeHtml } from "./escape-html.ts";
import { typeError, valueError } from "./faults.ts";
import { charge, chargeText, checkLength } from "./limits.ts";
import { findAll, findLastText, findText } from "./search-text.ts";
import { type Signature, signature } from "./signature.ts";
import {
  replaceText,
  sliceText,
  splitLines,
  splitText,
  splitTextRight,
  splitWords,
  splitWordsRight,
  strip,
} from "./text-parts.ts";
import { classes, titleCase } from "./unicode.ts";
import {
  asIndex,
  asInteger,
  codePointLength,
  isText,
  isTrue,
  iterate,
  Markup,
  Tuple,
  textOf,
  typeName,
  type Value,
} from "./values.ts";

type Method = (text: string, ...args: (Value | undefined)[]) => Value;

/** The text of an argument that must be a str. */
function textArgument(method: string, value: Value | undefined): string {
  if (value !== undefined && isText(value)) return textOf(value);
  typeError(`${method}() argument must be str, not ${typeName(value ?? null)}`);
}

/** Characters to strip; undefined, for None, means white space. */
function charactersArgument(method: string, value: Value | undefined): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (!isText(value)) typeError(`${method} arg must be None or str`);
  return textOf(value);
}

/** A limit of splits or replacements; negative means no limit. */
function limitArgument(value: Value | undefined): number {
  const limit = value === undefined ? -1 : asIndex(value);
  return limit < 0 ? Number.POSITIVE_INFINITY : limit;
}

function separatorArgument(value: Value | undefined): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (!isText(value)) typeError(`must be str or None, not ${typeName(value)}`);
  const separator = textOf(value);
  if (separator === "") valueError("empty separator");
  return separator;
}

function bound(value: Value | undefined, fallback: number, length: number): number {
  if (value === undefined || value === null) return fallback;
  if (asInteger(value) === undefined) typeError("slice indices must be integers or None or have an __index__ method");
  const index = asIndex(value);
  return Math.max(0, index < 0 ? index + length : index);
}

/** The part of the text between optional positions, and where it begins; undefined when it would begin past the end. */
function range(text: string, start: Value | undefined, end: Value | undefined) {
  if (start === undefined && end === undefined) return { part: text, first: 0 };
  const length = codePointLength(text);
  const first = bound(start, 0, length);
  const last = Math.min(bound(end, length, length), length);
  return first > length || last < first ? undefined : { part: sliceText(text, first, last), first };
}

/** `find` and similar methods; -1 when there is no occurrence. */
function search(find: (text: string, pattern: string) => number, name: string): Method {
  return (text, pattern, start, end) => {
    const wanted = textArgument(name, pattern);
    const within = range(text, start, end);
    const at = within ? find(within.part, wanted) : -1;
    return at === -1 ? -1 : within!.first + codePointLength(within!.part.slice(0, at));
  };
}

function found(method: Method): Method {
  return (text, ...args) => {
    const at = method(text, ...args);
    return at === -1 ? valueError("substring not found") : at;
  };
}

function affix(name: "startswith" | "endswith"): Method {
  const has = (text: string, wanted: string) =>
    name === "startswith" ? text.startsWith(wanted) : text.endsWith(wanted);
  return (text, wanted, start, end) => {
    const options = wanted instanceof Tuple ? wanted.items : [wanted!];
    const within = range(text, start, end);
    return options.some((option) => {
      if (!isText(option)) {
        if (wanted instanceof Tuple) typeError(`tuple for ${name} must only contain str, not ${typeName(option)}`);
        typeError(`${name} first arg must be str or a tuple of str, not ${typeName(option)}`);
      }
      charge();
      chargeText(textOf(option).length);
      return within !== undefined && has(within.part, textOf(option));
    });
  };
}

function stripper(sides: "left" | "right" | "both", name: string): Signature {
  return signature("/ chars?", (text: string, characters) => strip(text, sides, charactersArgument(name, characters)));
}

function title(text: string): string {
  return transformed(text, (all) =>
    all.replace(/\p{Cased}+/gu, (word) => {
      const first = String.fromCodePoint(word.codePointAt(0)!);
      return titleCase(first) + word.toLowerCase().slice(first.toLowerCase().length);
    }),
  );
}

export function capitalize(text: string): string {
  if (text === "") return "";
  const first = String.fromCodePoint(text.codePointAt(0)!);
  return transformed(text, (all) => titleCase(first) + all.toLowerCase().slice(first.toLowerCase().length));
}

/** Applies a transformation whose result is at most three times as long, charging for both texts. */
export function transformed(text: string, transform: (text: string) => string): string {
  chargeText(text.length);
  const result = transform(text);
  chargeText(result.length);
  return result;
}

/** `islower` and `isupper`: whether some characters have case, and all of those the right one. */
function hasCase(text: string, wrong: RegExp, right: RegExp): boolean {
  chargeText(text.length);
  return right.test(text) && !wrong.test(text);
}

export const isLower = (text: string) => hasCase(text, /[\p{Uppercase}\p{Lt}]/u, /\p{Lowercase}/u);
export const isUpper = (text: string) => hasCase(text, /[\p{Lowercase}\p{Lt}]/u, /\p{Uppercase}/u);

function partition(text: string, at: number, separator: string, fromRight: boolean): Tuple {
  if (separator === "") valueError("empty separator");
  if (at === -1) return new Tuple(fromRight ? ["", "", text] : [text, "", ""]);
  return new Tuple([text.slice(0, at), separator, text.slice(at + separator.length)]);
}

function joinItems(separator: string, items: Value): string {
  if ((typeof items !== "object" || items === null) && !isText(items)) typeError("can only join an iterable");
  const parts: string[] = [];
  let length = 0;
  for (const item of iterate(items)) {
    charge();
    if (!isText(item)) typeError(`sequence item ${parts.length}: expected str instance, ${typeName(item)} found`);
    parts.push(textOf(item));
    length += parts.at(-1)!.length + separator.length;
    checkLength(length);
  }
  chargeText(length);
  return parts.join(separator);
}

const findMethod = search((text, pattern) => findText(text, pattern), "find");
const rfindMethod = search((text, pattern) => findLastText(text, pattern), "rfind");

function count(text: string, wanted: Value | undefined, start: Value | undefined, end: Value | undefined): number {
  const pattern = textArgument("count", wanted);
  const within = range(text, start, end);
  if (!within) return 0;
  if (pattern === "") return codePointLength(within.part) + 1;
  let occurrences = 0;
  for (const _ of findAll(within.part, pattern)) occurrences++;
  return occurrences;
}

const methods: Record<string, Signature> = {
  capitalize: signature("", capitalize),
  count: signature("/ sub start? end?", count),
  endswith: signature("/ suffix start? end?", affix("endswith")),
  find: signature("/ sub start? end?", findMethod),
  index: signature("/ sub start? end?", found(findMethod)),
  islower: signature("", isLower),
  isupper: signature("", isUpper),
  join: signature("/ iterable", joinItems),
  lower: signature("", (text: string) => transformed(text, (all) => all.toLowerCase())),
  lstrip: stripper("left", "lstrip"),
  partition: signature("/ sep", (text: string, sep) => {
    const separator = textArgument("partition", sep);
    return partition(text, findText(text, separator), separator, false);
  }),
  removeprefix: signature("/ prefix", (text: string, prefix) => {
    const wanted = textArgument("removeprefix", prefix);
    return text.startsWith(wanted) ? text.slice(wanted.length) : text;
  }),
  removesuffix: signature("/ suffix", (text: string, suffix) => {
    const wanted = textArgument("removesuffix", suffix);
    return wanted !== "" && text.endsWith(wanted) ? text.slice(0, -wanted.length) : text;
  }),
  replace: signature("/ old new count?", (text: string, old, replacement, limit) =>
    replaceText(text, textArgument("replace", old), textArgument("replace", replacement), limitArgument(limit)),
  ),
  rfind: signature("/ sub start? end?", rfindMethod),
  rindex: signature("/ sub start? end?", found(rfindMethod)),
  rpartition: signature("/ sep", (text: string, sep) => {
    const separator = textArgument("rpartition", sep);
    return partition(text, findLastText(text, separator), separator, true);
  }),
  rsplit: signature("sep? maxsplit?", (text: string, sep, limit) => {
    const separator = separatorArgument(sep);
    return separator === undefined
      ? splitWordsRight(text, limitArgument(limit))
      : splitTextRight(text, separator, limitArgument(limit));
  }),
  rstrip: stripper("right", "rstrip"),
  split: signature("sep? maxsplit?", (text: string, sep, limit) => {
    const separator = separatorArgument(sep);
    return separator === undefined
      ? splitWords(text, limitArgument(limit))
      : splitText(text, separator, limitArgument(limit));
  }),
  splitlines: signature("keepends?", (text: string, keepEnds = false) => splitLines(text, isTrue(keepEnds))),
  startswith: signature("/ prefix start? end?", affix("startswith")),
  strip: stripper("both", "strip"),
  title: signature("", title),
  upper: signature("", (text: string) => transformed(text, (all) => all.toUpperCase())),
};
for (const [name, pattern] of Object.entries(classes))
  methods[name] = signature("", (text: string) => {
    chargeText(text.length);
    return pattern.test(text);
  });

export const STRING_METHODS: ReadonlyMap<string, Signature> = new Map(Object.entries(methods));

/** Methods whose str arguments Markup escapes. */
const ESCAPING = new Set("replace lstrip rstrip strip join".split(" "));

/** Converts the result of a method on Markup: all strings in it become Markup. */
export function asMarkup(value: Value): Value {
  if (typeof value === "string") return new Markup(value);
  if (Array.isArray(value)) return value.map(asMarkup);
  return value instanceof Tuple ? new Tuple(value.items.map(asMarkup)) : value;
}

/** Arguments for a method on Markup, escaped where that method escapes them. */
export function markupArguments(name: string, args: readonly Value[]): readonly Value[] {
  if (!ESCAPING.has(name)) return args;
  const escaped = (value: Value): Value => (typeof value === "string" ? escapeHtml(value) : value);
  if (name === "join") return args.map((list) => Array.from(iterate(list), escaped));
  return args.map(escaped);
}
