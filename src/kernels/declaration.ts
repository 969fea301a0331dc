/**
 * How a family of kernels declares its arguments, once: their types in TypeScript, the checks of their sizes, and their order
 * in native calls, from which `npm run families` writes the readers of C++.
 */
import { ShapeError, UnsupportedError } from "../errors.ts";

/** Typed arrays by what they hold. */
interface ArrayTypes {
  readonly f32: Float32Array;
  readonly i64: BigInt64Array;
  readonly u8: Uint8Array;
}
type ElementType = keyof ArrayTypes;

/** What kernels do with an array. */
type Access = "read" | "write" | "change";

/** An array of sizes, which are numbers or names; `N` are the names. */
export interface ArrayField<
  T extends ElementType = ElementType,
  N extends string = string,
  O extends boolean = boolean,
> {
  readonly kind: "array";
  readonly type: T;
  readonly access: Access;
  /** The first size is the outermost. */
  readonly sizes: readonly (N | number)[];
  /** Whether it may be null. */
  readonly isOptional: O;
}

/** A number. `type` is that of C++; WebAssembly has a float where C++ has a double, and an address for a `size_t`. */
export interface NumberField<T extends NumberType = NumberType> {
  readonly kind: "number";
  readonly type: T;
}
type NumberType = "float" | "double" | "uint32_t" | "size_t";

/** One of some words; native code gets its place among them. */
export interface ChoiceField<C extends string = string> {
  readonly kind: "choice";
  readonly choices: readonly C[];
}

type Field = ArrayField | NumberField | ChoiceField;
export type Fields = Readonly<Record<string, Field>>;

function array<T extends ElementType, N extends string>(type: T, access: Access, sizes: readonly (N | number)[]) {
  return { kind: "array", type, access, sizes, isOptional: false } as const;
}

/** An array that kernels only read. Of results that may lie over it each value is written after it was read. */
/* @__NO_SIDE_EFFECTS__ */
export function input<T extends ElementType, N extends string>(
  type: T,
  ...sizes: readonly (N | number)[]
): ArrayField<T, N, false> {
  return array(type, "read", sizes);
}

/** An array that kernels write, and do not read before. */
/* @__NO_SIDE_EFFECTS__ */
export function output<T extends ElementType, N extends string>(
  type: T,
  ...sizes: readonly (N | number)[]
): ArrayField<T, N, false> {
  return array(type, "write", sizes);
}

/** An array that kernels read and write. */
/* @__NO_SIDE_EFFECTS__ */
export function inout<T extends ElementType, N extends string>(
  type: T,
  ...sizes: readonly (N | number)[]
): ArrayField<T, N, false> {
  return array(type, "change", sizes);
}

/** An array that kernels only read, or null. */
/* @__NO_SIDE_EFFECTS__ */
export function optional<T extends ElementType, N extends string>(
  type: T,
  ...sizes: readonly (N | number)[]
): ArrayField<T, N, true> {
  return { ...array(type, "read", sizes), isOptional: true };
}

export const float: NumberField<"float"> = { kind: "number", type: "float" };
export const double: NumberField<"double"> = { kind: "number", type: "double" };
/** A whole number from 0 on. */
export const whole: NumberField<"uint32_t"> = { kind: "number", type: "uint32_t" };

/** One of some words. */
/* @__NO_SIDE_EFFECTS__ */
export function choice<const C extends string>(choices: readonly C[]): ChoiceField<C> {
  return { kind: "choice", choices };
}

type ValueOf<F> =
  F extends ArrayField<infer T, string, infer O>
    ? ArrayTypes[T] | (O extends true ? null : never)
    : F extends ChoiceField<infer C>
      ? C
      : number;
type SizesOf<F extends Fields> = { [N in keyof F]: F[N] extends ArrayField<ElementType, infer S> ? S : never }[keyof F];

/** The arguments of a call: a value for each field, and each size that the arrays of the fields name. */
export type ArgumentsOf<F extends Fields> = { readonly [N in keyof F]: ValueOf<F[N]> } & {
  readonly [S in SizesOf<F>]: number;
};

/** Names of the sizes of arrays, in the order in which fields name them first. */
export function sizeNames(fields: Fields): string[] {
  const names = Object.values(fields).flatMap((field) => (field.kind === "array" ? field.sizes : []));
  return [...new Set(names.filter((name) => typeof name === "string"))];
}

/** The name of the number that says whether there is an array that may be null. */
const presence = (name: string): string => `has${name[0]!.toUpperCase()}${name.slice(1)}`;

/** Names of the numbers and of the arrays of a native call, in their order: sizes come first. */
export function nativeOrder(fields: Fields): {
  readonly scalars: readonly string[];
  readonly buffers: readonly string[];
} {
  const entries = Object.entries(fields);
  const scalars = entries.flatMap(([name, field]) => {
    if (field.kind !== "array") return [name];
    return field.isOptional ? [presence(name)] : [];
  });
  const buffers = entries.filter(([, { kind }]) => kind === "array").map(([name]) => name);
  return { scalars: [...sizeNames(fields), ...scalars], buffers };
}

type Values = Readonly<Record<string, unknown>>;

/** ShapeError where an array is not as long as its sizes say, UnsupportedError for a word that is no choice. */
export function checkArguments(family: string, fields: Fields, args: Values): void {
  for (const [name, field] of Object.entries(fields)) {
    if (field.kind === "choice" && !field.choices.includes(args[name] as string))
      throw new UnsupportedError(
        `${family}: expected one of ${field.choices.join(", ")} as ${name} but found ${args[name]}`,
      );
    if (field.kind !== "array" || args[name] === null) continue;
    const sizes = field.sizes.map((size) => (typeof size === "number" ? size : (args[size] as number)));
    const expected = sizes.reduce((product, size) => product * size, 1);
    const { length } = args[name] as Float32Array;
    if (length !== expected)
      throw new ShapeError(
        `${family}: expected ${expected} values of ${name} [${field.sizes.join(", ")}] but found ${length}`,
      );
  }
}

/** The numbers of a call by their names: its sizes, numbers, and choices as places. */
export function numbersOf(fields: Fields, args: Values): Record<string, number> {
  const numbers: Record<string, number> = {};
  for (const name of sizeNames(fields)) numbers[name] = args[name] as number;
  for (const [name, field] of Object.entries(fields))
    if (field.kind === "choice") numbers[name] = field.choices.indexOf(args[name] as string);
    else if (field.kind === "number") numbers[name] = args[name] as number;
    else if (field.isOptional) numbers[presence(name)] = args[name] === null ? 0 : 1;
  return numbers;
}
