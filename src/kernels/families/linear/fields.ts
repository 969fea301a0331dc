/** Arguments of kernels of linear layers. */
import { type ArgumentsOf, input, optional, output } from "../../declaration.ts";
import { floatWeights, packedWeights } from "../../records.ts";

/** y [m, n] = x [m, k] times quantized weights [n, k] transposed, plus the bias packed with them. */
export const packedLinearFields = {
  x: input("f32", "m", "k"),
  weights: packedWeights,
  y: output("f32", "m", "n"),
};
export type PackedLinearArgs = ArgumentsOf<typeof packedLinearFields>;

/** Arguments as of `packedLinearFields`, with y [m, n / 2]: the first half of the columns gates the second. */
export const gatedLinearFields = { ...packedLinearFields, y: output("f32", "m", "n", 1 / 2) };

/** y [m, n] = x [m, k] times float weights [n, k] transposed, plus bias [n]. */
export const floatLinearFields = {
  x: input("f32", "m", "k"),
  weights: floatWeights("n", "k"),
  bias: optional("f32", "n"),
  y: output("f32", "m", "n"),
};
export type FloatLinearArgs = ArgumentsOf<typeof floatLinearFields>;
