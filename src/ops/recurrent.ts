/** Operators of recurrent layers, whose state of each sequence has a fixed size. */

import { linearRecurrence, shortConvolution } from "../kernels/families/index.ts";
import type { LinearRecurrenceArgs, ShortConvolutionArgs } from "../kernels/families/recurrent/fields.ts";
import { runsOf, type SequenceTable, type SequenceUse, type StatePart } from "../kernels/sequence-table.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { rowCount } from "./linear.ts";
import { defineOperator, type Operator, touchedBytes } from "./operator.ts";
import { sequenceTable } from "./sequences.ts";

const STATES_MAX = 2 ** 20;

function stateUse(args: Arguments<TensorSpec>, elements: number): SequenceUse {
  const index = args.integer("state", 0);
  if (index >= STATES_MAX) args.fail("state", `expected less than ${STATES_MAX} but found ${index}`);
  return { kind: "state", index, byteLength: Float32Array.BYTES_PER_ELEMENT * elements };
}

/** The sequence table of a call, and the call's part of each sequence's state. */
function statePart(args: Arguments<Tensor>, elements: number): { table: SequenceTable; state: StatePart } {
  const table = sequenceTable(args);
  const index = args.integer("state", 0);
  const state = table.statePart(index);
  if (state?.byteLength !== Float32Array.BYTES_PER_ELEMENT * elements)
    args.fail("state", `expected a state of ${elements} numbers that the store has but found ${index}`);
  return { table, state };
}

/** Bytes that a call moves: its tensors, and the states that it reads and writes. */
function bytesWithStates(args: Arguments<Tensor>, rows: number, elements: number): number {
  const runs = [...runsOf(sequenceTable(args), rows)].length;
  return touchedBytes(args) + 2 * runs * Float32Array.BYTES_PER_ELEMENT * elements;
}

/** Checked sizes of a convolution's call, without its state. */
function convolutionSizes(args: Arguments<TensorSpec>) {
  const { shape } = args.tensor("x", "f32");
  const weight = args.tensor("weight", "f32").shape;
  const channels = shape.at(-1) ?? 0;
  if (shape.length !== 3 || shape[0] !== 1 || channels === 0)
    args.fail("x", `expected shape [1, T, channels] but found [${shape}]`);
  if (weight.length !== 2 || weight[0]! < 2 || weight[1] !== channels)
    args.fail("weight", `expected shape [2 or more, ${channels}] but found [${weight}]`);
  const taps = weight[0]!;
  return { rows: rowCount(shape), channels, taps, stateElements: (taps - 1) * channels };
}

/**
 * Causal depthwise convolution over each sequence of x [1, T, channels]. weight [taps, channels], the last tap for the
 * token itself; bias [channels] or None; silu: y becomes y * sigmoid(y). The state is the last taps - 1 inputs.
 */
const shortConvolutionOperator = defineOperator<ShortConvolutionArgs>({
  schema:
    "lowbit::update_short_conv.out(Tensor x, Tensor weight, Tensor? bias, Tensor(a!) sequences, int state, bool silu=False, *, Tensor(b!) out) -> Tensor(b!)",
  kernels: shortConvolution,
  query: (args) => ({ layout: null, bits: null, m: rowCount(args.tensor("x").shape) }),
  sequenceUse: (args) => stateUse(args, convolutionSizes(args).stateElements),
  multiplications: (args) => elementCount(args.tensor("x").shape) * args.tensor("weight").shape[0]!,
  bytes(args) {
    const { rows, stateElements } = convolutionSizes(args);
    return bytesWithStates(args, rows, stateElements);
  },
  shape(args) {
    const { channels } = convolutionSizes(args);
    const bias = args.optionalTensor("bias", "f32");
    if (bias && (bias.shape.length !== 1 || bias.shape[0] !== channels))
      args.fail("bias", `expected shape [${channels}] but found [${bias.shape}]`);
    args.tensor("sequences", "i32");
    return { dtype: "f32", shape: args.tensor("x").shape };
  },
  prepare(args) {
    const { rows, channels, taps, stateElements } = convolutionSizes(args);
    const floats = (name: string) => args.tensor(name).data as Float32Array;
    return {
      ...{ rows, channels, taps },
      x: floats("x"),
      weight: floats("weight"),
      bias: (args.optionalTensor("bias")?.data as Float32Array | undefined) ?? null,
      silu: args.boolean("silu"),
      ...statePart(args, stateElements),
      y: floats("out"),
    };
  },
});

/** Checked sizes of a recurrence's call. */
function recurrenceSizes(args: Arguments<TensorSpec>) {
  const [q, v, logDecay] = ["q", "v", "log_decay"].map((name) => args.tensor(name, "f32").shape);
  const keyHeads = args.integer("key_heads", 1);
  const rows = rowCount(q!);
  const heads = logDecay!.at(-1) ?? 0;
  const widthOf = (name: string, shape: readonly number[], divisor: number) => {
    const width = shape.at(-1) ?? 0;
    if (shape.length !== 3 || shape[0] !== 1 || shape[1] !== q![1] || width === 0 || width % divisor !== 0)
      args.fail(name, `expected shape [1, ${q![1] ?? "T"}, a multiple of ${divisor}] but found [${shape}]`);
    return width / divisor;
  };
  const keyDim = widthOf("q", q!, keyHeads);
  widthOf("log_decay", logDecay!, keyHeads);
  const valueDim = widthOf("v", v!, heads);
  return { rows, keyHeads, heads, keyDim, valueDim, stateElements: heads * keyDim * valueDim };
}

/**
 * Linear recurrence with a state S [K, V] for each head: S = exp(log_decay) S, then S = S + k u^T and y = scale S^T q,
 * where u is v (Mamba 2: Dao & Gu 2024) or, with beta, beta (v - S^T k) (gated delta rule: Yang et al. 2025). q, k [1, T,
 * key_heads * K]; v [1, T, heads * V]; log_decay, beta [1, T, heads].
 */
const linearRecurrenceOperator = defineOperator<LinearRecurrenceArgs>({
  schema:
    "lowbit::linear_recurrence.out(Tensor q, Tensor k, Tensor v, Tensor log_decay, Tensor? beta, Tensor(a!) sequences, int state, int key_heads, float scale=1, *, Tensor(b!) out) -> Tensor(b!)",
  kernels: linearRecurrence,
  query: (args) => ({ layout: null, bits: null, m: rowCount(args.tensor("q").shape) }),
  sequenceUse: (args) => stateUse(args, recurrenceSizes(args).stateElements),
  multiplications(args) {
    const { rows, stateElements } = recurrenceSizes(args);
    return 4 * rows * stateElements;
  },
  bytes(args) {
    const { rows, stateElements } = recurrenceSizes(args);
    return bytesWithStates(args, rows, stateElements);
  },
  shape(args) {
    recurrenceSizes(args);
    const same = (name: string, other: string, found: TensorSpec | null) => {
      const { shape } = args.tensor(other);
      if (found && found.shape.join() !== shape.join())
        args.fail(name, `expected the shape of ${other} [${shape}] but found [${found.shape}]`);
    };
    same("k", "q", args.tensor("k", "f32"));
    same("beta", "log_decay", args.optionalTensor("beta", "f32"));
    args.tensor("sequences", "i32");
    return { dtype: "f32", shape: args.tensor("v").shape };
  },
  prepare(args) {
    const { stateElements, ...sizes } = recurrenceSizes(args);
    const floats = (name: string) => args.tensor(name).data as Float32Array;
    return {
      ...sizes,
      q: floats("q"),
      k: floats("k"),
      v: floats("v"),
      logDecay: floats("log_decay"),
      beta: (args.optionalTensor("beta")?.data as Float32Array | undefined) ?? null,
      scale: args.number("scale"),
      ...statePart(args, stateElements),
      y: floats("out"),
    };
  },
});

export const recurrentOperators: readonly Operator[] = [shortConvolutionOperator, linearRecurrenceOperator];
