/** What kernels of recurrent layers are called with. */
import { type ArgumentsOf, boolean, float, input, optional, output } from "../../declaration.ts";
import { partOfState, statesOfTable } from "../../records.ts";

/**
 * Causal depthwise convolution of the rows of a step, each over the inputs of its own sequence, zeros before the first:
 * y[t, c] = bias[c] + sum_j weight[j, c] x[t - taps + 1 + j, c]. Rows of no run give NaN.
 */
export const shortConvolutionFields = {
  x: input("f32", "rows", "channels"),
  /** One row for each of the inputs that a result depends on: that of its row, which is last, and those before it. */
  weight: input("f32", "taps", "channels"),
  bias: optional("f32", "channels"),
  table: statesOfTable,
  /** f32 [taps - 1, channels]: the inputs before the first row, the oldest first. */
  state: partOfState,
  y: output("f32", "rows", "channels"),
  /** Whether y is y * sigmoid(y). */
  silu: boolean,
};
export type ShortConvolutionArgs = ArgumentsOf<typeof shortConvolutionFields>;

/**
 * Linear recurrence of the rows of a step, each on the state S [keyDim, valueDim] of a head of its own sequence, zeros at
 * first: S = exp(logDecay) S; u = v, or beta (v - S^T k) where there is a beta; S = S + k u^T; y = scale S^T q. Heads share
 * the queries and keys of a key head, each as many. Rows of no run give NaN.
 */
export const linearRecurrenceFields = {
  q: input("f32", "rows", "keyHeads", "keyDim"),
  k: input("f32", "rows", "keyHeads", "keyDim"),
  v: input("f32", "rows", "heads", "valueDim"),
  logDecay: input("f32", "rows", "heads"),
  beta: optional("f32", "rows", "heads"),
  table: statesOfTable,
  /** f32 [heads, keyDim, valueDim] */
  state: partOfState,
  y: output("f32", "rows", "heads", "valueDim"),
  scale: float,
};
export type LinearRecurrenceArgs = ArgumentsOf<typeof linearRecurrenceFields>;
