/** Sample calls of kernels of recurrent layers, for tests and printed code. */
import { floats } from "../../cases.ts";
import { callOf, type SampleCall, tableOfRun } from "../sample-call.ts";
import { linearRecurrenceReference, shortConvolutionReference } from "./reference.ts";
import { linearRecurrenceRelaxedWasm, linearRecurrenceWasm } from "./wasm/linear-recurrence.ts";
import { shortConvolutionWasm } from "./wasm/short-convolution.ts";

const M = 7;
const DIM = 64;

/** Short convolutions, and recurrences whose number of columns is no multiple of a vector. */
export function recurrentCalls(): SampleCall[] {
  const stateOf = (rows: number, elements: number) => ({
    table: tableOfRun(rows, elements),
    state: { offset: 0, byteLength: 4 * elements },
  });
  const convolution = (silu: boolean) => () => ({
    ...{ rows: M, channels: DIM + 3, taps: 4, silu, ...stateOf(M, 3 * (DIM + 3)) },
    ...{ x: floats(M * (DIM + 3)), weight: floats(4 * (DIM + 3), 2), bias: silu ? floats(DIM + 3, 3) : null },
    y: new Float32Array(M * (DIM + 3)),
  });
  const [keyHeads, heads, keyDim, valueDim] = [1, 2, 8, 21];
  const recurrence = (beta: Float32Array | null) => () => ({
    ...{ rows: M, keyHeads, heads, keyDim, valueDim, scale: 0.5, ...stateOf(M, heads * keyDim * valueDim) },
    ...{
      q: floats(M * keyDim),
      k: floats(M * keyDim, 2).map((value) => value / 3),
      v: floats(M * heads * valueDim, 3),
    },
    ...{ logDecay: floats(M * heads, 4).map((value) => value - 1), beta },
    y: new Float32Array(M * heads * valueDim),
  });
  return [
    ...[false, true].map((silu) =>
      callOf(
        shortConvolutionWasm,
        shortConvolutionReference,
        convolution(silu),
        ({ y }) => y,
        silu ? "with SiLU and a bias" : "",
      ),
    ),
    ...[linearRecurrenceRelaxedWasm, linearRecurrenceWasm].flatMap((row) =>
      [null, floats(M * heads, 5)].map((beta) =>
        callOf(row, linearRecurrenceReference, recurrence(beta), ({ y }) => y, beta ? "delta rule" : ""),
      ),
    ),
  ];
}
