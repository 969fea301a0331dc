/** Arguments of kernels of recurrent layers. */
import { type ArgumentsOf, boolean, float, input, optional, output } from "../../declaration.ts";
import { partOfState, statesOfTable } from "../../records.ts";

/**
 * Causal depthwise convolution of the rows of a step, each over the inputs of its own sequence, zeros before the first: y[t, c]
 * = bias[c] + sum_j weight[j, c] x[t - taps + 1 + j, c]. Rows that belong to no run give NaN.
 */
export const shortConvolutionFields = {
  x: input("f32", "rows", "channels"),
  /** Taps, oldest input first; the last one multiplies the row's own input. */
  weight: input("f32", "taps", "channels"),
  bias: optional("f32", "channels"),
  table: statesOfTable,
  /** State, f32 [taps - 1, channels]: the inputs before the first row, oldest first. */
  state: partOfState,
  y: output("f32", "rows", "channels"),
  /** Whether SiLU is applied: y = y * sigmoid(y). */
  silu: boolean,
};
export type ShortConvolutionArgs = ArgumentsOf<typeof shortConvolutionFields>;

/**
 * Linear recurrence (Mamba 2, gated delta rule) of the rows of a step on the state S [keyDim, valueDim] of each head of the
 * row's sequence, initially zeros: S = exp(logDecay) S; u = v, or beta (v - S^T k) if there is a beta; S = S + k u^T; y = scale
 * S^T q. Each key head is shared by the same number of heads. Rows that belong to no run give NaN.
 */
export const linearRecurrenceFields = {
  q: input("f32", "rows", "keyHeads", "keyDim"),
  k: input("f32", "rows", "keyHeads", "keyDim"),
  v: input("f32", "rows", "heads", "valueDim"),
  logDecay: input("f32", "rows", "heads"),
  beta: optional("f32", "rows", "heads"),
  table: statesOfTable,
  /** State, f32 [heads, keyDim, valueDim]. */
  state: partOfState,
  y: output("f32", "rows", "heads", "valueDim"),
  scale: float,
};
export type LinearRecurrenceArgs = ArgumentsOf<typeof linearRecurrenceFields>;
