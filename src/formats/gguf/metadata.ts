/** Typed access to the metadata of a GGUF file. */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import type { GgufValue } from "./header.ts";

export class GgufMetadata {
  readonly file: string;
  /** general.architecture: prefix of the keys that describe the model. */
  readonly architecture: string;
  readonly #values: ReadonlyMap<string, GgufValue>;

  constructor(file: string, values: ReadonlyMap<string, GgufValue>) {
    this.file = file;
    this.#values = values;
    this.architecture = this.string("general.architecture") ?? "";
  }

  string(key: string): string | null {
    const value = this.#get(key) ?? null;
    if (value !== null && typeof value !== "string") this.#fail(key, "a string", value);
    return value;
  }

  number(key: string): number | null {
    const value = this.#get(key) ?? null;
    if (value !== null && typeof value !== "number") this.#fail(key, "a number", value);
    return value;
  }

  boolean(key: string): boolean | null {
    const value = this.#get(key) ?? null;
    if (value !== null && typeof value !== "boolean") this.#fail(key, "true or false", value);
    return value;
  }

  strings(key: string): readonly string[] | null {
    return this.#list(key, "string") as readonly string[] | null;
  }

  numbers(key: string): readonly number[] | null {
    return this.#list(key, "number") as readonly number[] | null;
  }

  /** A number that may be given for each layer, when it is the same for all. */
  sameNumber(key: string): number | null {
    const value = this.#get(key);
    if (!Array.isArray(value)) return this.number(key);
    const numbers = this.numbers(key)!;
    if (numbers.some((item) => item !== numbers[0]))
      throw new UnsupportedError(`${this.file}: ${key} that differs between layers is not supported`);
    return numbers[0] ?? null;
  }

  /** Keys that begin with `{arch}.` have the architecture's name there. */
  #get(key: string): GgufValue | undefined {
    return this.#values.get(this.#full(key));
  }

  #full(key: string): string {
    return key.replace(/^\{arch\}/, () => this.architecture);
  }

  #list(key: string, type: "string" | "number"): readonly GgufValue[] | null {
    const value = this.#get(key) ?? null;
    if (value !== null && !(Array.isArray(value) && value.every((item) => typeof item === type)))
      this.#fail(key, `a list of ${type}s`, value);
    return value as readonly GgufValue[] | null;
  }

  #fail(key: string, expected: string, found: GgufValue): never {
    const shown = Array.isArray(found) ? "a list" : `a ${typeof found}`;
    throw new InvalidFileError(this.file, `metadata ${this.#full(key)}: expected ${expected} but found ${shown}`);
  }
}
