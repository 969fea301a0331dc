/** Arguments of kernels that copy values. */
import { type ArgumentsOf, input, output, size, unsized } from "../../declaration.ts";
import { indices } from "../../records.ts";

/**
 * y [outer, blockBytes] = the `blockBytes` bytes at `offset` of each of `outer` blocks of x, which are `stride` bytes apart.
 */
export const selectFields = {
  x: unsized("u8"),
  y: output("u8", "outer", "blockBytes"),
  stride: size,
  offset: size,
};
export type SelectArgs = ArgumentsOf<typeof selectFields>;

/** y [rows, count] = x [rows, dim] at the columns `columns` [count]; NaN for columns outside x. */
export const gatherColumnsFields = {
  x: input("f32", "rows", "dim"),
  columns: indices("count"),
  y: output("f32", "rows", "count"),
};
export type GatherColumnsArgs = ArgumentsOf<typeof gatherColumnsFields>;

/** y [rows, first + second] = left [rows, first] and right [rows, second] side by side. */
export const joinColumnsFields = {
  left: input("f32", "rows", "first"),
  right: input("f32", "rows", "second"),
  y: output("f32", "rows", "columns"),
};
export type JoinColumnsArgs = ArgumentsOf<typeof joinColumnsFields>;
