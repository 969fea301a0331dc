/** What kernels of mixtures of experts are called with. */
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

/** How logits of a router become weights of experts. */
export const routerScores = ["softmax", "sigmoid"] as const;

/**
 * Chooses the `topK` experts of each row by its scores, the softmax or the sigmoid of its logits, and says where their rows
 * go: `routing` as `routing.ts` describes it. Of experts of one score, the first are chosen.
 */
export const routeFields = {
  logits: input("f32", "rows", "experts"),
  /** Added to scores where experts are chosen, not to weights; null without. */
  bias: optional("f32", "experts"),
  /** What weights of each expert are multiplied with; null without. */
  factors: optional("f32", "experts"),
  routing: unsized("i32", "write"),
  topK: whole,
  scores: choice(routerScores),
  /** Whether weights of a row are divided by their sum, to which `eps` is added. */
  normalize: boolean,
  eps: double,
  /** Number that all weights are multiplied with. */
  scale: double,
};
export type RouteArgs = ArgumentsOf<typeof routeFields>;

/** Rows of x [rows, dim] in the order of their experts, once for each of them. */
export const expertRowsFields = {
  x: input("f32", "rows", "dim"),
  routing: unsized("i32"),
  y: output("f32", "rows", "topK", "dim"),
  experts: whole,
};
export type ExpertRowsArgs = ArgumentsOf<typeof expertRowsFields>;

/** Sums of the rows of x that each row's experts made, times their weights. */
export const combineExpertsFields = {
  x: input("f32", "rows", "topK", "dim"),
  routing: unsized("i32"),
  y: output("f32", "rows", "dim"),
  experts: whole,
};

/** The matrices of all experts of a linear layer, and what multiplies with one. `A`: arguments of a linear layer. */
export interface ExpertMatrices<A> {
  /** Kernels for the rows of one expert, each from some rows on, with the fewest first, and from 1. */
  readonly choices: readonly { readonly from: number; readonly kernel: Kernel<A> }[];
  /** Arrays that hold the matrices of all experts one after the other, and likewise their biases where those are apart. */
  readonly wholes: readonly ArrayBufferView[];
  /** The arguments of a call of m rows of one expert. */
  of(expert: number, m: number, x: Float32Array, y: Float32Array): A;
}

/** Kernels that native code chooses among by the rows of an expert. */
const CHOICES = 8;

/** Fewest rows of an expert and the kernel from there on, as its place in the addon's table; what is not used is like the last. */
const choiceFields = { from: numbers(CHOICES), kernels: numbers(CHOICES) };

type ExpertCall = Readonly<{ x: Float32Array; y: Float32Array; n: number; k: number }>;

/** The arguments of one row of the first expert. */
function firstCall<A>({ of }: ExpertMatrices<A>, args: unknown): A {
  const { x, y, n, k } = args as ExpertCall;
  return of(0, 1, x.subarray(0, k), y.subarray(0, n));
}

/** Values of `choiceFields`, of kernels that are native. */
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

/** y [places, n] = x [places, k] times the packed matrix of each row's expert, where `routing` says which rows are whose. */
export const packedExpertFields = { ...expertLinearFields, matrices: packedMatrices };
/** The same with matrices of floats. */
export const floatExpertFields = { ...expertLinearFields, matrices: floatMatrices };

/** Arguments of the two, by those of their linear layers. */
export type ExpertLinearArgs<A> = Omit<ArgumentsOf<typeof packedExpertFields>, "matrices"> & {
  /** The same for calls of any number of rows. */
  readonly matrices: ExpertMatrices<A>;
};
