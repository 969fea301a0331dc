/** Python's operators on numbers, texts and lists. */

import { escapeHtml } from "./escape-html.ts";
import { fault, TemplateFault, typeError } from "./faults.ts";
import { unsupported as leftOut } from "./left-out.ts";
import { charge, chargeText, checkLength } from "./limits.ts";
import { toText } from "./print.ts";
import {
  asIndex,
  asInteger,
  Float,
  integer,
  isText,
  Markup,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** Most bits of an integer. Python has no limit, but prints only integers of up to 4300 digits (14,285 bits). */
const INTEGER_BITS = 2 ** 16;

/** An integer result, checked against the limit. */
function bounded(value: bigint): number | bigint {
  const result = integer(value);
  if (typeof result === "bigint" && (result < 0n ? -result : result) >> BigInt(INTEGER_BITS)) tooLong();
  return result;
}

function tooLong(): never {
  throw new TemplateFault("LimitError", `makes an integer of more than ${INTEGER_BITS} bits`);
}

export function asFloat(value: number | bigint | Float): number {
  if (value instanceof Float) return value.value;
  const result = Number(value);
  if (!Number.isFinite(result)) fault("OverflowError", "int too large to convert to float");
  return result;
}

function numeric(value: Value): number | bigint | Float | undefined {
  return value instanceof Float ? value : asInteger(value);
}

function unsupported(operator: string, a: Value, b: Value): never {
  if (a instanceof Undefined) a.fail();
  if (b instanceof Undefined) b.fail();
  typeError(`unsupported operand type(s) for ${operator}: '${typeName(a)}' and '${typeName(b)}'`);
}

interface Numbers {
  readonly int: (a: bigint, b: bigint) => Value;
  /** Result for two safe integers; undefined where it needs bigint. */
  readonly small: (a: number, b: number) => Value | undefined;
  readonly float: (a: number, b: number) => number;
}

/** The result for two numbers; undefined when either value is not a number. */
function calculate(a: Value, b: Value, { int, small, float }: Numbers): Value | undefined {
  const [x, y] = [numeric(a), numeric(b)];
  if (x === undefined || y === undefined) return undefined;
  if (x instanceof Float || y instanceof Float) return new Float(float(asFloat(x), asFloat(y)));
  if (typeof x === "number" && typeof y === "number") {
    const result = small(x, y);
    if (result !== undefined) return result;
  }
  charge(1 + (bits(x) + bits(y)) / 64);
  return int(BigInt(x), BigInt(y));
}

function bits(value: number | bigint): number {
  return typeof value === "number" ? 64 : value.toString(16).length * 4;
}

/** An integer result if it is exact in a double; undefined otherwise. */
const exact = (value: number): number | undefined => (Number.isSafeInteger(value) ? value + 0 : undefined);

const sum: Numbers = { int: (a, b) => bounded(a + b), small: (a, b) => exact(a + b), float: (a, b) => a + b };
const difference: Numbers = { int: (a, b) => bounded(a - b), small: (a, b) => exact(a - b), float: (a, b) => a - b };
const product: Numbers = { int: (a, b) => bounded(a * b), small: (a, b) => exact(a * b), float: (a, b) => a * b };

export function add(a: Value, b: Value): Value {
  if (typeof a === "string" && typeof b === "string") {
    checkLength(a.length + b.length);
    return a + b;
  }
  const number = calculate(a, b, sum);
  if (number !== undefined) return number;
  if (isText(a) && isText(b)) return addMarkup(a, b);
  if (b instanceof Undefined) b.fail();
  if (Array.isArray(a) && Array.isArray(b)) {
    charge(a.length + b.length);
    return [...a, ...b];
  }
  if (a instanceof Tuple && b instanceof Tuple) {
    charge(a.items.length + b.items.length);
    return new Tuple([...a.items, ...b.items]);
  }
  if (typeof a === "string" || Array.isArray(a) || a instanceof Tuple) {
    const name = typeName(a);
    typeError(`can only concatenate ${name} (not "${typeName(b)}") to ${name}`);
  }
  unsupported("+", a, b);
}

/** Concatenates texts of which one is Markup: the other is escaped, and the result is Markup. */
function addMarkup(a: string | Markup, b: string | Markup): Markup {
  const [x, y] = [a, b].map((part) => (part instanceof Markup ? part.text : escapeHtml(part as string))) as [
    string,
    string,
  ];
  checkLength(x.length + y.length);
  return new Markup(x + y);
}

export function subtract(a: Value, b: Value): Value {
  return calculate(a, b, difference) ?? unsupported("-", a, b);
}

export function multiply(a: Value, b: Value): Value {
  const number = calculate(a, b, product);
  if (number !== undefined) return number;
  if (a instanceof Undefined || b instanceof Undefined) unsupported("*", a, b);
  const [sequence, times] = isRepeatable(a) ? [a, b] : [b, a];
  if (!isRepeatable(sequence)) unsupported("*", a, b);
  if (asInteger(times) === undefined) typeError(`can't multiply sequence by non-int of type '${typeName(times)}'`);
  const count = Math.max(0, asIndex(times));
  if (isText(sequence)) {
    const text = textOf(sequence);
    chargeText(text.length * count);
    return sequence instanceof Markup ? new Markup(text.repeat(count)) : text.repeat(count);
  }
  const items = Array.isArray(sequence) ? sequence : sequence.items;
  charge(items.length * count);
  const repeated: Value[] = items.length === 0 ? [] : Array.from({ length: count }, () => items).flat();
  return Array.isArray(sequence) ? repeated : new Tuple(repeated);
}

function isRepeatable(value: Value): value is string | Markup | Value[] | Tuple {
  return isText(value) || Array.isArray(value) || value instanceof Tuple;
}

const quotient: Numbers = {
  int: (a, b) => (b === 0n ? zeroDivision("division by zero") : new Float(divideIntegers(a, b))),
  small: (a, b) => (b === 0 ? zeroDivision("division by zero") : new Float(a / b)),
  float: (a, b) => (b === 0 ? zeroDivision("float division by zero") : a / b),
};

function zeroDivision(message: string): never {
  fault("ZeroDivisionError", message);
}

/** The float nearest to a / b, from the quotient to 64 bits and a sticky bit for the rest. */
function divideIntegers(a: bigint, b: bigint): number {
  const [x, y] = [a < 0n ? -a : a, b < 0n ? -b : b];
  const shift = BigInt(Math.max(0, 66 - (bits(x) - bits(y))));
  const scaled = (x << shift) / y;
  const sticky = scaled * y === x << shift ? 0n : 1n;
  const result = Number((scaled << 1n) | sticky) / 2 ** (Number(shift) + 1);
  if (!Number.isFinite(result)) fault("OverflowError", "integer division result too large for a float");
  return a < 0n === b < 0n ? result : -result;
}

export function divide(a: Value, b: Value): Value {
  return calculate(a, b, quotient) ?? unsupported("/", a, b);
}

/** Remainders have the divisor's sign. */
const remainder: Numbers = {
  int: (a, b) => {
    if (b === 0n) zeroDivision("integer modulo by zero");
    const rest = a % b;
    return bounded(rest !== 0n && rest < 0n !== b < 0n ? rest + b : rest);
  },
  small: (a, b) => {
    if (b === 0) zeroDivision("integer modulo by zero");
    const rest = a % b;
    return (rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest) + 0;
  },
  float: (a, b) => {
    if (b === 0) zeroDivision("float modulo");
    const rest = a % b;
    if (rest === 0) return b < 0 ? -0 : 0;
    return rest < 0 !== b < 0 ? rest + b : rest;
  },
};

const floored: Numbers = {
  int: (a, b) => {
    if (b === 0n) zeroDivision("integer division or modulo by zero");
    return bounded((a - BigInt(remainder.int(a, b) as number | bigint)) / b);
  },
  small: (a, b) => {
    if (b === 0) zeroDivision("integer division or modulo by zero");
    return exact((a - (remainder.small(a, b) as number)) / b);
  },
  float: (a, b) => {
    if (b === 0) zeroDivision("float floor division by zero");
    const rest = a % b;
    const whole = (a - rest) / b - (rest !== 0 && rest < 0 !== b < 0 ? 1 : 0);
    if (whole === 0) return a / b < 0 || Object.is(a / b, -0) ? -0 : 0;
    const floor = Math.floor(whole);
    return whole - floor > 0.5 ? floor + 1 : floor;
  },
};

export function floorDivide(a: Value, b: Value): Value {
  return calculate(a, b, floored) ?? unsupported("//", a, b);
}

export function modulo(a: Value, b: Value): Value {
  if (isText(a)) fault("UnsupportedError", leftOut("operator", "% (of a text)"));
  return calculate(a, b, remainder) ?? unsupported("%", a, b);
}

export function power(a: Value, b: Value): Value {
  const [x, y] = [numeric(a), numeric(b)];
  if (x === undefined || y === undefined) unsupported("** or pow()", a, b);
  if (x instanceof Float || y instanceof Float) return new Float(floatPower(asFloat(x), asFloat(y)));
  if (y < 0) return new Float(floatPower(asFloat(x), asFloat(y)));
  if (x >= -1 && x <= 1) return power01(Number(x), y);
  const baseBits = typeof x === "number" ? Math.log2(Math.abs(x)) : bits(x);
  if (baseBits * Number(y) > INTEGER_BITS) tooLong();
  charge(1 + (bits(x) * Number(y)) / 64);
  return bounded(BigInt(x) ** BigInt(y));
}

/** Powers of 0, 1 and -1, whatever the exponent. */
function power01(base: number, exponent: number | bigint): number {
  if (base === 0) return Number(exponent) === 0 ? 1 : 0;
  return base === 1 || BigInt(exponent) % 2n === 0n ? 1 : -1;
}

function floatPower(base: number, exponent: number): number {
  if (base === 0 && exponent < 0) zeroDivision("0.0 cannot be raised to a negative power");
  if (base < 0 && Number.isFinite(base) && Number.isFinite(exponent) && !Number.isInteger(exponent))
    throw new TemplateFault("UnsupportedError", "complex numbers (a root of a negative number) are not supported");
  if (base === 1 || exponent === 0) return 1;
  if (base === -1 && !Number.isFinite(exponent)) return Number.isNaN(exponent) ? exponent : 1;
  const inverse = Number.isInteger(base) && exponent < 0 && exponent >= -64 ? base ** -exponent : 0;
  const result = Number.isSafeInteger(inverse) && inverse !== 0 ? 1 / inverse : base ** exponent;
  if (!Number.isFinite(result) && Number.isFinite(base) && Number.isFinite(exponent))
    fault("OverflowError", "(34, 'Numerical result out of range')");
  return result;
}

export function negate(value: Value): Value {
  if (value instanceof Float) return new Float(-value.value);
  const number = asInteger(value);
  if (number === undefined) return badOperand("-", value);
  return typeof number === "number" ? 0 - number : integer(-number);
}

export function plus(value: Value): Value {
  return value instanceof Float ? value : (asInteger(value) ?? badOperand("+", value));
}

function badOperand(operator: string, value: Value): never {
  if (value instanceof Undefined) value.fail();
  typeError(`bad operand type for unary ${operator}: '${typeName(value)}'`);
}

/** `a ~ b ~ c`: concatenates the values' texts. */
export function concatenate(values: readonly Value[]): string {
  let result = "";
  for (const value of values) result += toText(value);
  checkLength(result.length);
  return result;
}
