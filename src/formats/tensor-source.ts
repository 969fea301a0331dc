/** The interface of all readers of checkpoint weights: named tensors, read whole or by rows. */
import type { DType } from "../dtype.ts";
import type { ActivationKind, FactoredScale, QuantizedWeights, WeightSpec } from "../quantized.ts";
import type { Tensor } from "../tensor.ts";

/** Element type and sizes of a stored tensor. */
export interface TensorInfo {
  /** Type of the elements. */
  readonly dtype: DType;
  /** Sizes, outermost first; empty for a scalar. */
  readonly shape: readonly number[];
}

/** A matrix that the file stores in few bits, in a form that lowbit represents exactly, perhaps with minima. */
export interface LowBitTensor {
  /** Name of the form in the file's format, such as "Q4_0". */
  readonly stored: string;
  /** Shape, bits, group size and other properties of the weights. */
  readonly spec: WeightSpec;
  /** The codebook, where the format defines one for all its tensors. */
  readonly levels?: Int8Array;
  /** How activations are quantized for the product, where the file says so. */
  readonly activations?: ActivationKind;
  /** Column j of the result of `rows` is column `order[j]` of the matrix; present where groups are not consecutive columns. */
  readonly order?: Int32Array;
  /** Reads the integers, scales and zero points of `count` rows from `first` on, without rounding. */
  rows(first: number, count: number): Promise<QuantizedWeights>;
  /**
   * Minimum of each group, which is added to the weights that `rows` gives; their zero points are then the lowest integer.
   * Absent where there are no minima.
   */
  readonly minima?: GroupMinima;
  /**
   * Form of scales and minima that are integers or e4m3 numbers times a factor, both of which `rows` gives, too; absent for
   * plain ones. For e4m3, the products may differ from `scales` in the last bits where a file says to divide.
   */
  readonly factored?: FactoredScale;
}

/** Minima of a matrix, [n, groups]. */
interface GroupMinima {
  /** Stored type of the minima. */
  readonly dtype: "f32" | "f16" | "bf16";
  /** Reads minima [count, groups] of `count` rows from `first` on, as stored. */
  rows(first: number, count: number): Promise<Tensor>;
}

/**
 * Named tensors on disk. `info`, `read` and `readRows` throw InvalidFileError for an unknown name and UnsupportedError for a
 * stored type that cannot be read; listing never throws.
 */
export interface TensorSource {
  /** Names of all tensors. */
  readonly names: readonly string[];
  /** Whether there is a tensor of this name. */
  has(name: string): boolean;
  /** Type and shape of a tensor; InvalidFileError when there is none of this name. */
  info(name: string): TensorInfo;
  /** Reads the whole tensor; the caller owns it. */
  read(name: string): Promise<Tensor>;
  /**
   * Reads rows `firstRow` to `firstRow + rowCount - 1` of the leading dimension, shape [rowCount, ...rest], without reading the
   * others. InvalidArgumentError for rows outside the tensor and for scalars.
   */
  readRows(name: string, firstRow: number, rowCount: number): Promise<Tensor>;
  /** The low-bit form of a tensor whose float values `read` gives; null for other tensors. */
  lowBit?(name: string): LowBitTensor | null;
  /** Name of the tensor's stored type in the file; absent where `info` says it all. */
  storedType?(name: string): string;
}

/** A source with open files. */
export interface OpenTensors extends TensorSource {
  /** String metadata of the files. */
  readonly metadata?: ReadonlyMap<string, string>;
  /** Closes the files. */
  close(): Promise<void>;
}
