/** Checks of arguments for callers without types, who may, for example, pass a model that was not awaited. */
import { InvalidArgumentError } from "./errors.ts";

/** Type of a value for messages: "Promise", "Null", or the name of its class. */
function foundType(value: unknown): string {
  const kind = Object.prototype.toString.call(value).slice(8, -1);
  return kind === "Object" ? ((value as object).constructor?.name ?? kind) : kind;
}

/** A value for messages: the first 200 characters of its JSON, or its type where it has none. */
export function shown(value: unknown): string {
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "symbol" || typeof value === "function") return foundType(value);
  if (typeof value === "number" || value === undefined) return String(value);
  try {
    const text = JSON.stringify(value);
    return text.length > 200 ? `${text.slice(0, 200)}…` : text;
  } catch {
    return foundType(value);
  }
}

export function checkString(name: string, value: unknown): void {
  if (typeof value !== "string") throw unexpected(name, "a string", value);
}

export function checkIds(name: string, ids: unknown, expected = "a list of token ids"): void {
  if (!Array.isArray(ids) && !ArrayBuffer.isView(ids))
    throw new InvalidArgumentError(`${name}: expected ${expected} but found ${shown(ids)}`);
  const list = ids as ArrayLike<unknown>;
  for (let i = 0; i < list.length; i++)
    if (!Number.isInteger(list[i]) || (list[i] as number) < 0 || (list[i] as number) >= 2 ** 32)
      throw new InvalidArgumentError(`${name}: expected token ids but found ${shown(list[i])} at index ${i}`);
}

/** Most nesting of lists and objects, the same as `parseJson` allows. */
const NESTING_MAX = 256;

/** InvalidArgumentError for a value that is nested too deeply for recursive functions. */
export function checkNestingOf(name: string, value: unknown): void {
  const waiting = [{ item: value, depth: 0 }];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const { item, depth } = next;
    if (typeof item !== "object" || item === null) continue;
    if (depth === NESTING_MAX)
      throw new InvalidArgumentError(
        `${name}: expected at most ${NESTING_MAX} levels of lists and objects but found more`,
      );
    for (const part of Object.values(item)) waiting.push({ item: part, depth: depth + 1 });
  }
}

/** Gives the value back. InvalidArgumentError for anything but a whole number from `min` to `max`. */
export function checkWhole(name: string, value: unknown, min: number, max = Number.POSITIVE_INFINITY): number {
  if (Number.isInteger(value) && (value as number) >= min && (value as number) <= max) return value as number;
  const bound = max === Number.POSITIVE_INFINITY ? "" : ` to ${max}`;
  throw new InvalidArgumentError(`${name}: expected a whole number from ${min}${bound} but found ${shown(value)}`);
}

/** InvalidArgumentError for anything but an instance of a class; `expected` says where to get one. */
export function checkInstance(
  name: string,
  value: unknown,
  type: abstract new (...args: never) => unknown,
  expected: string,
): void {
  if (!(value instanceof type)) throw unexpected(name, expected, value);
}

/** InvalidArgumentError for anything but an object with these fields; `expected` says where to get one. */
export function checkFields(name: string, value: unknown, fields: readonly string[], expected: string): void {
  if (typeof value !== "object" || value === null || !fields.every((field) => field in value))
    throw unexpected(name, expected, value);
}

/** InvalidArgumentError for anything but a list of objects with these fields; `expected` says where to get one. */
export function checkList(name: string, value: unknown, fields: readonly string[], expected: string): void {
  if (!Array.isArray(value)) throw unexpected(name, `a list of ${expected}`, value);
  for (const [i, item] of value.entries()) checkFields(`${name}[${i}]`, item, fields, `one of ${expected}`);
}

/** What an option's value must be, and the check for it. */
type Kind = readonly [expected: string, isIt: (value: never) => boolean];

const flag: Kind = ["true or false", (value: unknown) => typeof value === "boolean"];
const text: Kind = ["a string", (value: unknown) => typeof value === "string"];
const number: Kind = ["a number", (value: unknown) => typeof value === "number"];
const callback: Kind = ["a function", (value: unknown) => typeof value === "function"];

/**
 * Kinds of options by name, which is the same in all functions that have the option. Other options, and ranges, are checked
 * where they are used.
 */
const optionKinds: Readonly<Record<string, Kind>> = {
  signal: [
    "an AbortSignal",
    (value: AbortSignal | null) => value === null || typeof value.throwIfAborted === "function",
  ],
  cpu: ["one of cpuWith()", (value: { features?: unknown } | null) => value?.features instanceof Set],
  registry: ["an OperatorRegistry", (value: { register?: unknown } | null) => typeof value?.register === "function"],
  profile: ["a Profile", (value: { track?: unknown } | null) => typeof value?.track === "function"],
  settings: ["settings of a hub", (value: { cache?: unknown } | null) => typeof value?.cache === "string"],
  resumeKey: ["a string or null", (value: unknown) => value === null || typeof value === "string"],
  ...Object.fromEntries(["folder", "calibrationText", "pair"].map((name) => [name, text])),
  ...Object.fromEntries(["smoothQuant", "codebooks", "cacheBytes", "warmUpMs"].map((name) => [name, number])),
  ...Object.fromEntries(
    [
      "onProgress",
      "onPlan",
      "onWait",
      "onEnd",
      "onDamagedPart",
      "onToolCall",
      "onLeaveOut",
      "skip",
      "wanted",
      "read",
    ].map((name) => [name, callback]),
  ),
  ...Object.fromEntries(
    [
      ...["resume", "quantizeHead", "ignoreEos", "truncate", "addSpecialTokens", "allowControlTokens", "truncation"],
      ...["padding", "skipSpecialTokens", "stream", "trace"],
    ].map((name) => [name, flag]),
  ),
};

/** InvalidArgumentError for options that are no object, and for an option of the wrong kind. */
export function checkOptions(options: object): void {
  if (typeof options !== "object" || options === null || Array.isArray(options))
    throw unexpected("options", "an object", options);
  for (const [name, value] of Object.entries(options)) {
    const kind = value === undefined || !Object.hasOwn(optionKinds, name) ? undefined : optionKinds[name]!;
    if (kind && !kind[1](value as never)) throw unexpected(name, kind[0], value);
  }
}

/** The error for an argument of the wrong kind. */
export function unexpected(name: string, expected: string, found: unknown): InvalidArgumentError {
  const hint = found instanceof Promise ? "; await it" : "";
  return new InvalidArgumentError(`${name}: expected ${expected} but found ${foundType(found)}${hint}`);
}
