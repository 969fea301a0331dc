/**
 * Represents call arguments as affine functions of the dynamic sizes, fitted at a few sizes: numbers and lengths of a call are
 * usually a + b * tokens, which then holds for all sizes in between.
 */

/** Values of the dynamic sizes, which vary independently, such as numbers of tokens. */
export type Sizes = readonly number[];

/** Ranges of the dynamic sizes. */
export interface SizeRange {
  /** Smallest of each size. */
  readonly smallest: Sizes;
  /** Largest of each size. */
  readonly largest: Sizes;
}

/** Sample points of a range for fitting: the smallest sizes, those with one size larger by 1, and the largest sizes. */
export function pointsOf({ smallest, largest }: SizeRange): readonly Sizes[] {
  const next = smallest.flatMap((size, i) => (size < largest[i]! ? [smallest.with(i, size + 1)] : []));
  return [smallest, ...next, largest];
}

/** A value as a function of the sizes in a range. */
export type AtSizes<T> = (sizes: Sizes) => T;

/**
 * Slopes of an affine number: its increase for each size that grows by 1, whole numbers of at least `least`. With non-negative
 * slopes, whatever is within bounds at the largest sizes is within bounds at all. Null where the number is not affine. `values`
 * are its values at the sample points.
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

/** Value of an affine number at any sizes, from its value at the smallest sizes and its slopes. */
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
 * Fits a value at any sizes to its values at the sample points, which may differ in numbers and lengths of arrays; null where
 * they differ otherwise, or not in an affine way. Whatever does not differ is taken from the first point.
 */
export function fitted<T>(range: SizeRange, values: readonly T[]): AtSizes<T> | null {
  const change = changeOf(range, values);
  if (change === undefined) return null;
  return (change ?? (() => values[0]!)) as AtSizes<T>;
}

/** How a value changes with the sizes: null if it does not, undefined if not in an affine way. */
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

/**
 * How arrays change with the sizes: views of the same address may change in length. Arrays at different addresses with equal
 * contents are literals of the call.
 */
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
