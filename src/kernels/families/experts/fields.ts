/** Arguments of kernels of mixtures of experts. */
import { UnsupportedError } from "../../../errors.ts";
import type { Kernel } from "../../contract.ts";
import {
  type ArgumentsOf,
  boolean,
  choice,
  double,
  input,
  numbers,
  optional,
  output,
  type RecordField,
  size,
  unsized,
  whole,
} from "../../declaration.ts";
import { floatTypes } from "../../records.ts";
import type { FloatLinearArgs, PackedLinearArgs } from "../linear/fields.ts";

/** Functions that turn a router's logits into scores. */
export const routerScores = ["softmax", "sigmoid"] as const;

/**
 * Routes each row to `topK` experts by its scores, the softmax or sigmoid of its logits [rows, experts], and writes `routing`
 * as `routing.ts` describes it. Among equal scores, the first experts are chosen.
 */
export const routeFields = {
  logits: input("f32", "rows", "experts"),
  /** Added to scores for choosing experts, but not to their weights; null without. */
  bias: optional("f32", "experts"),
  /** Factor of each expert's weights; null without. */
  factors: optional("f32", "experts"),
  routing: unsized("i32", "write"),
  topK: whole,
  scores: choice(routerScores),
  /** Whether the weights of a row are divided by their sum plus `eps`. */
  normalize: boolean,
  eps: double,
  /** Factor of all weights. */
  scale: double,
};
export type RouteArgs = ArgumentsOf<typeof routeFields>;

/** y [rows * topK, dim] = rows of x [rows, dim] ordered by expert, each row once for each of its experts. */
export const expertRowsFields = {
  x: input("f32", "rows", "dim"),
  routing: unsized("i32"),
  y: output("f32", "rows", "topK", "dim"),
  experts: whole,
};
export type ExpertRowsArgs = ArgumentsOf<typeof expertRowsFields>;

/** y [rows, dim] = for each row, the sum of its experts' results in x [rows * topK, dim], each times its weight. */
export const combineExpertsFields = {
  x: input("f32", "rows", "topK", "dim"),
  routing: unsized("i32"),
  y: output("f32", "rows", "dim"),
  experts: whole,
};

/**
 * y [rows, size] = the results x [rows * topK, dim] of each row's experts at the columns [experts, dim] of these, and one less
 * than the least of them everywhere else. Columns that y does not have are left out.
 */
export interface ScatterExpertsArgs extends ExpertRowsArgs {
  readonly columns: Int32Array;
  readonly size: number;
}

/** The matrices of all experts of a linear layer, and the kernels that multiply by one. `A`: arguments of the linear layer. */
export interface ExpertMatrices<A> {
  /** Kernels for the rows of one expert, by the least number of rows that each serves, ascending from 1. */
  readonly choices: readonly { readonly from: number; readonly kernel: Kernel<A> }[];
  /** Arrays with the matrices of all experts in order, and likewise of their biases where those are separate. */
  readonly wholes: readonly ArrayBufferView[];
  /** Arguments for m rows of one expert. */
  of(expert: number, m: number, x: Float32Array, y: Float32Array): A;
}

/** Most kernels that native code chooses among by an expert's number of rows. */
const CHOICES = 8;

/** Least number of rows and index in the addon's table of each kernel; unused entries repeat the last one. */
const choiceFields = { from: numbers(CHOICES), kernels: numbers(CHOICES) };

type ExpertCall = Readonly<{ x: Float32Array; y: Float32Array; n: number; k: number }>;

/** Arguments for one row of the first expert. */
function firstCall<A>({ of }: ExpertMatrices<A>, args: unknown): A {
  const { x, y, n, k } = args as ExpertCall;
  return of(0, 1, x.subarray(0, k), y.subarray(0, n));
}

/** Values of `choiceFields`, for native kernels. */
function choicesOf<A>({ choices }: ExpertMatrices<A>, call: A) {
  const places = choices.map(({ from, kernel }) => {
    const encoded = kernel.encode?.(call, new Uint8Array(0));
    if (encoded?.target !== "native") throw new UnsupportedError(`${kernel.name} cannot be called by native code`);
    return { from, kernel: encoded.kernel };
  });
  if (places.length > CHOICES)
    throw new UnsupportedError(`expected at most ${CHOICES} kernels for rows of experts but found ${places.length}`);
  const all = Array.from({ length: CHOICES }, (_, i) => places[i] ?? { ...places.at(-1)!, from: 2 ** 32 - 1 });
  return { from: all.map(({ from }) => from), kernels: all.map(({ kernel }) => kernel) };
}

const packedMatrices: RecordField<ExpertMatrices<PackedLinearArgs>, never, never> = {
  kind: "record",
  fields: () => ({ weights: unsized("u8"), partBytes: size, groupSize: whole, ...choiceFields }),
  values(matrices, _, args) {
    const call = firstCall(matrices, args);
    const { bytes, spec } = call.weights;
    const stored = { weights: bytes, partBytes: bytes.byteLength, groupSize: spec.groupSize };
    return { ...stored, ...choicesOf(matrices, call) };
  },
};

const floatMatrices: RecordField<ExpertMatrices<FloatLinearArgs>, never, never> = {
  kind: "record",
  fields: () => ({
    ...{ weights: unsized("any"), bias: { ...unsized("f32"), isOptional: true }, partBytes: size },
    ...{ weightsType: choice(floatTypes), ...choiceFields },
  }),
  values(matrices, _, args) {
    const call = firstCall(matrices, args);
    const { data, dtype } = call.weights;
    const stored = { weights: data, bias: call.bias, partBytes: data.byteLength, weightsType: dtype };
    return { ...stored, ...choicesOf(matrices, call) };
  },
};

const expertLinearFields = {
  x: input("f32", "places", "k"),
  routing: unsized("i32"),
  y: output("f32", "places", "n"),
  experts: whole,
};

/** y [places, n] = x [places, k] times the transposed packed matrix [n, k] of each row's expert, according to `routing`. */
export const packedExpertFields = { ...expertLinearFields, matrices: packedMatrices };
/** Arguments as of `packedExpertFields`, with float matrices. */
export const floatExpertFields = { ...expertLinearFields, matrices: floatMatrices };

/** Arguments of both variants, by the arguments of their linear layers. */
export type ExpertLinearArgs<A> = Omit<ArgumentsOf<typeof packedExpertFields>, "matrices"> & {
  /** Matrices of the experts, for any number of rows. */
  readonly matrices: ExpertMatrices<A>;
};
