/** Reads fields of a config.json, with the checks that an untrusted file needs. */
import { InvalidFileError, UnsupportedError } from "../errors.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

/** Largest size, far beyond any model's, so that products of sizes are exact. */
const SIZE_MAX = 1 << 30;

export class ConfigReader {
  readonly file: string;
  readonly fields: JsonObject;

  constructor(file: string, fields: JsonObject) {
    this.file = file;
    this.fields = fields;
  }

  /** The config with some fields replaced. */
  with(fields: JsonObject): ConfigReader {
    return new ConfigReader(this.file, { ...this.fields, ...fields });
  }

  /** The config with defaults for fields that are absent or null. */
  withDefaults(fields: JsonObject): ConfigReader {
    return this.with(Object.fromEntries(Object.entries(fields).filter(([name]) => !this.has(name))));
  }

  /** The config without some fields. */
  without(...names: string[]): ConfigReader {
    return new ConfigReader(
      this.file,
      Object.fromEntries(Object.entries(this.fields).filter(([n]) => !names.includes(n))),
    );
  }

  has(name: string): boolean {
    return this.fields[name] !== undefined && this.fields[name] !== null;
  }

  /** A whole number from 1 to `most`. */
  size(name: string, fallback?: number, most = SIZE_MAX): number {
    const value = this.number(name, fallback);
    if (!Number.isInteger(value) || value < 1) this.#fail(name, "a positive integer", value);
    if (value > most) this.#fail(name, `at most ${most}`, value);
    return value;
  }

  /** A whole number from 0 to `SIZE_MAX`. */
  count(name: string, fallback?: number): number {
    return this.number(name, fallback) === 0 ? 0 : this.size(name, fallback);
  }

  /** A finite number. */
  number(name: string, fallback?: number): number {
    const value = this.fields[name] ?? fallback;
    if (typeof value !== "number" || !Number.isFinite(value)) this.#fail(name, "a number", value);
    return value;
  }

  /** A finite number above 0. */
  positive(name: string, fallback?: number): number {
    const value = this.number(name, fallback);
    if (value <= 0) this.#fail(name, "a positive number", value);
    return value;
  }

  /** A finite number from 0 on. */
  notNegative(name: string, fallback?: number): number {
    const value = this.number(name, fallback);
    if (value < 0) this.#fail(name, "a number from 0 on", value);
    return value;
  }

  /** A size, or null where the config says null; `fallback` where the field is absent. */
  sizeOrNull(name: string, fallback: number | null, most = SIZE_MAX): number | null {
    const value = this.fields[name] === undefined ? fallback : this.fields[name];
    return value === null ? null : this.size(name, fallback ?? undefined, most);
  }

  /** A number, or null where the config says null; `fallback` where the field is absent. */
  numberOrNull(name: string, fallback: number | null): number | null {
    const value = this.fields[name] === undefined ? fallback : this.fields[name];
    return value === null ? null : this.number(name, fallback ?? undefined);
  }

  /** A list of `length` numbers. */
  numbers(name: string, length: number): readonly number[] {
    const values = this.#list(name);
    if (values.length !== length || !values.every((value) => Number.isFinite(value)))
      this.#fail(name, `a list of ${length} numbers`, values);
    return values as number[];
  }

  /** The first `length` items of a list, each one of `allowed`; null without a list. */
  choices<C extends string | number>(name: string, length: number, allowed: readonly C[]): readonly C[] | null {
    if (!this.has(name)) return null;
    const values = this.#list(name).slice(0, length);
    if (values.length < length) this.#fail(name, `a list of at least ${length}`, values);
    const other = values.find((value) => !allowed.includes(value as C));
    if (other !== undefined)
      throw new UnsupportedError(
        `${this.file}: ${name} with ${shown(other)} is not supported, only ${allowed.join(", ")}`,
      );
    return values as C[];
  }

  /** A boolean; null counts as false, as in Python. */
  boolean(name: string, fallback: boolean): boolean {
    const { [name]: value = fallback } = this.fields;
    if (value === null) return false;
    if (typeof value !== "boolean") this.#fail(name, "true or false", value);
    return value;
  }

  string(name: string, fallback?: string): string {
    const value = this.fields[name] ?? fallback;
    if (typeof value !== "string") this.#fail(name, "a string", value);
    return value;
  }

  /** The object of this name; an empty one when it is absent. */
  object(name: string): ConfigReader {
    const value = this.fields[name] ?? {};
    if (typeof value !== "object" || Array.isArray(value)) this.#fail(name, "an object", value);
    return new ConfigReader(`${this.file}, ${name}`, value as JsonObject);
  }

  /** UnsupportedError unless the string is one of `allowed`. */
  oneOf(name: string, allowed: readonly string[], fallback?: string): string {
    const value = this.string(name, fallback);
    if (!allowed.includes(value))
      throw new UnsupportedError(`${this.file}: ${name} ${shown(value)} is not supported, only ${allowed.join(", ")}`);
    return value;
  }

  #list(name: string): readonly unknown[] {
    const value = this.fields[name];
    if (!Array.isArray(value)) this.#fail(name, "a list", value);
    return value;
  }

  #fail(name: string, expected: string, found: unknown): never {
    throw new InvalidFileError(this.file, `${name}: expected ${expected} but found ${shown(found)}`);
  }
}

/** Most characters of a value in a message, since files may have values of any size. */
const SHOWN_MAX = 80;

/** A value as JSON, cut to `SHOWN_MAX` characters. */
export function shown(value: unknown): string {
  const short = typeof value === "string" ? value.slice(0, SHOWN_MAX + 1) : value;
  const items = Array.isArray(short) ? short.slice(0, SHOWN_MAX) : short;
  const text = typeof items === "number" ? String(items) : textOf(items);
  return text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text;
}

function textOf(value: unknown): string {
  try {
    return JSON.stringify(value) ?? "undefined";
  } catch {
    return "a value too deep to show";
  }
}
