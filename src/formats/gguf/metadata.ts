/** Typed access to the metadata of a GGUF file. */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import { quote } from "../json.ts";
import type { GgufValue } from "./header.ts";

/** Far beyond any model; products of dimensions stay exact. */
const SIZE_MAX = 1 << 30;

export class GgufMetadata {
  readonly file: string;
  /** The value of general.architecture, which also prefixes the keys that describe the model. */
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

  /** Value of a key as a whole number; a bigint beyond 2^53. Null without the key. */
  integer(key: string): number | bigint | null {
    const value = this.#get(key) ?? null;
    if (value !== null && typeof value !== "bigint" && !Number.isInteger(value))
      this.#fail(key, "a whole number", value);
    return value as number | bigint | null;
  }

  /** Value of a key as a whole number from 1 to `most`; null without the key. */
  size(key: string, most = SIZE_MAX): number | null {
    return this.#checkedSize(key, this.number(key), most);
  }

  /** Value of a key as a positive finite number; null without the key. */
  positive(key: string): number | null {
    const value = this.number(key);
    if (value !== null && !(value > 0 && value < Number.POSITIVE_INFINITY)) this.#fail(key, "a positive number", value);
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

  /** Value of a size that may be a list by layer, when all layers have the same. */
  sameSize(key: string, most = SIZE_MAX): number | null {
    const value = this.#get(key);
    if (!Array.isArray(value)) return this.size(key, most);
    const numbers = this.numbers(key)!;
    if (numbers.some((item) => item !== numbers[0]))
      throw new UnsupportedError(`${this.file}: ${this.#full(key)} that differs between layers is not supported`);
    return this.#checkedSize(key, numbers[0] ?? null, most);
  }

  /** Whether the value is a list. */
  isList(key: string): boolean {
    return Array.isArray(this.#get(key));
  }

  /** Value of a key as a list of booleans, which may be stored as numbers. */
  flags(key: string): readonly boolean[] {
    const value = this.#get(key);
    if (!Array.isArray(value) || value.some((item) => typeof item !== "boolean" && typeof item !== "number"))
      this.#fail(key, "a list of true and false", value ?? "");
    return value.map(Boolean);
  }

  /** The key as it is written in the file. */
  fullKey(key: string): string {
    return this.#full(key);
  }

  #checkedSize(key: string, value: number | null, most: number): number | null {
    if (value !== null && !(Number.isInteger(value) && value >= 1 && value <= most))
      this.#fail(key, `a whole number from 1 to ${most}`, value);
    return value;
  }

  /** Value of a key, in which `{arch}` stands for the architecture's name. */
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
    const shown = Array.isArray(found) ? "a list" : typeof found === "string" ? quote(found) : `${found}`;
    throw new InvalidFileError(this.file, `metadata ${this.#full(key)}: expected ${expected} but found ${shown}`);
  }
}
