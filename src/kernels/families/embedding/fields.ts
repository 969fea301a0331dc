/** Arguments of embedding kernels. */
import { type ArgumentsOf, input, output, unsized, whole } from "../../declaration.ts";
import { floatWeights, indices, packedWeights } from "../../records.ts";

/** y [count, dim] = rows `indices` [count] of float weights [rows, dim]. */
export const embeddingFloatFields = {
  weights: floatWeights("rows", "dim"),
  indices: indices("count"),
  y: output("f32", "count", "dim"),
};
export type FloatEmbeddingArgs = ArgumentsOf<typeof embeddingFloatFields>;

/** y [count, dim] = rows `indices` [count] of TorchAO-packed integers [rows, dim], as (q - zero) * scale. */
export const embeddingPackedFields = {
  packed: unsized("u8"),
  scales: input("f32", "rows", "groups"),
  zeros: input("i8", "rows", "groups"),
  indices: indices("count"),
  y: output("f32", "count", "dim"),
  bits: whole,
};
export type PackedEmbeddingArgs = ArgumentsOf<typeof embeddingPackedFields>;

/**
 * y [count, k] = rows `indices` [count] of a table [rows, k]. Its rows from `first` on are packed linear weights [n, k], which
 * are dequantized; the others are zeros.
 */
export const sharedEmbeddingFields = {
  weights: packedWeights,
  indices: indices("count"),
  y: output("f32", "count", "k"),
  first: whole,
  rows: whole,
};
export type SharedEmbeddingArgs = ArgumentsOf<typeof sharedEmbeddingFields>;
