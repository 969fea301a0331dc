/**
 * Python values of templates. None is null, int is number (safe integers) or bigint (beyond), str is string, list is an array;
 * the others are classes.
 */
import { fault, TemplateFault, typeError } from "./faults.ts";
import { charge, enter, leave } from "./limits.ts";

export type Value = null | boolean | number | bigint | string | Value[] | PyObject;

/** Arguments by name. */
export type Keywords = ReadonlyMap<string, Value>;
export const NO_KEYWORDS: Keywords = new Map();

export abstract class PyObject {
  abstract readonly typeName: string;

  /** The instance attribute of this name, methods of the type excluded; undefined when there is none. */
  attribute(_name: string): Value | undefined {
    return undefined;
  }

  /** `repr()` of objects that print neither items nor text, with a fixed address; Python's differs in each run. */
  describe(): string {
    return `<${this.typeName} object at 0x7f0000000000>`;
  }
}

/** A float, even one with an integral value: 1.0 prints differently from 1. */
export class Float extends PyObject {
  readonly typeName = "float";
  readonly value: number;
  constructor(value: number) {
    super();
    this.value = value;
  }
}

export class Tuple extends PyObject {
  readonly typeName: string = "tuple";
  readonly items: readonly Value[];
  constructor(items: readonly Value[]) {
    super();
    this.items = items;
  }
}

/** Text that is marked as escaped, by `safe` or `escape`. */
export class Markup extends PyObject {
  readonly typeName = "Markup";
  readonly text: string;
  constructor(text: string) {
    super();
    this.text = text;
  }
}

/** A dict: insertion order, keys equal as in Python (1, 1.0 and True are one key). */
export class Dict extends PyObject {
  readonly typeName = "dict";
  readonly #values = new Map<unknown, Value>();
  /** Original keys, by hashable form, for those that differ from it; null where there are none. */
  #keys: Map<unknown, Value> | null = null;
  /** One object for all equal tuples, by their content. */
  #tuples: Map<string, object> | null = null;

  get size(): number {
    return this.#values.size;
  }

  get(key: Value): Value | undefined {
    return this.#values.get(typeof key === "string" ? key : this.#lookup(key));
  }

  has(key: Value): boolean {
    return this.#values.has(typeof key === "string" ? key : this.#lookup(key));
  }

  set(key: Value, value: Value): this {
    if (typeof key === "string") {
      this.#values.set(key, value);
      return this;
    }
    const lookup = this.#lookup(key);
    if (lookup !== key && !this.#values.has(lookup)) {
      this.#keys ??= new Map();
      this.#keys.set(lookup, key);
    }
    this.#values.set(lookup, value);
    return this;
  }

  *keys(): Generator<Value> {
    for (const key of this.#values.keys()) yield this.#keys?.get(key) ?? (key as Value);
  }

  values(): IterableIterator<Value> {
    return this.#values.values();
  }

  *entries(): Generator<[Value, Value]> {
    for (const [key, value] of this.#values) yield [this.#keys?.get(key) ?? (key as Value), value];
  }

  #lookup(key: Value): unknown {
    const lookup = hashable(key);
    if (!Array.isArray(lookup)) return lookup;
    this.#tuples ??= new Map();
    const text = lookup.join("");
    let object = this.#tuples.get(text);
    if (!object) {
      object = {};
      this.#tuples.set(text, object);
    }
    return object;
  }
}

const undefinedKey = {};

/** A value that is the same for equal keys; an array of texts for tuples. */
function hashable(key: Value): unknown {
  if (typeof key === "boolean") return key ? 1 : 0;
  if (key instanceof Float)
    return Number.isInteger(key.value) && !Number.isSafeInteger(key.value) ? BigInt(key.value) : key.value + 0;
  if (key instanceof Markup) return key.text;
  if (key instanceof Undefined) return undefinedKey;
  if (key instanceof Tuple) return tupleKey(key);
  if (Array.isArray(key) || key instanceof Dict) typeError(`unhashable type: '${typeName(key)}'`);
  return key;
}

const identities = new WeakMap<object, number>();
let identityCount = 0;

/** A number that identifies an object. */
function identity(object: object): number {
  let id = identities.get(object);
  if (id === undefined) {
    id = identityCount++;
    identities.set(object, id);
  }
  return id;
}

function tupleKey(tuple: Tuple): string[] {
  enter();
  charge(tuple.items.length + 1);
  const parts = tuple.items.map((item) => {
    const part = hashable(item);
    if (Array.isArray(part)) return part.join("");
    if (typeof part === "object" && part !== null) return `o${identity(part)},`;
    const text = String(part);
    return `${(typeof part)[0]}${text.length}:${text}`;
  });
  leave();
  return ["(", ...parts, ")"];
}

/** `dict.keys()`, `dict.values()` or `dict.items()`. */
export class DictView extends PyObject {
  readonly typeName: string;
  readonly dict: Dict;
  readonly kind: "keys" | "values" | "items";
  constructor(dict: Dict, kind: "keys" | "values" | "items") {
    super();
    this.dict = dict;
    this.kind = kind;
    this.typeName = `dict_${kind}`;
  }

  *[Symbol.iterator](): Generator<Value> {
    if (this.kind === "keys") yield* this.dict.keys();
    else if (this.kind === "values") yield* this.dict.values();
    else for (const entry of this.dict.entries()) yield new Tuple(entry);
  }
}

export class Range extends PyObject {
  readonly typeName = "range";
  readonly start: number;
  readonly stop: number;
  readonly step: number;
  readonly length: number;
  constructor(start: number, stop: number, step: number) {
    super();
    this.start = start;
    this.stop = stop;
    this.step = step;
    this.length = Math.max(0, Math.ceil((stop - start) / step));
  }

  *[Symbol.iterator](): Generator<Value> {
    for (let i = 0; i < this.length; i++) yield this.start + i * this.step;
  }
}

/** An iterator, such as the result of `map` or `selectattr`: lazy, and its items come once. */
export class PyIterator extends PyObject {
  readonly typeName: string;
  readonly #iterator: Iterator<Value>;
  readonly #label: string;
  /** `label` is its printed form, without the address. */
  constructor(iterator: Iterator<Value>, label: string) {
    super();
    this.#iterator = iterator;
    this.#label = label;
    this.typeName = label.split(" ")[0]!;
  }

  override describe(): string {
    return `<${this.#label} at 0x7f0000000000>`;
  }

  [Symbol.iterator](): Iterator<Value> {
    return { next: () => this.#iterator.next() };
  }
}

/** A missing name, attribute or item. It prints as ""; most other uses raise. */
export class Undefined extends PyObject {
  readonly typeName = "Undefined";
  readonly #message: () => string;
  readonly #kind: string;
  constructor(message: () => string, kind = "UndefinedError") {
    super();
    this.#message = message;
    this.#kind = kind;
  }

  fail(): never {
    throw new TemplateFault(this.#kind, this.#message());
  }
}

/** A callable value. */
export abstract class Callable extends PyObject {
  abstract call(args: readonly Value[], keywords: Keywords): Value;
}

/** Result of `namespace()`: the only object whose attributes a template can set. */
export class Namespace extends PyObject {
  readonly typeName = "TemplateNamespace";
  readonly attributes: Dict;
  constructor(attributes: Dict) {
    super();
    this.attributes = attributes;
  }

  override attribute(name: string): Value | undefined {
    return this.attributes.get(name);
  }
}

export function typeName(value: Value): string {
  if (value === null) return "NoneType";
  if (typeof value === "boolean") return "bool";
  if (typeof value === "number" || typeof value === "bigint") return "int";
  if (typeof value === "string") return "str";
  return Array.isArray(value) ? "list" : value.typeName;
}

/** Normalizes an integer: a number where it is safe, else a bigint. */
export function integer(value: number | bigint): number | bigint {
  if (typeof value === "number") return Number.isSafeInteger(value) ? value + 0 : BigInt(value);
  return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
}

export function isText(value: Value): value is string | Markup {
  return typeof value === "string" || value instanceof Markup;
}

/** The text of a str or Markup. */
export function textOf(value: string | Markup): string {
  return typeof value === "string" ? value : value.text;
}

/** An int or bool as an integer; undefined for anything else. */
export function asInteger(value: Value): number | bigint | undefined {
  if (typeof value === "number" || typeof value === "bigint") return value;
  return typeof value === "boolean" ? Number(value) : undefined;
}

/** An index, count or width: an int within the safe range. */
export function asIndex(value: Value): number {
  const index = asInteger(value);
  if (index === undefined) {
    if (value instanceof Undefined) value.fail();
    typeError(`'${typeName(value)}' object cannot be interpreted as an integer`);
  }
  if (typeof index === "bigint") fault("OverflowError", "Python int too large to convert to C ssize_t");
  return index;
}

/** Python's truth value. */
export function isTrue(value: Value): boolean {
  if (typeof value === "boolean") return value;
  if (value === null) return false;
  if (typeof value !== "object") return Boolean(value);
  if (Array.isArray(value)) return value.length > 0;
  if (value instanceof Undefined) return false;
  if (value instanceof Float) return value.value !== 0;
  if (value instanceof Markup) return value.text !== "";
  const length = lengthOf(value);
  return length === undefined || length > 0;
}

/** Objects of other modules that have a length, such as loops. */
interface Sized {
  readonly length: number;
}

/** `len(value)`; undefined for values without a length. */
export function lengthOf(value: Value): number | undefined {
  if (isText(value)) return codePointLength(textOf(value));
  if (Array.isArray(value)) return value.length;
  if (value instanceof Dict) return value.size;
  if (value instanceof Tuple) return value.items.length;
  if (value instanceof DictView) return value.dict.size;
  if (value instanceof Undefined) return 0;
  if (value instanceof PyObject && "length" in value) return (value as Sized).length;
  return undefined;
}

const SURROGATE = /[\uD800-\uDFFF]/;

/** Whether some characters take two UTF-16 units, so that the text's indices differ from Python's. */
export function hasSurrogates(text: string): boolean {
  return SURROGATE.test(text);
}

export function codePointLength(text: string): number {
  if (text.length > 64) charge(text.length / 16);
  if (!hasSurrogates(text)) return text.length;
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** `iter(value)`; TypeError where it has no items. */
export function iterate(value: Value): Iterable<Value> {
  if (Array.isArray(value) || typeof value === "string") return value;
  if (value instanceof Dict) return value.keys();
  if (value instanceof Tuple) return value.items;
  if (value instanceof Undefined) return [];
  if (value instanceof Markup) return Array.from(value.text, (character) => new Markup(character));
  if (value instanceof PyObject && Symbol.iterator in value) return value as unknown as Iterable<Value>;
  typeError(`'${typeName(value)}' object is not iterable`);
}

/** `list(value)`. */
export function toList(value: Value): Value[] {
  const list: Value[] = [];
  for (const item of iterate(value)) {
    charge();
    list.push(item);
  }
  return list;
}
