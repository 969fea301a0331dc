/**
 * How a family of kernels declares its arguments, once: their types in TypeScript, the checks of their sizes, and their order
 * in native calls, from which `npm run families` writes the structs of C++ and what reads them.
 */
import { ShapeError, UnsupportedError } from "../errors.ts";

/** Typed arrays by what they hold; `any` are arrays of several types, of which another argument says which. */
interface ArrayTypes {
  /** Floats of 32 bits. */
  readonly f32: Float32Array;
  /** Signed integers of 64 bits. */
  readonly i64: BigInt64Array;
  /** Integers of 64 bits from 0 on, such as addresses. */
  readonly u64: BigUint64Array;
  /** Signed integers of 32 bits. */
  readonly i32: Int32Array;
  /** Integers of 32 bits from 0 on. */
  readonly u32: Uint32Array;
  /** Signed integers of 8 bits. */
  readonly i8: Int8Array;
  /** Bytes. */
  readonly u8: Uint8Array;
  /** Elements of another argument's type. */
  readonly any: ArrayBufferView;
}
type ElementType = keyof ArrayTypes;

/** What kernels do with an array. */
type Access = "read" | "write" | "change";

/** An array of sizes, which are numbers or names; `N` are the names that arguments have beside it. */
export interface ArrayField<
  T extends ElementType = ElementType,
  N extends string = string,
  O extends boolean = boolean,
> {
  /** Tells arrays from other fields. */
  readonly kind: "array";
  /** What the array holds. */
  readonly type: T;
  /** What kernels do with the array. */
  readonly access: Access;
  /** The first size is the outermost. Null for arrays whose length follows from no product of sizes. */
  readonly sizes: readonly (N | number)[] | null;
  /** Whether it may be null. */
  readonly isOptional: O;
  /** The name of its only size where that is its length, and no argument by itself. */
  readonly counts?: string;
  /** Names of sizes for TypeScript alone: it is never there. */
  readonly names?: N;
}

/** A number. `type` is that of C++; WebAssembly has a float where C++ has a double, and an address for a `size_t`. */
export interface NumberField<T extends NumberType = NumberType> {
  /** Tells numbers from other fields. */
  readonly kind: "number";
  /** Type of the number in C++. */
  readonly type: T;
}
type NumberType = "float" | "double" | "uint32_t" | "size_t" | "bool";

/** Several numbers in an array of C++. */
interface NumbersField {
  /** Tells several numbers from other fields. */
  readonly kind: "numbers";
  /** Type of each number in C++. */
  readonly type: "uint32_t";
  /** How many numbers there are. */
  readonly count: number;
}

/** One of some words; native code gets its place among them. */
export interface ChoiceField<C extends string = string> {
  /** Tells words from other fields. */
  readonly kind: "choice";
  /** The words, in the order of their numbers. */
  readonly choices: readonly C[];
}

type PlainField = ArrayField | NumberField | NumbersField | ChoiceField;
export type PlainFields = Readonly<Record<string, PlainField>>;
type Values = Readonly<Record<string, unknown>>;

/** A value `V` that native code gets as several fields. It has the sizes `S`, and names sizes `N` that are arguments. */
export interface RecordField<V = unknown, S extends string = string, N extends string = string> {
  /** Tells values of several fields from others. */
  readonly kind: "record";
  /** Gives what native calls have in place of the field of a name. */
  fields(name: string): PlainFields;
  /** Gives the values of these fields, and the sizes, of a value of that name among all arguments. */
  values(value: V, name: string, args: Values): Values;
  /** Sizes that the value has, for TypeScript alone: it is never there. */
  readonly has?: S;
  /** Sizes that its fields name, for TypeScript alone: it is never there. */
  readonly names?: N;
}

type Field = PlainField | RecordField;
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

/** An array of any length. */
/* @__NO_SIDE_EFFECTS__ */
export function unsized<T extends ElementType>(type: T, access: Access = "read"): ArrayField<T, never, false> {
  return { kind: "array", type, access, sizes: null, isOptional: false };
}

/** An array of a length that is no argument by itself: C++ and other arrays know it by the name. */
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
/** A whole number from 0 on. */
export const whole: NumberField<"uint32_t"> = { kind: "number", type: "uint32_t" };
/** A whole number from 0 on that 32 bits may not hold. */
export const size: NumberField<"size_t"> = { kind: "number", type: "size_t" };
/** True or false; native code gets 1 or 0. */
export const boolean: NumberField<"bool"> = { kind: "number", type: "bool" };

/** So many whole numbers, for native code. */
/* @__NO_SIDE_EFFECTS__ */
export function numbers(count: number): NumbersField {
  return { kind: "numbers", type: "uint32_t", count };
}

/** One of some words. */
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
/** `string` stands for none, as of arrays whose sizes are numbers. */
type NamedBy<F> = F extends { readonly names?: infer N } ? (string extends N ? never : Extract<N, string>) : never;
type HeldBy<F> = F extends { readonly has?: infer S }
  ? Extract<S, string>
  : F extends { readonly counts: infer S }
    ? S
    : never;
/** Sizes that fields name, but for those that an argument has and those that are arguments by themselves. */
type SizesOf<F extends Fields> = Exclude<
  { [N in keyof F]: NamedBy<F[N]> }[keyof F],
  { [N in keyof F]: HeldBy<F[N]> }[keyof F] | keyof F
>;

/** The arguments of a call: a value for each field, and each size that the arrays of the fields name. */
export type ArgumentsOf<F extends Fields> = { readonly [N in keyof F]: ValueOf<F[N]> } & {
  readonly [S in SizesOf<F>]: number;
};

/** The fields of native calls: those of records in their place. */
export function plainFields(fields: Fields): PlainFields {
  const entries = Object.entries(fields).flatMap(([name, field]) =>
    field.kind === "record" ? Object.entries(field.fields(name)) : [[name, field] as const],
  );
  return Object.fromEntries(entries) as PlainFields;
}

/** Values of the plain fields of a call, and its sizes. */
export function plainValues(fields: Fields, args: Values): Values {
  const values: Record<string, unknown> = { ...args };
  for (const [name, field] of Object.entries(fields))
    if (field.kind === "record") Object.assign(values, field.values(args[name], name, args));
    else if (field.kind === "array" && field.counts) values[field.counts] = (args[name] as Float32Array).length;
  return values;
}

/** Names of the sizes of arrays that are no fields, in the order in which fields name them first. */
export function sizeNames(fields: PlainFields): string[] {
  const names = Object.values(fields).flatMap((field) => (field.kind === "array" ? (field.sizes ?? []) : []));
  return [...new Set(names.filter((name) => typeof name === "string"))].filter((name) => !(name in fields));
}

/** The name of the number that says whether there is an array that may be null. */
const presence = (name: string): string => `has${name[0]!.toUpperCase()}${name.slice(1)}`;

/** Names of the numbers and of the arrays of a native call, in their order: sizes come first. */
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

/** ShapeError where an array is not as long as its sizes say, UnsupportedError for a word that is no choice. */
export function checkArguments(family: string, fields: PlainFields, values: Values): void {
  for (const [name, field] of Object.entries(fields)) {
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

/** The numbers of a call by their names: its sizes, numbers, and choices as places. */
export function numbersOf(fields: PlainFields, values: Values): Record<string, number> {
  const numbers: Record<string, number> = {};
  for (const name of sizeNames(fields)) numbers[name] = values[name] as number;
  for (const [name, field] of Object.entries(fields))
    if (field.kind === "choice") numbers[name] = field.choices.indexOf(values[name] as string);
    else if (field.kind === "number") numbers[name] = Number(values[name]);
    else if (field.kind === "numbers")
      for (const [i, value] of (values[name] as readonly number[]).entries()) numbers[`${name}${i}`] = value;
    else if (field.isOptional) numbers[presence(name)] = values[name] === null ? 0 : 1;
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

/** Makes the function that gives the native arguments of a call: it throws ShapeError for arrays of other sizes than declared. */
/* @__NO_SIDE_EFFECTS__ */
export function nativeArguments<F extends Fields>(
  family: string,
  fields: F,
): (args: ArgumentsOf<F>) => NativeArguments {
  const plain = plainFields(fields);
  const order = nativeOrder(plain);
  return (args) => {
    const values = plainValues(fields, args);
    checkArguments(family, plain, values);
    const numbers = numbersOf(plain, values);
    return {
      scalars: order.scalars.map((name) => numbers[name]!),
      buffers: order.buffers.map((name) => (values[name] as ArrayBufferView | null) ?? noFloats),
    };
  };
}
