/** Reads fields of a config.json with the checks that a file from elsewhere needs. */
import { InvalidFileError, UnsupportedError } from "../errors.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

/** Far beyond any model; keeps products of dimensions exact. */
const SIZE_MAX = 1 << 30;

export class ConfigReader {
  readonly file: string;
  readonly #fields: JsonObject;

  constructor(file: string, fields: JsonObject) {
    this.file = file;
    this.#fields = fields;
  }

  has(name: string): boolean {
    return this.#fields[name] !== undefined && this.#fields[name] !== null;
  }

  /** A positive integer. */
  size(name: string, fallback?: number): number {
    const value = this.number(name, fallback);
    if (!Number.isInteger(value) || value < 1 || value > SIZE_MAX) this.#fail(name, "a positive integer", value);
    return value;
  }

  /** A finite number. */
  number(name: string, fallback?: number): number {
    const value = this.#fields[name] ?? fallback;
    if (typeof value !== "number" || !Number.isFinite(value)) this.#fail(name, "a number", value);
    return value;
  }

  boolean(name: string, fallback: boolean): boolean {
    const value = this.#fields[name] ?? fallback;
    if (typeof value !== "boolean") this.#fail(name, "true or false", value);
    return value;
  }

  string(name: string, fallback?: string): string {
    const value = this.#fields[name] ?? fallback;
    if (typeof value !== "string") this.#fail(name, "a string", value);
    return value;
  }

  /** The object of that name; one without fields when it is absent. */
  object(name: string): ConfigReader {
    const value = this.#fields[name] ?? {};
    if (typeof value !== "object" || Array.isArray(value)) this.#fail(name, "an object", value);
    return new ConfigReader(`${this.file}, ${name}`, value as JsonObject);
  }

  /** UnsupportedError unless the string is one of `allowed`. */
  oneOf(name: string, allowed: readonly string[], fallback?: string): string {
    const value = this.string(name, fallback);
    if (!allowed.includes(value))
      throw new UnsupportedError(`${this.file}: ${name} "${value}" is not supported, only ${allowed.join(", ")}`);
    return value;
  }

  #fail(name: string, expected: string, found: unknown): never {
    throw new InvalidFileError(this.file, `${name}: expected ${expected} but found ${JSON.stringify(found)}`);
  }
}
