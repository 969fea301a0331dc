/** What kernels that copy values are called with. */
import { type ArgumentsOf, input, output, size, unsized } from "../../declaration.ts";
import { indices } from "../../records.ts";

/** Copies, of each of `outer` blocks `stride` bytes apart, the `blockBytes` bytes at `offset`. */
export const selectFields = {
  x: unsized("u8"),
  y: output("u8", "outer", "blockBytes"),
  stride: size,
  offset: size,
};
export type SelectArgs = ArgumentsOf<typeof selectFields>;

/** y [rows, columns] = those columns of rows of x [rows, dim]; NaN for columns that there are not. */
export const gatherColumnsFields = {
  x: input("f32", "rows", "dim"),
  columns: indices("count"),
  y: output("f32", "rows", "count"),
};
export type GatherColumnsArgs = ArgumentsOf<typeof gatherColumnsFields>;
