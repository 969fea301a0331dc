/** Attributes, items and slices of values, with the restrictions of jinja2's immutable sandbox. */
import { equals } from "./compare.ts";
import { fault, isFault, typeError, valueError } from "./faults.ts";
import { LEFT_OUT_METHODS, unsupported } from "./left-out.ts";
import { charge, chargeText } from "./limits.ts";
import { quote, represent } from "./print.ts";
import { Builtin, bind, type Signature, signature } from "./signature.ts";
import { asMarkup, markupArguments, STRING_METHODS } from "./string-methods.ts";
import { sliceText, unitIndex } from "./text-parts.ts";
import {
  asInteger,
  codePointLength,
  Dict,
  DictView,
  hasSurrogates,
  isText,
  iterate,
  type Keywords,
  Markup,
  PyObject,
  Range,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

function indexIn(value: Value, items: Iterable<Value>, wanted: Value, name: string): number {
  let at = 0;
  for (const item of items) {
    if (equals(item, wanted)) return at;
    at++;
  }
  valueError(name === "list" ? `${represent(wanted)} is not in list` : `${name}.index(x): x not in ${typeName(value)}`);
}

function countIn(items: Iterable<Value>, wanted: Value): number {
  let count = 0;
  for (const item of items) if (equals(item, wanted)) count++;
  return count;
}

const sequenceMethods: Record<string, Signature> = {
  count: signature("/ value", (value: Value, wanted: Value) => countIn(iterate(value), wanted)),
  index: signature("/ value", (value: Value, wanted: Value) => indexIn(value, iterate(value), wanted, typeName(value))),
};

const dictMethods: Record<string, Signature> = {
  get: signature(
    "/ key default?",
    (dict: Dict, key: Value, fallback: Value = null) => dict.get(key) ?? missingOr(dict, key, fallback),
  ),
  items: signature("", (dict: Dict) => new DictView(dict, "items")),
  keys: signature("", (dict: Dict) => new DictView(dict, "keys")),
  values: signature("", (dict: Dict) => new DictView(dict, "values")),
  copy: signature("", copyDict),
};

/** Result of a lookup that found nothing or None: None if the key exists, else `fallback`. */
function missingOr(dict: Dict, key: Value, fallback: Value): Value {
  return dict.has(key) ? null : fallback;
}

export function copyDict(dict: Dict): Dict {
  const copy = new Dict();
  for (const [key, value] of dict.entries()) {
    charge();
    copy.set(key, value);
  }
  return copy;
}

const tables: Readonly<Record<string, ReadonlyMap<string, Signature>>> = {
  str: STRING_METHODS,
  dict: new Map(Object.entries(dictMethods)),
  list: new Map(Object.entries({ ...sequenceMethods, copy: signature("", (list: Value[]) => [...list]) })),
  tuple: new Map(Object.entries(sequenceMethods)),
  range: new Map(Object.entries(sequenceMethods)),
};

/** Methods that change a value, which the immutable sandbox hides. */
const FORBIDDEN: Readonly<Record<string, readonly string[]>> = {
  list: ["append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"],
  dict: ["clear", "pop", "popitem", "setdefault", "update"],
};
/** Attributes that every object of Python has. */
const SPECIAL =
  /^__(?:class|doc|dir|eq|format|ge|getattribute|gt|hash|init|le|lt|ne|new|reduce|repr|setattr|sizeof|str|subclasshook)__$/;

function tableOf(value: Value): ReadonlyMap<string, Signature> | undefined {
  if (typeof value === "string") return STRING_METHODS;
  if (Array.isArray(value)) return tables.list;
  if (asInteger(value) !== undefined) return undefined;
  return value === null ? undefined : tables[(value as PyObject).typeName];
}

/** The method of a value's type; undefined for an unknown name. */
function methodOf(value: Value, name: string): Signature | undefined {
  return tableOf(value)?.get(name);
}

/** Calls `value.name(...)` if it is a method of the value's type; undefined otherwise. */
export function callMethod(value: Value, name: string, args: readonly Value[], keywords: Keywords): Value | undefined {
  const text = typeof value === "string" ? value : value instanceof Markup ? value.text : undefined;
  if (text !== undefined) return callTextMethod(value as string | Markup, text, name, args, keywords);
  const method = methodOf(value, name);
  return method?.run(value, ...bind(name, method, args, keywords));
}

function callTextMethod(self: string | Markup, text: string, name: string, args: readonly Value[], keywords: Keywords) {
  if (LEFT_OUT_METHODS.has(name)) fault("UnsupportedError", unsupported("method", name));
  const method = STRING_METHODS.get(name);
  if (typeof self === "string" || !method) return method?.run(text, ...bind(name, method, args, keywords));
  return asMarkup(method.run(text, ...bind(name, method, markupArguments(name, args), keywords)));
}

/** Whether `dict.name` is an item for every dict: the name is no method of dict. */
export function isPlainKey(name: string): boolean {
  return !name.startsWith("_") && !(name in dictMethods) && !FORBIDDEN.dict!.includes(name);
}

/** `getattr(value, name)` within the sandbox; undefined when there is no such attribute. */
function ownAttribute(value: Value, name: string): Value | undefined {
  if (value instanceof Undefined) return SPECIAL.test(name) ? unsafe(value, name) : value.fail();
  if (SPECIAL.test(name)) return unsafe(value, name);
  const type = value instanceof Markup ? "str" : typeName(value);
  if (FORBIDDEN[type]?.includes(name)) return unsafe(value, name);
  const isMethod = type === "str" ? STRING_METHODS.has(name) : methodOf(value, name);
  if (isMethod)
    return new Builtin(
      `built-in method ${name} of ${type} object`,
      (args, keywords) => callMethod(value, name, args, keywords)!,
      "builtin_function_or_method",
    );
  return dataAttribute(value, name);
}

function dataAttribute(value: Value, name: string): Value | undefined {
  if (value instanceof Range && (name === "start" || name === "stop" || name === "step")) return value[name];
  return value instanceof PyObject ? value.attribute(name) : undefined;
}

function unsafe(value: Value, name: string): Undefined {
  const message = () => `access to attribute ${quote(name)} of '${typeName(value)}' object is unsafe.`;
  return new Undefined(message, "SecurityError");
}

function typeText(value: Value): string {
  return value === null ? "None" : `${typeName(value)} object`;
}

function missingAttribute(value: Value, key: Value): Undefined {
  return new Undefined(() =>
    isText(key)
      ? `${quote(typeText(value))} has no attribute ${quote(textOf(key))}`
      : `${typeText(value)} has no element ${represent(key)}`,
  );
}

/** `value.name`: the attribute, or else the item. */
export function attribute(value: Value, name: string): Value {
  let found = ownAttribute(value, name);
  if (found === undefined) found = subscript(value, name);
  return found === undefined ? missingAttribute(value, name) : found;
}

/** `value[key]`: the item, or else the attribute. */
export function item(value: Value, key: Value): Value {
  let found = subscript(value, key);
  if (found === undefined && isText(key)) found = ownAttribute(value, textOf(key));
  return found === undefined ? missingAttribute(value, key) : found;
}

/** `value[key]`; undefined where Python raises a TypeError or LookupError. */
function subscript(value: Value, key: Value): Value | undefined {
  if (value instanceof Dict) return dictItem(value, key);
  if (value instanceof Undefined) value.fail();
  if (typeof key === "string") return undefined;
  const index = asInteger(key);
  if (typeof index !== "number") return undefined;
  if (isText(value)) return characterAt(value, index);
  if (Array.isArray(value)) return value.at(index);
  if (value instanceof Tuple) return value.items.at(index);
  if (!(value instanceof Range)) return undefined;
  const at = index < 0 ? index + value.length : index;
  return at >= 0 && at < value.length ? value.start + at * value.step : undefined;
}

function dictItem(dict: Dict, key: Value): Value | undefined {
  if (typeof key === "string") return dict.get(key);
  try {
    return dict.get(key);
  } catch (cause) {
    if (isFault(cause, "TypeError")) return undefined;
    throw cause;
  }
}

function characterAt(value: string | Markup, index: number): Value | undefined {
  const text = textOf(value);
  let character: string | undefined;
  if (hasSurrogates(text)) {
    chargeText(text.length);
    const length = index < 0 ? codePointLength(text) : 0;
    const at = index < 0 ? index + length : index;
    const code = at < 0 ? undefined : text.codePointAt(unitIndex(text, at));
    character = code === undefined ? undefined : String.fromCodePoint(code);
  } else {
    chargeText(text.length);
    character = text.at(index);
  }
  return character !== undefined && value instanceof Markup ? new Markup(character) : character;
}

function sliceIndex(value: Value, fallback: number, length: number, step: number): number {
  if (value === null) return fallback;
  const index = asInteger(value);
  if (index === undefined) typeError("slice indices must be integers or None or have an __index__ method");
  const at = Number(index) < 0 ? Number(index) + length : Number(index);
  return step > 0 ? Math.min(Math.max(at, 0), length) : Math.min(Math.max(at, -1), length - 1);
}

/** `value[start:stop:step]`. */
export function slice(value: Value, start: Value, stop: Value, step: Value): Value {
  if (value instanceof Undefined) value.fail();
  const by =
    step === null
      ? 1
      : Number(asInteger(step) ?? typeError("slice indices must be integers or None or have an __index__ method"));
  const isSliceable = isText(value) || Array.isArray(value) || value instanceof Tuple || value instanceof Range;
  if (!isSliceable)
    typeError(value instanceof Dict ? "unhashable type: 'slice'" : `'${typeName(value)}' object is not subscriptable`);
  if (by === 0) valueError("slice step cannot be zero");
  const length = isText(value)
    ? codePointLength(textOf(value))
    : value instanceof Range
      ? value.length
      : lengthOfItems(value);
  const from = sliceIndex(start, by > 0 ? 0 : length - 1, length, by);
  const to = sliceIndex(stop, by > 0 ? length : -1, length, by);
  if (value instanceof Range)
    return new Range(value.start + from * value.step, value.start + to * value.step, value.step * by);
  if (isText(value)) {
    const text =
      by === 1 ? sliceText(textOf(value), from, to) : stepped(Array.from(textOf(value)), from, to, by).join("");
    return value instanceof Markup ? new Markup(text) : text;
  }
  const items = Array.isArray(value) ? value : value.items;
  charge(Math.abs(to - from) + 1);
  const chosen = by === 1 ? items.slice(from, to) : stepped(items, from, to, by);
  return Array.isArray(value) ? chosen : new Tuple(chosen);
}

function lengthOfItems(value: Value[] | Tuple): number {
  return Array.isArray(value) ? value.length : value.items.length;
}

function stepped<T>(items: readonly T[], from: number, to: number, step: number): T[] {
  charge(items.length);
  const chosen: T[] = [];
  for (let i = from; step > 0 ? i < to : i > to; i += step) chosen.push(items[i]!);
  return chosen;
}
