/** Checks of arguments that programs without types may get wrong, such as a model that was not awaited. */
import { InvalidArgumentError } from "./errors.ts";

/** What kind of value was found: "Promise", "Null", or the name of a class. */
function foundType(value: unknown): string {
  const kind = Object.prototype.toString.call(value).slice(8, -1);
  return kind === "Object" ? ((value as object).constructor?.name ?? kind) : kind;
}

export function checkString(name: string, value: unknown): void {
  if (typeof value !== "string") throw unexpected(name, "a string", value);
}

export function checkIds(name: string, ids: unknown, expected = "a list of token ids"): void {
  if (!Array.isArray(ids) && !ArrayBuffer.isView(ids))
    throw new InvalidArgumentError(`${name}: expected ${expected} but found ${JSON.stringify(ids)}`);
}

/** The value; InvalidArgumentError for what is no whole number from `min` to `max`. */
export function checkWhole(name: string, value: unknown, min: number, max = Number.POSITIVE_INFINITY): number {
  if (Number.isInteger(value) && (value as number) >= min && (value as number) <= max) return value as number;
  const bound = max === Number.POSITIVE_INFINITY ? "" : ` to ${max}`;
  throw new InvalidArgumentError(`${name}: expected a whole number from ${min}${bound} but found ${String(value)}`);
}

/** InvalidArgumentError for what is no instance of a class; `expected` says what makes one. */
export function checkInstance(
  name: string,
  value: unknown,
  type: abstract new (...args: never) => unknown,
  expected: string,
): void {
  if (!(value instanceof type)) throw unexpected(name, expected, value);
}

/** InvalidArgumentError for options that are no object, and for a `signal` or `cpu` among them that is none. */
export function checkOptions(options: object): void {
  if (typeof options !== "object" || options === null) throw unexpected("options", "an object", options);
  const { signal, cpu } = options as { signal?: AbortSignal; cpu?: { features?: unknown } };
  if (signal && typeof signal.throwIfAborted !== "function") throw unexpected("signal", "an AbortSignal", signal);
  if (cpu !== undefined && !(cpu?.features instanceof Set)) throw unexpected("cpu", "one of cpuWith()", cpu);
}

/** The error for an argument of another kind than expected. */
export function unexpected(name: string, expected: string, found: unknown): InvalidArgumentError {
  const hint = found instanceof Promise ? "; await it" : "";
  return new InvalidArgumentError(`${name}: expected ${expected} but found ${foundType(found)}${hint}`);
}
