/**
 * Weights of a model: a name, a shape, a format known before the data is read, and the data on demand.
 * A format says by which operators a weight multiplies or embeds, and how it is packed; formats are open to users.
 */
import { unexpected } from "../arguments.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { Tensor } from "../tensor.ts";
import type { Builder } from "./builder.ts";

/** `kind` names a registered lowering; the other fields are that lowering's own. */
export interface WeightFormat {
  /** Name of the kind, which finds its lowering. */
  readonly kind: string;
}

/** A matrix [n, k] or a vector [n] of a model. `D` is the logical data of its format. */
export interface Weight<F extends WeightFormat = WeightFormat, D = unknown> {
  /** Name of the weight in the checkpoint. */
  readonly name: string;
  /** Sizes of the weight; [n, k] for matrices. */
  readonly shape: readonly number[];
  /** How the weight is stored: its kind, and what that kind needs to know. */
  readonly format: F;
  /** Reads or makes the weight's data, in the form that its kind says. */
  load(): Promise<D>;
  /** The data of rows in order, each part but the last of a multiple of 32 rows; absent where it is only had whole. */
  loadRows?(): AsyncIterable<D>;
}

/** How weights of one format become operator calls and constants. */
export interface WeightLowering {
  /** Kind of weights that this lowers. */
  readonly kind: string;
  /** Adds the calls that compute y [..., n] = x [..., k] W^T + bias. */
  linear<T>(builder: Builder<T>, x: T, weight: Weight, bias: Weight | null): T;
  /** Adds the calls that look up rows of W; absent when the format has none. */
  embedding?<T>(builder: Builder<T>, weight: Weight, indices: T): T;
  /** Gives the first `count` rows, a multiple of 32, read from the same buffer; absent when the format cannot. */
  firstRows?(weight: Weight, count: number): Weight;
}

const lowerings = new Map<string, WeightLowering>();

/** Adds a weight format; InvalidArgumentError when its kind is taken. */
export function registerWeightFormat(lowering: WeightLowering): void {
  if (lowerings.has(lowering.kind))
    throw new InvalidArgumentError(`weight format ${lowering.kind} is registered already`);
  lowerings.set(lowering.kind, lowering);
}

export function loweringOf(weight: Weight): WeightLowering {
  checkWeight(weight);
  const lowering = lowerings.get(weight.format.kind);
  if (!lowering) throw new UnsupportedError(`${weight.name}: weight format ${weight.format.kind} is not registered`);
  return lowering;
}

/** The first `count` rows of a matrix, a multiple of 32, read from the same buffer; null where its format cannot. */
export function firstRows(weight: Weight, count: number): Weight | null {
  return loweringOf(weight).firstRows?.(weight, count) ?? null;
}

/** InvalidArgumentError for what is no weight, as programs without types may give. */
export function checkWeight(weight: Weight): void {
  if (typeof weight?.format?.kind !== "string" || !Array.isArray(weight.shape))
    throw unexpected("weight", "a weight with its shape and format", weight);
}

export interface FloatFormat extends WeightFormat {
  readonly kind: "float";
  readonly dtype: "f32" | "f16" | "bf16";
}

export type FloatWeight = Weight<FloatFormat, Tensor>;

/** A weight that must be float: norms and biases are never quantized. */
export function floatWeight(weight: Weight): FloatWeight {
  checkWeight(weight);
  if (weight.format.kind !== "float")
    throw new UnsupportedError(`${weight.name}: expected float values but found format ${weight.format.kind}`);
  return weight as FloatWeight;
}
