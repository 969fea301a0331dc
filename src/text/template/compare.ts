/** Python's comparisons: `==`, `<`, `in`, and sorting. */
import { isFault, typeError } from "./faults.ts";
import { charge, chargeText, enter, leave } from "./limits.ts";
import { findText } from "./search-text.ts";
import {
  asInteger,
  Dict,
  DictView,
  Float,
  hasSurrogates,
  isText,
  iterate,
  lengthOf,
  PyIterator,
  Range,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** An int, bool or float as a number or bigint; undefined for other values. */
function numeric(value: Value): number | bigint | undefined {
  return value instanceof Float ? value.value : asInteger(value);
}

/** `a == b`. */
export function equals(a: Value, b: Value): boolean {
  charge();
  const x = numeric(a);
  if (x !== undefined) {
    const y = numeric(b);
    // biome-ignore lint/suspicious/noDoubleEquals: a number and a bigint are equal by value.
    return y !== undefined && x == y;
  }
  if (a === b) return true;
  if (isText(a)) return isText(b) && textOf(a) === textOf(b);
  if (a === null || b === null || typeof a !== "object" || typeof b !== "object") return false;
  enter();
  const result = equalObjects(a, b);
  leave();
  return result;
}

function equalObjects(a: object, b: object): boolean {
  if (Array.isArray(a)) return Array.isArray(b) && equalItems(a, b);
  if (a instanceof Tuple) return b instanceof Tuple && equalItems(a.items, b.items);
  if (a instanceof Dict) return b instanceof Dict && equalDicts(a, b);
  if (a instanceof Undefined) return b instanceof Undefined;
  if (a instanceof Range) return b instanceof Range && equalItems([...iterate(a)], [...iterate(b)]);
  if (a instanceof DictView && b instanceof DictView && a.kind !== "values" && b.kind !== "values") {
    const [x, y] = [[...iterate(a)], [...iterate(b)]];
    return x.length === y.length && x.every((item) => contains(b, item));
  }
  return false;
}

/** Equality of items in a container: the same object is equal, as in Python, even NaN. */
const equalItem = (a: Value, b: Value) => a === b || equals(a, b);

function equalItems(a: readonly Value[], b: readonly Value[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (!equalItem(a[i]!, b[i]!)) return false;
  return true;
}

function equalDicts(a: Dict, b: Dict): boolean {
  if (a.size !== b.size) return false;
  for (const [key, value] of a.entries()) {
    const other = b.get(key);
    if (other === undefined || !equalItem(value, other)) return false;
  }
  return true;
}

/** Compares by code points, as Python orders str, to -1, 0 or 1; UTF-16 units would order U+1F600 before U+FFFD. */
function compareText(a: string, b: string): number {
  if (a === b) return 0;
  chargeText(Math.min(a.length, b.length));
  if (!hasSurrogates(a) && !hasSurrogates(b)) return a < b ? -1 : 1;
  const [x, y] = [a[Symbol.iterator](), b[Symbol.iterator]()];
  for (;;) {
    const [p, q] = [x.next(), y.next()];
    if (p.done || q.done) return p.done ? (q.done ? 0 : -1) : 1;
    if (p.value !== q.value) return p.value.codePointAt(0)! - q.value.codePointAt(0)!;
  }
}

export type Order = "<" | "<=" | ">" | ">=";

/** `a < b`, `<=`, `>` or `>=`; TypeError for values without an order. */
export function isOrdered(operator: Order, a: Value, b: Value): boolean {
  charge();
  const [x, y] = [numeric(a), numeric(b)];
  if (x !== undefined && y !== undefined) return holds(operator, x, y);
  if (isText(a) && isText(b)) return holds(operator, compareText(textOf(a), textOf(b)), 0);
  if (a instanceof Undefined) a.fail();
  if (b instanceof Undefined) b.fail();
  const [p, q] = [itemsOf(a), itemsOf(b)];
  if (!p || !q || Array.isArray(a) !== Array.isArray(b))
    typeError(`'${operator}' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`);
  enter();
  const at = p.findIndex((item, i) => i >= q.length || !equalItem(item, q[i]!));
  const result =
    at === -1 || at >= q.length ? holds(operator, p.length, q.length) : isOrdered(operator, p[at]!, q[at]!);
  leave();
  return result;
}

function itemsOf(value: Value): readonly Value[] | undefined {
  if (Array.isArray(value)) return value;
  return value instanceof Tuple ? value.items : undefined;
}

function holds(operator: Order, x: number | bigint, y: number | bigint): boolean {
  if (operator === "<") return x < y;
  if (operator === "<=") return x <= y;
  return operator === ">" ? x > y : x >= y;
}

/** `item in container`. */
export function contains(container: Value, item: Value): boolean {
  if (isText(container)) {
    if (!isText(item)) typeError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
    return findText(textOf(container), textOf(item)) !== -1;
  }
  if (container instanceof Dict) return container.has(item);
  if (container instanceof DictView && container.kind === "keys") return container.dict.has(item);
  if (container !== null && typeof container === "object" && !Array.isArray(container) && !isContainer(container))
    typeError(`argument of type '${typeName(container)}' is not iterable`);
  if (container === null || typeof container !== "object")
    typeError(`argument of type '${typeName(container)}' is not iterable`);
  for (const candidate of iterate(container)) if (equalItem(candidate, item)) return true;
  return false;
}

function isContainer(value: object): boolean {
  return value instanceof Tuple || value instanceof Undefined || Symbol.iterator in value;
}

/**
 * `sorted(items)`: a stable merge sort by keys that are computed once. It reports keys without an order as Python does, and
 * never runs the platform's sort with a comparison that throws.
 */
export function sortValues<T>(
  items: readonly T[],
  key: (item: T) => Value = (item) => item as Value,
  reverse = false,
): T[] {
  let keyed = items.map((item) => ({ item, key: key(item) }));
  // Python reverses, sorts and reverses again, which keeps equal items in order.
  if (reverse) keyed.reverse();
  for (let width = 1; width < keyed.length; width *= 2) {
    const merged: typeof keyed = [];
    for (let start = 0; start < keyed.length; start += 2 * width) mergeRuns(keyed, start, width, merged);
    keyed = merged;
  }
  if (reverse) keyed.reverse();
  return keyed.map(({ item }) => item);
}

function mergeRuns<T>(
  from: { item: T; key: Value }[],
  start: number,
  width: number,
  into: { item: T; key: Value }[],
): void {
  const middle = Math.min(start + width, from.length);
  const end = Math.min(start + 2 * width, from.length);
  let [left, right] = [start, middle];
  while (left < middle || right < end) {
    const takesRight = left >= middle || (right < end && isOrdered("<", from[right]!.key, from[left]!.key));
    into.push(from[takesRight ? right++ : left++]!);
  }
}

/** Whether `len()` and indexing by number work. */
export function isSequence(value: Value): boolean {
  if (value instanceof Undefined) return true;
  const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
  if (isObject && !(value instanceof Tuple || value instanceof Dict || value instanceof Range || isText(value)))
    return false;
  return lengthOf(value) !== undefined;
}

/** Whether `iter()` works. */
export function isIterable(value: Value): boolean {
  if (value instanceof PyIterator) return true;
  try {
    iterate(value);
    return true;
  } catch (cause) {
    if (isFault(cause, "TypeError")) return false;
    throw cause;
  }
}
