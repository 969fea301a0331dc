/**
 * Weights of a model: a name, a shape, a format that is known before the data is read, and the data on demand. A format
 * decides which operators multiply with or look up the weight, and how it is packed; users can add formats.
 */
import { unexpected } from "../arguments.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { Tensor } from "../tensor.ts";
import { readingWhole } from "../whole-reads.ts";
import type { Builder } from "./builder.ts";

/** Format of a weight. `kind` names a registered lowering; further fields are that lowering's own. */
export interface WeightFormat {
  /** Name of the kind, by which its lowering is found. */
  readonly kind: string;
}

/** A matrix [n, k] or a vector [n] of a model. `D` is the data of its format, before packing. */
export interface Weight<F extends WeightFormat = WeightFormat, D = unknown> {
  /** Name of the weight in the checkpoint. */
  readonly name: string;
  /** Sizes of the weight; [n, k] for matrices. */
  readonly shape: readonly number[];
  /** How the weight is stored: its kind, and the kind's own fields. */
  readonly format: F;
  /** Reads or makes the weight's data, in the form of its kind. */
  load(): Promise<D>;
  /**
   * Reads the rows in parts, in order, all but the last with a multiple of 32 rows; absent where the weight can only be
   * read whole.
   */
  loadRows?(): AsyncIterable<D>;
}

/** Lowering of a weight format: how its weights become operator calls and constants. */
export interface WeightLowering {
  /** Kind of format that this lowers. */
  readonly kind: string;
  /** Adds the calls that compute y [..., n] = x [..., k] W^T + bias. */
  linear<T>(builder: Builder<T>, x: T, weight: Weight, bias: Weight | null): T;
  /** Adds the calls that look up rows of W; absent when the format cannot. */
  embedding?<T>(builder: Builder<T>, weight: Weight, indices: T): T;
  /**
   * Gives the first `count` rows (a multiple of 32) as a weight that reads the same buffer; absent when the format cannot.
   */
  firstRows?(weight: Weight, count: number): Weight;
  /** Gives the matrix as parts of `rows` rows each, which are packed by themselves; absent when the format cannot. */
  rowBlocks?(weight: Weight, rows: number): readonly Weight[];
}

const lowerings = new Map<string, WeightLowering>();

/** Adds a weight format. InvalidArgumentError when its kind is taken. */
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

/**
 * The first `count` rows of a matrix (a multiple of 32) as a weight that reads the same buffer; null where its format
 * cannot.
 */
export function firstRows(weight: Weight, count: number): Weight | null {
  return loweringOf(weight).firstRows?.(weight, count) ?? null;
}

/**
 * A matrix as parts of `rows` rows each, which are packed by themselves and read in order. UnsupportedError where its format
 * cannot be divided.
 */
export function rowBlocks(weight: Weight, rows: number): readonly Weight[] {
  const { kind, rowBlocks } = loweringOf(weight);
  if (!rowBlocks) throw new UnsupportedError(`${weight.name}: parts of weights in format ${kind} are not supported`);
  return rowBlocks(weight, rows);
}

/** Parts of `rows` rows each, by `pick`. The matrix is in memory from the first of them to the last. */
export function pickedBlocks<F extends WeightFormat, D>(
  { name, shape, format, load }: Weight<F, D>,
  rows: number,
  pick: (whole: D, first: number, count: number) => D,
): readonly Weight<F, D>[] {
  const [n = 0] = shape;
  const read = readingWhole(n, () => load(), pick);
  return Array.from({ length: n / rows }, (_, i) => ({
    name: `${name}[${i * rows}:${(i + 1) * rows}]`,
    shape: shape.with(0, rows),
    format,
    load: () => read(i * rows, rows),
  }));
}

/** InvalidArgumentError for anything but a weight, as callers without types may give. */
export function checkWeight(weight: Weight): void {
  if (typeof weight?.format?.kind !== "string" || !Array.isArray(weight.shape))
    throw unexpected("weight", "a weight with its shape and format", weight);
}

export interface FloatFormat extends WeightFormat {
  readonly kind: "float";
  /** Type of the stored values. */
  readonly dtype: "f32" | "f16" | "bf16";
}

export type FloatWeight = Weight<FloatFormat, Tensor>;

/** The weight as a float one. UnsupportedError for other formats: norms and biases are never quantized. */
export function floatWeight(weight: Weight): FloatWeight {
  checkWeight(weight);
  if (weight.format.kind !== "float")
    throw new UnsupportedError(`${weight.name}: expected float values but found format ${weight.format.kind}`);
  return weight as FloatWeight;
}
