/** Jinja's filters of sequences and mappings. */
import { add } from "./arithmetic.ts";
import { attribute, item } from "./attributes.ts";
import { isOrdered, sortValues } from "./compare.ts";
import { fault, typeError } from "./faults.ts";
import { charge, chargeText, checkLength } from "./limits.ts";
import { toText } from "./print.ts";
import { type Signature, signature } from "./signature.ts";
import {
  Dict,
  DictView,
  hasSurrogates,
  isText,
  isTrue,
  iterate,
  type Keywords,
  lengthOf,
  Markup,
  PyIterator,
  Range,
  Tuple,
  textOf,
  toList,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

type Getter = (value: Value) => Value;

/** Splits an attribute path at its dots; parts of digits are indices. */
function path(name: Value): Value[] {
  if (name === null) return [];
  if (!isText(name)) return [name];
  return textOf(name)
    .split(".")
    .map((part) => (/^\p{Nd}+$/u.test(part) ? Number(part) : part));
}

/** A function that returns `item.attribute` for a path such as "function.name" or "0". */
function getter(name: Value, after: Getter = (value) => value, fallback: Value = null): Getter {
  const parts = path(name);
  return (value) => {
    let found = value;
    for (const part of parts) {
      charge();
      found = item(found, part);
      if (fallback !== null && found instanceof Undefined) found = fallback;
    }
    return after(found);
  };
}

const lowered: Getter = (value) => {
  if (!isText(value)) return value;
  const text = textOf(value);
  chargeText(text.length);
  return text.toLowerCase();
};
const same: Getter = (value) => value;
const byCase = (caseSensitive: Value): Getter => (isTrue(caseSensitive) ? same : lowered);

function generator(items: Iterator<Value>, name: string): PyIterator {
  return new PyIterator(items, `generator object ${name}`);
}

function* unique(value: Value, caseSensitive: Value, name: Value): Generator<Value> {
  const key = getter(name, byCase(caseSensitive));
  const seen = new Dict();
  for (const element of iterate(value)) {
    charge();
    const found = key(element);
    if (seen.has(found)) continue;
    seen.set(found, true);
    yield element;
  }
}

function* mappingItems(value: Value): Generator<Value> {
  if (value instanceof Undefined) return;
  if (!(value instanceof Dict)) typeError("Can only get item pairs from a mapping.");
  for (const entry of value.entries()) yield new Tuple(entry);
}

function sort(value: Value, reverse: Value = false, caseSensitive: Value = false, name: Value = null): Value[] {
  const names: readonly Value[] = isText(name) ? textOf(name).split(",") : [name];
  const getters = names.map((part) => getter(part, byCase(caseSensitive)));
  return sortValues(toList(value), (element) => getters.map((get) => get(element)), isTrue(reverse));
}

function dictSort(value: Value, caseSensitive: Value = false, by: Value = "key", reverse: Value = false): Value[] {
  if (!isText(by) || !["key", "value"].includes(textOf(by)))
    fault("FilterArgumentError", 'You can only sort by either "key" or "value"');
  if (value instanceof Undefined) value.fail();
  if (!(value instanceof Dict)) fault("AttributeError", `'${typeName(value)}' object has no attribute 'items'`);
  const at = textOf(by) === "key" ? 0 : 1;
  const prepare = byCase(caseSensitive);
  const entries = Array.from(value.entries(), (entry) => new Tuple(entry));
  return sortValues(entries, (entry) => prepare(entry.items[at]!), isTrue(reverse));
}

function extreme(order: "<" | ">", value: Value, caseSensitive: Value, name: Value): Value {
  const key = getter(name, byCase(caseSensitive));
  let best: Value | undefined;
  let bestKey: Value = null;
  for (const element of iterate(value)) {
    charge();
    const own = key(element);
    if (best !== undefined && !isOrdered(order, own, bestKey)) continue;
    best = element;
    bestKey = own;
  }
  return best === undefined ? new Undefined(() => "No aggregated item, sequence was empty.") : best;
}

function sum(value: Value, name: Value = null, start: Value = 0): Value {
  if (isText(start)) typeError("sum() can't sum strings [use ''.join(seq) instead]");
  const get = name === null ? same : getter(name);
  let total: Value = start;
  for (const element of iterate(value)) {
    charge();
    total = add(total, get(element));
  }
  return total;
}

function join(value: Value, separator: Value = "", name: Value = null): string {
  const get = name === null ? same : getter(name);
  const between = toText(separator);
  const parts: string[] = [];
  let length = 0;
  for (const element of iterate(value)) {
    charge();
    const text = toText(get(element));
    parts.push(text);
    length += text.length + between.length;
    checkLength(length);
  }
  chargeText(length);
  return parts.join(between);
}

function first(value: Value): Value {
  for (const element of iterate(value)) return element;
  return new Undefined(() => "No first item, sequence was empty.");
}

/** Items from last to first; undefined where the value cannot be iterated backwards. */
function reversed(value: Value): Value[] | undefined {
  if (value instanceof Undefined) return [];
  const isReversible =
    isText(value) ||
    Array.isArray(value) ||
    value instanceof Tuple ||
    value instanceof Dict ||
    value instanceof DictView ||
    value instanceof Range;
  return isReversible ? toList(value).reverse() : undefined;
}

function last(value: Value): Value {
  const items = reversed(value);
  if (!items) typeError(`'${typeName(value)}' object is not reversible`);
  return items.length > 0 ? items[0]! : new Undefined(() => "No last item, sequence was empty.");
}

function reverse(value: Value): Value {
  if (isText(value)) {
    const text = textOf(value);
    chargeText(text.length * 4);
    const back = (hasSurrogates(text) ? Array.from(text) : text.split("")).reverse().join("");
    return value instanceof Markup ? new Markup(back) : back;
  }
  const items = reversed(value);
  if (items)
    return new PyIterator(
      items[Symbol.iterator](),
      `${Array.isArray(value) ? "list_reverseiterator" : "reversed"} object`,
    );
  if (value instanceof PyIterator) return toList(value).reverse();
  fault("FilterArgumentError", "argument must be iterable");
}

function length(value: Value): number {
  const count = lengthOf(value);
  if (count === undefined) typeError(`object of type '${typeName(value)}' has no len()`);
  return count;
}

export const ITEM_FILTERS: Readonly<Record<string, Signature>> = {
  attr: signature("obj name", (value: Value, name: Value) => {
    const found =
      value instanceof Dict && isText(name) && value.has(textOf(name)) ? undefined : attribute(value, toText(name));
    return found ?? new Undefined(() => `'dict object' has no attribute '${toText(name)}'`);
  }),
  count: signature("/ obj", length),
  dictsort: signature("value case_sensitive? by? reverse?", dictSort),
  first: signature("seq", first),
  items: signature("value", (value: Value) => generator(mappingItems(value), "do_items")),
  join: signature("value d? attribute?", join),
  last: signature("seq", last),
  length: signature("/ obj", length),
  list: signature("value", toList),
  max: signature("value case_sensitive? attribute?", (value: Value, caseSensitive: Value = false, name: Value = null) =>
    extreme(">", value, caseSensitive, name),
  ),
  min: signature("value case_sensitive? attribute?", (value: Value, caseSensitive: Value = false, name: Value = null) =>
    extreme("<", value, caseSensitive, name),
  ),
  reverse: signature("value", reverse),
  sort: signature("value reverse? case_sensitive? attribute?", sort),
  sum: signature("iterable attribute? start?", sum),
  unique: signature(
    "value case_sensitive? attribute?",
    (value: Value, caseSensitive: Value = false, name: Value = null) =>
      generator(unique(value, caseSensitive, name), "sync_do_unique"),
  ),
};

/** Calls a filter or test by its name. */
export type CallByName = (name: Value, value: Value, args: readonly Value[], keywords: Keywords) => Value;

/** `map`: by attribute, or by a filter with arguments. */
export function mapFilter(value: Value, args: readonly Value[], keywords: Keywords, callFilter: CallByName): Value {
  function* mapped(): Generator<Value> {
    if (!isTrue(value)) return;
    const change = prepareMap(args, keywords, callFilter);
    for (const element of iterate(value)) {
      charge();
      yield change(element);
    }
  }
  return generator(mapped(), "sync_do_map");
}

function prepareMap(args: readonly Value[], keywords: Keywords, callFilter: CallByName): Getter {
  if (args.length === 0 && keywords.has("attribute")) {
    const other = [...keywords.keys()].find((key) => key !== "attribute" && key !== "default");
    if (other !== undefined) fault("FilterArgumentError", `Unexpected keyword argument '${other}'`);
    return getter(keywords.get("attribute")!, same, keywords.get("default") ?? null);
  }
  if (args.length === 0) fault("FilterArgumentError", "map requires a filter argument");
  return (value) => callFilter(args[0]!, value, args.slice(1), keywords);
}

/** `select`, `reject`, `selectattr` and `rejectattr`. */
export function selectFilter(
  { byAttribute, keeps, label }: { byAttribute: boolean; keeps: boolean; label: string },
  value: Value,
  args: readonly Value[],
  keywords: Keywords,
  callTest: CallByName,
): Value {
  function* selected(): Generator<Value> {
    if (!isTrue(value)) return;
    if (byAttribute && args.length === 0) fault("FilterArgumentError", "Missing parameter for attribute name");
    const get = byAttribute ? getter(args[0]!) : same;
    const [name, ...rest] = args.slice(byAttribute ? 1 : 0);
    for (const element of iterate(value)) {
      charge();
      const tested = get(element);
      const holds = isTrue(name === undefined ? tested : callTest(name, tested, rest, keywords));
      if (holds === keeps) yield element;
    }
  }
  return generator(selected(), label);
}
