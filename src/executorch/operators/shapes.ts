/** Shape arithmetic that aten operators share. */

import type { Arguments, TensorSpec } from "../../ops/call-arguments.ts";
import { elementCount } from "../../tensor.ts";

/** Rank of a tensor, where a scalar may count as a row of one element. */
export function rowRank(shape: readonly number[]): number {
  return Math.max(1, shape.length);
}

/** Sizes with -1 replaced so that there are `count` elements. */
export function viewShape(args: Arguments<TensorSpec>, name: string, count: number): number[] {
  const sizes = args.numbers(name);
  const known = elementCount(sizes.filter((size) => size !== -1));
  const shape = sizes.map((size) => (size === -1 ? count / known : size));
  const valid = shape.every((size) => Number.isSafeInteger(size) && size >= 0) && elementCount(shape) === count;
  if (!valid) args.fail(name, `expected sizes of ${count} elements but found [${sizes}]`);
  return shape;
}

/** Start, step and count of a slice of a dimension, clamped as in Python. */
export function sliceOf(args: Arguments<TensorSpec>, size: number): { start: number; step: number; count: number } {
  const bound = (name: string, fallback: number) => {
    const value = args.optionalNumber(name) ?? fallback;
    // Values beyond 2^53, which stand for the end, are accepted, too.
    if (!Number.isInteger(value)) args.fail(name, `expected a whole number but found ${value}`);
    return Math.min(Math.max(value < 0 ? value + size : value, 0), size);
  };
  const start = bound("start", 0);
  const end = bound("end", size);
  const step = args.integer("step", 1);
  return { start, step, count: Math.max(0, Math.ceil((end - start) / step)) };
}

/** The shape that two shapes broadcast to. */
export function broadcastShape(
  args: Arguments<TensorSpec>,
  name: string,
  a: readonly number[],
  b: readonly number[],
): number[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, dim) => {
    const sizeA = a[dim - rank + a.length] ?? 1;
    const sizeB = b[dim - rank + b.length] ?? 1;
    if (sizeA !== sizeB && sizeA !== 1 && sizeB !== 1)
      args.fail(name, `expected a shape that broadcasts with [${a}] but found [${b}]`);
    return sizeA === 1 ? sizeB : sizeA;
  });
}
