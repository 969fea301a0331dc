/**
 * Declares the arguments of a kernel family once: their TypeScript types, the checks of their sizes, and their order in native
 * calls, from which `npm run families` generates C++ structs and their readers.
 */
import type { ArrayOf } from "../dtype.ts";
import { ShapeError, UnsupportedError } from "../errors.ts";

/** Typed arrays by element type; `any` is for arrays whose type another argument gives. */
type ArrayTypes = { readonly [T in "f32" | "i64" | "u64" | "i32" | "u32" | "i8" | "u8"]: ArrayOf<T> } & {
  readonly any: ArrayBufferView;
};
type ElementType = keyof ArrayTypes;

/** How kernels use an array. */
type Access = "read" | "write" | "change";

/** An array argument. Its sizes are numbers or names; `N` are the names that are separate arguments. */
export interface ArrayField<
  T extends ElementType = ElementType,
  N extends string = string,
  O extends boolean = boolean,
> {
  /** Distinguishes arrays from other fields. */
  readonly kind: "array";
  /** Element type. */
  readonly type: T;
  /** How kernels use the array. */
  readonly access: Access;
  /** Sizes, outermost first. Null for arrays whose length is no product of sizes. */
  readonly sizes: readonly (N | number)[] | null;
  /** Whether it may be null. */
  readonly isOptional: O;
  /** Name of its only size, for arrays whose length defines that size rather than an argument. */
  readonly counts?: string;
  /** Size names, for TypeScript only: never present at run time. */
  readonly names?: N;
}

/** A number argument. `type` is its C++ type; WebAssembly uses a float for a double and an address for a `size_t`. */
export interface NumberField<T extends NumberType = NumberType> {
  /** Distinguishes numbers from other fields. */
  readonly kind: "number";
  /** Type of the number in C++. */
  readonly type: T;
}
type NumberType = "float" | "double" | "uint32_t" | "size_t" | "bool";

/** Several numbers, which are an array in C++. */
interface NumbersField {
  /** Distinguishes several numbers from other fields. */
  readonly kind: "numbers";
  /** Type of each number in C++. */
  readonly type: "uint32_t";
  /** Number of the numbers. */
  readonly count: number;
}

/** One of several words; native code gets its index. */
export interface ChoiceField<C extends string = string> {
  /** Distinguishes choices from other fields. */
  readonly kind: "choice";
  /** The words, by index. */
  readonly choices: readonly C[];
}

type PlainField = ArrayField | NumberField | NumbersField | ChoiceField;
export type PlainFields = Readonly<Record<string, PlainField>>;
type Values = Readonly<Record<string, unknown>>;

/**
 * A value `V` that native code gets as several fields. It defines the sizes `S`, and refers to sizes `N` that are arguments.
 */
export interface RecordField<V = unknown, S extends string = string, N extends string = string> {
  /** Distinguishes records from other fields. */
  readonly kind: "record";
  /** The native fields that replace a field of this name. */
  fields(name: string): PlainFields;
  /** Values of these fields, and of the sizes, for a value of that name among all arguments. */
  values(value: V, name: string, args: Values): Values;
  /** Sizes that the value defines, for TypeScript only: never present at run time. */
  readonly has?: S;
  /** Sizes that its fields refer to, for TypeScript only: never present at run time. */
  readonly names?: N;
}

type Field = PlainField | RecordField;
export type Fields = Readonly<Record<string, Field>>;

function array<T extends ElementType, N extends string>(type: T, access: Access, sizes: readonly (N | number)[]) {
  return { kind: "array", type, access, sizes, isOptional: false } as const;
}

/** An array that kernels only read. If a result may overlap it, each element is read before it is overwritten. */
/* @__NO_SIDE_EFFECTS__ */
export function input<T extends ElementType, N extends string>(
  type: T,
  ...sizes: readonly (N | number)[]
): ArrayField<T, N, false> {
  return array(type, "read", sizes);
}

/** An array that kernels write without reading it first. */
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

/** An array of any length. */
/* @__NO_SIDE_EFFECTS__ */
export function unsized<T extends ElementType>(type: T, access: Access = "read"): ArrayField<T, never, false> {
  return { kind: "array", type, access, sizes: null, isOptional: false };
}

/** An array whose length is a named size and no separate argument: C++ and other arrays refer to it by that name. */
/* @__NO_SIDE_EFFECTS__ */
export function list<T extends ElementType, S extends string>(
  type: T,
  counts: S,
  access: Access = "read",
): ArrayField<T, S, false> & { readonly counts: S } {
  return { ...array(type, access, [counts]), counts };
}

export const float: NumberField<"float"> = { kind: "number", type: "float" };
export const double: NumberField<"double"> = { kind: "number", type: "double" };
/** An unsigned integer of 32 bits. */
export const whole: NumberField<"uint32_t"> = { kind: "number", type: "uint32_t" };
/** An unsigned integer that may exceed 32 bits. */
export const size: NumberField<"size_t"> = { kind: "number", type: "size_t" };
/** True or false; native code gets 1 or 0. */
export const boolean: NumberField<"bool"> = { kind: "number", type: "bool" };

/** Several unsigned integers, for native code only. */
/* @__NO_SIDE_EFFECTS__ */
export function numbers(count: number): NumbersField {
  return { kind: "numbers", type: "uint32_t", count };
}

/** An argument that is one of several words. */
/* @__NO_SIDE_EFFECTS__ */
export function choice<const C extends string>(choices: readonly C[]): ChoiceField<C> {
  return { kind: "choice", choices };
}

type ValueOf<F> =
  F extends RecordField<infer V>
    ? V
    : F extends ArrayField<infer T, string, infer O>
      ? ArrayTypes[T] | (O extends true ? null : never)
      : F extends ChoiceField<infer C>
        ? C
        : F extends NumberField<"bool">
          ? boolean
          : number;
/** Size names of a field; `string` means none, as for arrays whose sizes are all numbers. */
type NamedBy<F> = F extends { readonly names?: infer N } ? (string extends N ? never : Extract<N, string>) : never;
type HeldBy<F> = F extends { readonly has?: infer S }
  ? Extract<S, string>
  : F extends { readonly counts: infer S }
    ? S
    : never;
/** Sizes that fields refer to and that are neither defined by an argument nor arguments themselves. */
type SizesOf<F extends Fields> = Exclude<
  { [N in keyof F]: NamedBy<F[N]> }[keyof F],
  { [N in keyof F]: HeldBy<F[N]> }[keyof F] | keyof F
>;

/** The arguments of a call: a value for each field, and each size that must be given. */
export type ArgumentsOf<F extends Fields> = { readonly [N in keyof F]: ValueOf<F[N]> } & {
  readonly [S in SizesOf<F>]: number;
};

/** The fields of native calls, in which records are replaced by their fields. */
export function plainFields(fields: Fields): PlainFields {
  const entries = Object.entries(fields).flatMap(([name, field]) =>
    field.kind === "record" ? Object.entries(field.fields(name)) : [[name, field] as const],
  );
  return Object.fromEntries(entries) as PlainFields;
}

/** Values of the native fields of a call, and its sizes. */
export function plainValues(fields: Fields, args: Values): Values {
  const values: Record<string, unknown> = { ...args };
  for (const name in fields) {
    const field = fields[name]!;
    if (field.kind === "record") Object.assign(values, field.values(args[name], name, args));
    else if (field.kind === "array" && field.counts) values[field.counts] = (args[name] as Float32Array).length;
  }
  return values;
}

/** Names of sizes that are no fields, in the order of their first use. */
export function sizeNames(fields: PlainFields): string[] {
  const names = Object.values(fields).flatMap((field) => (field.kind === "array" ? (field.sizes ?? []) : []));
  return [...new Set(names.filter((name) => typeof name === "string"))].filter((name) => !(name in fields));
}

/** Name of the flag that says whether an optional array is present. */
const presence = (name: string): string => `has${name[0]!.toUpperCase()}${name.slice(1)}`;

/** Names of the numbers and of the arrays of a native call, in order: sizes come first. */
function nativeOrder(fields: PlainFields): {
  readonly scalars: readonly string[];
  readonly buffers: readonly string[];
} {
  const entries = Object.entries(fields);
  const scalars = entries.flatMap(([name, field]) => {
    if (field.kind === "numbers") return Array.from({ length: field.count }, (_, i) => `${name}${i}`);
    if (field.kind !== "array") return [name];
    return field.isOptional ? [presence(name)] : [];
  });
  const buffers = entries.filter(([, { kind }]) => kind === "array").map(([name]) => name);
  return { scalars: [...sizeNames(fields), ...scalars], buffers };
}

/** Checks arguments. ShapeError for an array of the wrong length, UnsupportedError for a word that is no choice. */
export function checkArguments(family: string, fields: PlainFields, values: Values): void {
  for (const name in fields) {
    const field = fields[name]!;
    if (field.kind === "choice" && !field.choices.includes(values[name] as string))
      throw new UnsupportedError(
        `${family}: expected one of ${field.choices.join(", ")} as ${name} but found ${values[name]}`,
      );
    if (field.kind !== "array" || field.sizes === null || values[name] === null) continue;
    const sizes = field.sizes.map((size) => (typeof size === "number" ? size : (values[size] as number)));
    const expected = sizes.reduce((product, size) => product * size, 1);
    const { length } = values[name] as Float32Array;
    if (length !== expected)
      throw new ShapeError(
        `${family}: expected ${expected} values of ${name} [${field.sizes.join(", ")}] but found ${length}`,
      );
  }
}

/** Numbers of a call by name: sizes, of the names that `sizeNames` gives, numbers, and indices of choices. */
export function numbersOf(fields: PlainFields, sizes: readonly string[], values: Values): Record<string, number> {
  const numbers: Record<string, number> = {};
  for (const name of sizes) numbers[name] = values[name] as number;
  for (const name in fields) {
    const field = fields[name]!;
    if (field.kind === "choice") numbers[name] = field.choices.indexOf(values[name] as string);
    else if (field.kind === "number") numbers[name] = Number(values[name]);
    else if (field.kind === "numbers")
      for (const [i, value] of (values[name] as readonly number[]).entries()) numbers[`${name}${i}`] = value;
    else if (field.isOptional) numbers[presence(name)] = values[name] === null ? 0 : 1;
  }
  return numbers;
}

/** The arguments of a native call: all numbers, then all buffers, each in the order that its C++ code reads. */
export interface NativeArguments {
  /** Numbers in the order of the family. */
  readonly scalars: readonly number[];
  /** Buffers in the order of the family. */
  readonly buffers: readonly ArrayBufferView[];
}

const noFloats = new Float32Array(0);

/** Makes a function that returns a call's native arguments. It throws ShapeError for arrays of other sizes than declared. */
/* @__NO_SIDE_EFFECTS__ */
export function nativeArguments<F extends Fields>(
  family: string,
  fields: F,
): (args: ArgumentsOf<F>) => NativeArguments {
  const plain = plainFields(fields);
  const order = nativeOrder(plain);
  const sizes = sizeNames(plain);
  return (args) => {
    const values = plainValues(fields, args);
    checkArguments(family, plain, values);
    const numbers = numbersOf(plain, sizes, values);
    return {
      scalars: order.scalars.map((name) => numbers[name]!),
      buffers: order.buffers.map((name) => (values[name] as ArrayBufferView | null) ?? noFloats),
    };
  };
}
