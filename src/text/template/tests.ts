/** Jinja's tests, which follow `is`. */
import { modulo } from "./arithmetic.ts";
import { contains, equals, isIterable, isOrdered, isSequence, type Order } from "./compare.ts";
import { toText } from "./print.ts";
import { type Signature, signature } from "./signature.ts";
import { isLower, isUpper } from "./string-methods.ts";
import { asInteger, Callable, Dict, Float, isText, Markup, textOf, Undefined, type Value } from "./values.ts";

function isSame(a: Value, b: Value): boolean {
  return a === b;
}

const order = (operator: Order) => signature("value other", (a: Value, b: Value) => isOrdered(operator, a, b));
const is = (test: (value: Value) => boolean) => signature("value", test);

const equal = signature("value other", equals);
const unequal = signature("value other", (a: Value, b: Value) => !equals(a, b));
const [less, lessOrEqual, greater, greaterOrEqual] = (["<", "<=", ">", ">="] as const).map(order) as [
  Signature,
  Signature,
  Signature,
  Signature,
];

/** Names of filters, for the test `filter`; a list, since the filters themselves import the tests. */
const FILTER_NAMES = new Set(
  (
    "abs attr capitalize count d default dictsort e escape first float indent int items join last length list " +
    "lower map max min reject rejectattr replace reverse safe select selectattr sort string sum title tojson " +
    "trim unique upper"
  ).split(" "),
);

const tests: Record<string, Signature> = {
  odd: is((value) => equals(modulo(value, 2), 1)),
  even: is((value) => equals(modulo(value, 2), 0)),
  divisibleby: signature("value num", (value: Value, by: Value) => equals(modulo(value, by), 0)),
  defined: is((value) => !(value instanceof Undefined)),
  undefined: is((value) => value instanceof Undefined),
  none: is((value) => value === null),
  boolean: is((value) => typeof value === "boolean"),
  false: is((value) => value === false),
  true: is((value) => value === true),
  integer: is((value) => typeof value === "number" || typeof value === "bigint"),
  float: is((value) => value instanceof Float),
  lower: is((value) => isLower(toText(value))),
  upper: is((value) => isUpper(toText(value))),
  string: is(isText),
  mapping: is((value) => value instanceof Dict),
  number: is((value) => asInteger(value) !== undefined || value instanceof Float),
  sequence: is(isSequence),
  iterable: is(isIterable),
  callable: is((value) => value instanceof Callable || value instanceof Undefined),
  sameas: signature("value other", isSame),
  escaped: is((value) => value instanceof Markup),
  in: signature("value seq", (value: Value, sequence: Value) => contains(sequence, value)),
  "==": equal,
  eq: equal,
  equalto: equal,
  "!=": unequal,
  ne: unequal,
  ">": greater,
  gt: greater,
  greaterthan: greater,
  ge: greaterOrEqual,
  ">=": greaterOrEqual,
  "<": less,
  lt: less,
  lessthan: less,
  "<=": lessOrEqual,
  le: lessOrEqual,
};

// A lookup in an empty dict raises TypeError for an unhashable value, as in Python.
tests.filter = is((value) => new Dict().has(value) || (isText(value) && FILTER_NAMES.has(textOf(value))));
tests.test = is((value) => new Dict().has(value) || (isText(value) && Object.hasOwn(tests, textOf(value))));

export const TESTS: ReadonlyMap<string, Signature> = new Map(Object.entries(tests));
