/**
 * Call arguments as affine functions of the dynamic sizes, fitted at a few sizes: numbers and lengths of a call are
 * a + b * tokens, as a rule, which then holds for all sizes between.
 */

/** Sizes that vary together with nothing else, such as numbers of rows. */
export type Sizes = readonly number[];

/** The sizes from `smallest` to `largest`, each by itself. */
export interface SizeRange {
  /** Smallest of each size. */
  readonly smallest: Sizes;
  /** Largest of each size. */
  readonly largest: Sizes;
}

/** What is looked at of a range: the smallest sizes, those with one of them larger by 1, the largest. */
export function pointsOf({ smallest, largest }: SizeRange): readonly Sizes[] {
  const next = smallest.flatMap((size, i) => (size < largest[i]! ? [smallest.with(i, size + 1)] : []));
  return [smallest, ...next, largest];
}

/** A value for any sizes of a range. */
export type Grown<T> = (sizes: Sizes) => T;

/**
 * By what a number grows with each of the sizes: whole numbers, none of them below `least`. From 0 on, what is in bounds at
 * the largest sizes is in bounds at all. Null where it does not grow evenly. `values`: at the points of the range.
 */
export function growthOf(
  { smallest, largest }: SizeRange,
  values: readonly number[],
  least = 0,
): readonly number[] | null {
  const first = values[0]!;
  if (values.every((value) => Object.is(value, first))) return smallest.map(() => 0);
  let point = 1;
  let last = first;
  const growth: number[] = [];
  for (const [i, size] of smallest.entries()) {
    const step = size < largest[i]! ? values[point++]! - first : 0;
    growth.push(step);
    last += step * (largest[i]! - size);
  }
  const isEven = Object.is(last, values[point]!) && growth.every((step) => Number.isSafeInteger(step) && step >= least);
  return isEven ? growth : null;
}

/** `value` of the smallest sizes at others. */
export function grownNumber({ smallest }: SizeRange, value: number, growth: readonly number[], sizes: Sizes): number {
  let sum = value;
  for (let i = 0; i < growth.length; i++) sum += growth[i]! * (sizes[i]! - smallest[i]!);
  return sum;
}

type Fields = Readonly<Record<string, unknown>>;
type Array_ = Uint8Array | BigInt64Array;

const isTypedArray = (value: unknown): value is Array_ => ArrayBuffer.isView(value) && !(value instanceof DataView);
const isPlain = (value: unknown): value is Fields =>
  typeof value === "object" &&
  value !== null &&
  [Object.prototype, Array.prototype].includes(Object.getPrototypeOf(value));

/**
 * A value in whose numbers and lengths of arrays is all that differs between sizes, from what it is at the points of the
 * range; null where it is another. Of what does not differ, it has that of the first point itself.
 */
export function grown<T>(range: SizeRange, values: readonly T[]): Grown<T> | null {
  const change = changeOf(range, values);
  if (change === undefined) return null;
  return (change ?? (() => values[0]!)) as Grown<T>;
}

/** Null where nothing differs, undefined where it does in another way. */
function changeOf(range: SizeRange, values: readonly unknown[]): Grown<unknown> | null | undefined {
  const first = values[0];
  if (values.every((value) => Object.is(value, first))) return null;
  if (values.every((value) => typeof value === "number")) {
    const growth = growthOf(range, values);
    return growth ? (sizes) => grownNumber(range, first as number, growth, sizes) : undefined;
  }
  if (values.every(isTypedArray)) return changeOfArrays(range, values);
  return values.every(isPlain) ? changeOfFields(range, values) : undefined;
}

/** Views of one place. Arrays elsewhere that hold the same are what calls are given as literals. */
function changeOfArrays(range: SizeRange, values: readonly Array_[]): Grown<unknown> | null | undefined {
  const first = values[0]!;
  const Type = first.constructor as new (buffer: ArrayBufferLike, offset: number, length: number) => Array_;
  if (values.some((value) => value.constructor !== Type)) return undefined;
  const { buffer, byteOffset } = first;
  if (values.some((value) => value.buffer !== buffer || value.byteOffset !== byteOffset)) {
    const isSame = (value: Array_) => value.length === first.length && value.every((item, i) => item === first[i]);
    const isElsewhere = new Set(values.map((value) => value.buffer)).size === values.length;
    return isElsewhere && values.every(isSame) ? null : undefined;
  }
  const growth = growthOf(
    range,
    values.map(({ length }) => length),
  );
  if (!growth) return undefined;
  if (growth.every((step) => step === 0)) return null;
  return (sizes) => new Type(buffer, byteOffset, grownNumber(range, first.length, growth, sizes));
}

function changeOfFields(range: SizeRange, values: readonly Fields[]): Grown<unknown> | null | undefined {
  const first = values[0]!;
  const names = Object.keys(first);
  const isSame = (value: Fields) =>
    Array.isArray(value) === Array.isArray(first) && Object.keys(value).join() === names.join();
  if (!values.every(isSame)) return undefined;
  const changes: [string, Grown<unknown>][] = [];
  for (const name of names) {
    const change = changeOf(
      range,
      values.map((value) => value[name]),
    );
    if (change === undefined) return undefined;
    if (change) changes.push([name, change]);
  }
  if (changes.length === 0) return null;
  return (sizes) => {
    const copy: Record<string, unknown> = Array.isArray(first) ? (first.slice() as never) : { ...first };
    for (const [name, change] of changes) copy[name] = change(sizes);
    return copy;
  };
}
