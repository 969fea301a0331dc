/** Arguments of an operator call: checked against the schema, and read by name. */
import { type DType, dtypes } from "../dtype.ts";
import { InvalidArgumentError, ShapeError } from "../errors.ts";
import { elementCount } from "../tensor.ts";
import { type ArgumentType, qualifiedName, type Schema } from "./schema.ts";

/** Dtype and shape of a tensor, without its values. */
export interface TensorSpec {
  /** Type of the elements. */
  readonly dtype: DType;
  /** Sizes of the tensor. */
  readonly shape: readonly number[];
}

/** InvalidArgumentError for a dtype or shape that no tensor can have. */
export function checkSpec(what: string, spec: TensorSpec): void {
  const { dtype, shape } = spec ?? {};
  if (!dtypes.includes(dtype))
    throw new InvalidArgumentError(`${what}: expected dtype ${dtypes.join(", ")} but found ${dtype}`);
  if (!shape?.every((size) => Number.isSafeInteger(size) && size >= 0))
    throw new InvalidArgumentError(`${what}: expected whole numbers from 0 on as sizes but found [${shape}]`);
  // In an empty tensor, other sizes could be so large that their product overflows, or that loops over them never end.
  if (!Number.isSafeInteger(elementCount(shape.filter((size) => size > 0))))
    throw new InvalidArgumentError(`${what}: expected sizes of fewer than 2^53 elements but found [${shape}]`);
}

/** An operator argument: a tensor (or its spec), or a literal. */
export type Argument<T> = T | number | boolean | string | null | readonly number[] | readonly (T | null)[];

/** Typed access to the arguments of one call, by name. `T` is a spec in shape rules and a tensor in kernels. */
export class Arguments<T extends TensorSpec> {
  /** Schema of the operator that is called. */
  readonly schema: Schema;
  readonly #values: readonly Argument<T>[];

  constructor(schema: Schema, values: readonly Argument<T>[]) {
    this.schema = schema;
    this.#values = values;
  }

  /** The value of an argument; undefined when the schema has no such argument. */
  #value(name: string): Argument<T> | undefined {
    const { args } = this.schema;
    for (let i = 0; i < args.length; i++) if (args[i]!.name === name) return this.#values[i] ?? null;
    return undefined;
  }

  /** The tensor of this name. ShapeError unless it has one of `dtypes`, when any are given. */
  tensor(name: string, ...dtypes: DType[]): T {
    const value = this.optionalTensor(name, ...dtypes);
    if (value === null) throw new ShapeError(`${this.#where(name)}: expected a tensor but found none`);
    return value;
  }

  /** The tensor of this name, or null where the call has none. ShapeError for other types than `dtypes`. */
  optionalTensor(name: string, ...dtypes: DType[]): T | null {
    const value = this.#value(name);
    if (value === null || value === undefined) return null;
    if (typeof value !== "object" || !("shape" in value))
      throw new ShapeError(`${this.#where(name)}: expected a tensor but found ${describe(value)}`);
    if (dtypes.length > 0 && !dtypes.includes(value.dtype))
      throw new ShapeError(`${this.#where(name)}: expected dtype ${dtypes.join(" or ")} but found ${value.dtype}`);
    return value;
  }

  /** All tensors of the call with their arguments' names; tensors of a list have the list's name. */
  *allTensors(): Generator<readonly [string, T]> {
    for (const [i, { name }] of this.schema.args.entries()) {
      const value = this.#values[i] ?? null;
      for (const item of Array.isArray(value) ? value : [value])
        if (typeof item === "object" && item && "shape" in item) yield [name, item as T];
    }
  }

  /** The first tensor of the call, usually its main input. */
  firstTensor(): T {
    for (const value of this.#values.slice(0, this.schema.args.length)) {
      if (typeof value === "object" && value && "shape" in value) return value;
    }
    throw new ShapeError(`${qualifiedName(this.schema)}: expected a tensor but found none`);
  }

  /** The number of this name. A boolean is accepted only where the schema says Scalar. */
  number(name: string): number {
    const value = this.#value(name);
    if (typeof value === "boolean" && this.schema.args.find((arg) => arg.name === name)?.type.startsWith("Scalar"))
      return Number(value);
    if (typeof value !== "number")
      throw new ShapeError(`${this.#where(name)}: expected a number but found ${describe(value)}`);
    return value;
  }

  /** The whole number of this name, such as a size or index. ShapeError for one below `least`. */
  integer(name: string, least = Number.MIN_SAFE_INTEGER): number {
    const value = this.number(name);
    if (!Number.isSafeInteger(value) || value < least) {
      const bound = least === Number.MIN_SAFE_INTEGER ? "" : ` of at least ${least}`;
      this.fail(name, `expected a whole number${bound} but found ${value}`);
    }
    return value;
  }

  /** The number of this name, or null where the call has none. */
  optionalNumber(name: string): number | null {
    return this.#value(name) === null ? null : this.number(name);
  }

  /** The list of numbers of this name. */
  numbers(name: string): readonly number[] {
    const value = this.#value(name);
    if (!Array.isArray(value) || value.some((item) => typeof item !== "number"))
      throw new ShapeError(`${this.#where(name)}: expected a list of numbers but found ${describe(value)}`);
    const numbers = value as readonly number[];
    if (this.schema.args.find((arg) => arg.name === name)?.type.startsWith("int[]"))
      for (const item of numbers)
        if (!Number.isSafeInteger(item)) this.fail(name, `expected whole numbers but found ${item}`);
    return numbers;
  }

  /** The list of numbers of this name, or null where the call has none. */
  optionalNumbers(name: string): readonly number[] | null {
    return this.#value(name) === null ? null : this.numbers(name);
  }

  /** The list of tensors of this name; null where an optional one is missing. */
  tensors(name: string): readonly (T | null)[] {
    const value = this.#value(name);
    const isTensor = (item: unknown) => item === null || (typeof item === "object" && "shape" in item);
    if (!Array.isArray(value) || !value.every(isTensor))
      throw new ShapeError(`${this.#where(name)}: expected a list of tensors but found ${describe(value)}`);
    return value as readonly (T | null)[];
  }

  /** The string of this name. */
  string(name: string): string {
    const value = this.#value(name);
    if (typeof value !== "string")
      throw new ShapeError(`${this.#where(name)}: expected a string but found ${describe(value)}`);
    return value;
  }

  /** The string of this name, or null where the call has none. */
  optionalString(name: string): string | null {
    return this.#value(name) === null ? null : this.string(name);
  }

  /** The boolean of this name. */
  boolean(name: string): boolean {
    return this.#value(name) === true;
  }

  /** Throws a ShapeError that begins with operator and argument. */
  fail(name: string, problem: string): never {
    throw new ShapeError(`${this.#where(name)}: ${problem}`);
  }

  #where(name: string): string {
    return `${qualifiedName(this.schema)}, argument ${name}`;
  }
}

/** An argument for messages: literals as they are, tensors by their spec. */
export function describe(value: Argument<TensorSpec> | undefined): string {
  if (typeof value !== "object" || value === null) return String(value);
  if ("shape" in value) return `a ${value.dtype} tensor [${value.shape}]`;
  return `a list of ${value.length}`;
}

/**
 * Completes a call's arguments with the schema's defaults. ShapeError for a missing one, one of another type, or too many.
 */
export function completeArguments<T>(schema: Schema, given: readonly Argument<T>[]): Argument<T>[] {
  const inputs = schema.args.filter((arg) => !arg.isOut);
  if (given.length > inputs.length)
    throw new ShapeError(`${qualifiedName(schema)}: expected ${inputs.length} arguments but found ${given.length}`);
  return inputs.map((arg, i) => {
    const value = i < given.length ? given[i] : arg.default;
    if (value === undefined) throw new ShapeError(`${qualifiedName(schema)}: argument ${arg.name} is missing`);
    const where = `${qualifiedName(schema)}, argument ${arg.name}`;
    const expected = literalProblem(arg.type, value);
    if (expected !== null)
      throw new ShapeError(`${where}: expected ${expected} but found ${describe(value as Argument<TensorSpec>)}`);
    for (const [index, item] of Array.isArray(value) ? value.entries() : []) {
      const itemExpected = literalProblem(itemType(arg.type), item);
      if (itemExpected !== null)
        throw new ShapeError(`${where}, item ${index}: expected ${itemExpected} but found ${describe(item)}`);
    }
    return value;
  });
}

/** Checks of literals and lists by argument type; other objects are tensors, or numbers that are computed at run time. */
const literals: readonly [RegExp, string, (item: unknown) => boolean][] = [
  [/^int$/, "a whole number", Number.isSafeInteger],
  [/^float$/, "a number", (item) => typeof item === "number"],
  [/^Scalar$/, "a number", (item) => typeof item === "number" || typeof item === "boolean"],
  [/^bool$/, "true or false", (item) => typeof item === "boolean"],
  [/^str$/, "a string", (item) => typeof item === "string"],
  [/^Tensor$/, "a tensor", () => false],
  [/\[\]$/, "a list", Array.isArray],
];

/** What an argument type expects, where a literal, list or null does not fit it; else null. */
export function literalProblem(type: ArgumentType, value: unknown): string | null {
  if (value === null ? type.endsWith("?") : typeof value === "object" && !Array.isArray(value)) return null;
  const [, expected, fits] = literals.find(([pattern]) => pattern.test(type.replace(/\?$/, "")))!;
  return fits(value) ? null : expected;
}

/** The type of a list's items. */
function itemType(type: ArgumentType): ArgumentType {
  return type.replace(/\[\]\??$/, "") as ArgumentType;
}
