/** Reads arguments that name a dimension. */
import type { Arguments, TensorSpec } from "./call-arguments.ts";

/** Index of a dimension, which may be counted from the end. ShapeError when there is none. */
export function dimensionOf(args: Arguments<TensorSpec>, name: string, rank: number): number {
  return checkedDimension(args, name, args.integer(name), rank);
}

export function checkedDimension(args: Arguments<TensorSpec>, name: string, dim: number, rank: number): number {
  const index = dim < 0 ? dim + rank : dim;
  if (!(index >= 0 && index < rank)) args.fail(name, `expected -${rank}..${rank - 1} but found ${dim}`);
  return index;
}
