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
export type AtSizes<T> = (sizes: Sizes) => T;

/**
 * By how much a number is more for each size that is 1 more: whole numbers, none of them below `least`. With slopes from 0 on,
 * what is in bounds at the largest sizes is in bounds at all. Null where the number is not affine. `values`: at the points of
 * the range.
 */
export function slopesOf(
  { smallest, largest }: SizeRange,
  values: readonly number[],
  least = 0,
): readonly number[] | null {
  const first = values[0]!;
  if (values.every((value) => Object.is(value, first))) return smallest.map(() => 0);
  let point = 1;
  let last = first;
  const slopes: number[] = [];
  for (const [i, size] of smallest.entries()) {
    const step = size < largest[i]! ? values[point++]! - first : 0;
    slopes.push(step);
    last += step * (largest[i]! - size);
  }
  const isAffine =
    Object.is(last, values[point]!) && slopes.every((step) => Number.isSafeInteger(step) && step >= least);
  return isAffine ? slopes : null;
}

/** A number at any sizes, from its value at the smallest and its slopes. */
export function affineAt({ smallest }: SizeRange, value: number, slopes: readonly number[], sizes: Sizes): number {
  let sum = value;
  for (let i = 0; i < slopes.length; i++) sum += slopes[i]! * (sizes[i]! - smallest[i]!);
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
 * A value at any sizes, from its values at the points of the range, which may differ in numbers and lengths of arrays alone;
 * null where they differ in more, or not in an affine way. What does not differ is taken from the first point.
 */
export function fitted<T>(range: SizeRange, values: readonly T[]): AtSizes<T> | null {
  const change = changeOf(range, values);
  if (change === undefined) return null;
  return (change ?? (() => values[0]!)) as AtSizes<T>;
}

/** Null where nothing differs, undefined where it does in another way. */
function changeOf(range: SizeRange, values: readonly unknown[]): AtSizes<unknown> | null | undefined {
  const first = values[0];
  if (values.every((value) => Object.is(value, first))) return null;
  if (values.every((value) => typeof value === "number")) {
    const slopes = slopesOf(range, values);
    return slopes ? (sizes) => affineAt(range, first as number, slopes, sizes) : undefined;
  }
  if (values.every(isTypedArray)) return changeOfArrays(range, values);
  return values.every(isPlain) ? changeOfFields(range, values) : undefined;
}

/** Views of one place. Arrays elsewhere that hold the same are what calls are given as literals. */
function changeOfArrays(range: SizeRange, values: readonly Array_[]): AtSizes<unknown> | null | undefined {
  const first = values[0]!;
  const Type = first.constructor as new (buffer: ArrayBufferLike, offset: number, length: number) => Array_;
  if (values.some((value) => value.constructor !== Type)) return undefined;
  const { buffer, byteOffset } = first;
  if (values.some((value) => value.buffer !== buffer || value.byteOffset !== byteOffset)) {
    const isSame = (value: Array_) => value.length === first.length && value.every((item, i) => item === first[i]);
    const isElsewhere = new Set(values.map((value) => value.buffer)).size === values.length;
    return isElsewhere && values.every(isSame) ? null : undefined;
  }
  const slopes = slopesOf(
    range,
    values.map(({ length }) => length),
  );
  if (!slopes) return undefined;
  if (slopes.every((step) => step === 0)) return null;
  return (sizes) => new Type(buffer, byteOffset, affineAt(range, first.length, slopes, sizes));
}

function changeOfFields(range: SizeRange, values: readonly Fields[]): AtSizes<unknown> | null | undefined {
  const first = values[0]!;
  const names = Object.keys(first);
  const isSame = (value: Fields) =>
    Array.isArray(value) === Array.isArray(first) && Object.keys(value).join() === names.join();
  if (!values.every(isSame)) return undefined;
  const changes: [string, AtSizes<unknown>][] = [];
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
