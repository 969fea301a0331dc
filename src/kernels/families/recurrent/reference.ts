/** Reference kernels of recurrent layers: sums in double precision, states and results rounded to float32. */

import { type Kernel, referenceRow } from "../../contract.ts";
import { type Run, runsOf, type SequenceTable, type StatePart } from "../../sequence-table.ts";
import type { LinearRecurrenceArgs, ShortConvolutionArgs } from "./fields.ts";

/** The call's part of the state that a run writes, filled with the state that it begins with. */
function stateOfRun(table: SequenceTable, { slot }: Run, { offset, byteLength }: StatePart): Float32Array {
  const { now, next } = table.state(slot);
  const part = ({ buffer, byteOffset }: Uint8Array) =>
    new Float32Array(buffer, byteOffset + offset, byteLength / Float32Array.BYTES_PER_ELEMENT);
  const state = part(next);
  state.set(part(now));
  return state;
}

export const shortConvolutionReference: Kernel<ShortConvolutionArgs> = {
  ...referenceRow,
  name: "short_convolution_f32_1x1x1_reference",
  bind({ rows, channels, taps, x, weight, bias, silu, table, state: part, y }) {
    return () => {
      y.fill(Number.NaN);
      for (const run of runsOf(table, rows)) {
        const state = stateOfRun(table, run, part);
        for (let row = run.row; row < run.row + run.rows; row++) {
          for (let c = 0; c < channels; c++) {
            let sum = bias ? bias[c]! : 0;
            for (let j = 0; j < taps - 1; j++) sum += weight[j * channels + c]! * state[j * channels + c]!;
            sum += weight[(taps - 1) * channels + c]! * x[row * channels + c]!;
            y[row * channels + c] = silu ? sum / (1 + Math.exp(-sum)) : sum;
          }
          state.copyWithin(0, channels);
          state.set(x.subarray(row * channels, (row + 1) * channels), (taps - 2) * channels);
        }
      }
    };
  },
};

export const linearRecurrenceReference: Kernel<LinearRecurrenceArgs> = {
  ...referenceRow,
  name: "linear_recurrence_f32_1x1x1_reference",
  bind(args) {
    const { rows, heads, keyDim, valueDim, table, state: part, y } = args;
    return () => {
      y.fill(Number.NaN);
      for (const run of runsOf(table, rows)) {
        const state = stateOfRun(table, run, part);
        const size = keyDim * valueDim;
        for (let row = run.row; row < run.row + run.rows; row++)
          for (let head = 0; head < heads; head++)
            advance(args, state.subarray(head * size, (head + 1) * size), row, head);
      }
    };
  },
};

/** Computes one row of one head; updates `state`. */
function advance(args: LinearRecurrenceArgs, state: Float32Array, row: number, head: number): void {
  const { keyHeads, heads, keyDim, valueDim, q, k, v, logDecay, beta, scale, y } = args;
  const key = (row * keyHeads + Math.floor((head * keyHeads) / heads)) * keyDim;
  const at = row * heads + head;
  const decay = Math.exp(logDecay[at]!);
  for (let j = 0; j < valueDim; j++) {
    let known = 0;
    for (let i = 0; i < keyDim; i++) known += k[key + i]! * decay * state[i * valueDim + j]!;
    const value = v[at * valueDim + j]!;
    const added = beta ? beta[at]! * (value - known) : value;
    let sum = 0;
    for (let i = 0; i < keyDim; i++) {
      const place = i * valueDim + j;
      state[place] = decay * state[place]! + k[key + i]! * added;
      sum += q[key + i]! * state[place]!;
    }
    y[at * valueDim + j] = scale * sum;
  }
}
