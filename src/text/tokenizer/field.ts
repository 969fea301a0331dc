/** Values of tokenizer.json with their paths in it, so that errors name the file and the field. */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";

/** Deepest nesting of sequences within sequences. */
const DEPTH_LIMIT = 32;

export class Field {
  readonly file: string;
  /** Path of the value, such as `model.merges[3]`. */
  readonly path: string;
  readonly value: unknown;
  readonly #depth: number;

  constructor(file: string, path: string, value: unknown, depth = 0) {
    this.file = file;
    this.path = path;
    this.value = value;
    this.#depth = depth;
    if (depth > DEPTH_LIMIT)
      throw new InvalidFileError(file, `${path}: parts are nested more than ${DEPTH_LIMIT} deep`);
  }

  /** Makes an InvalidFileError; `expected` says what the field should be. */
  expected(expected: string): InvalidFileError {
    return this.invalid(`expected ${expected} but found ${shown(this.value)}`);
  }

  invalid(problem: string): InvalidFileError {
    return new InvalidFileError(this.file, `${this.path}: ${problem}`);
  }

  unsupported(problem: string): UnsupportedError {
    return new UnsupportedError(`${this.file}: ${this.path}: ${problem}`);
  }

  /** A member of an object; its value is undefined if it is absent. */
  get(key: string): Field {
    const { value } = this;
    if (typeof value !== "object" || value === null || Array.isArray(value)) throw this.expected("an object");
    const part = Object.hasOwn(value, key) ? (value as Record<string, unknown>)[key] : undefined;
    return new Field(this.file, this.path ? `${this.path}.${key}` : key, part, this.#depth + 1);
  }

  /** A member, or null if it is absent or null. */
  optional(key: string): Field | null {
    const part = this.get(key);
    return part.value === undefined || part.value === null ? null : part;
  }

  text(): string {
    if (typeof this.value !== "string") throw this.expected("a string");
    return this.value;
  }

  /** The value as a string of one character. */
  character(): string {
    const text = this.text();
    if ([...text].length !== 1) throw this.expected("one character");
    return text;
  }

  boolean(): boolean {
    if (typeof this.value !== "boolean") throw this.expected("true or false");
    return this.value;
  }

  /** The value as a whole number from `least` to `most`. */
  count(least = 0, most = 2 ** 32 - 1): number {
    const { value } = this;
    if (!Number.isInteger(value) || (value as number) < least || (value as number) > most)
      throw this.expected(`a whole number from ${least} to ${most}`);
    return value as number;
  }

  /** The value as one of several words. */
  oneOf<T extends string>(words: readonly T[]): T {
    if (!words.includes(this.value as T)) throw this.expected(`one of ${words.join(", ")}`);
    return this.value as T;
  }

  array(): readonly unknown[] {
    if (!Array.isArray(this.value)) throw this.expected("a list");
    return this.value;
  }

  items(): Field[] {
    return this.array().map((_, place) => this.item(place));
  }

  item(place: number): Field {
    return new Field(this.file, `${this.path}[${place}]`, this.array()[place], this.#depth + 1);
  }
}

/** A description of a value for an error. */
function shown(value: unknown): string {
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object" && value !== null) return "an object";
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}
