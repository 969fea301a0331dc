/** What every reader of checkpoint weights offers, whatever the file format: named tensors, whole or by rows. */
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

/** A matrix that the file stores in few bits: in a form that is exactly one of lowbit's, or with minima beside it. */
export interface LowBitTensor {
  /** Name that the file's format has for this form, such as "Q4_0". */
  readonly stored: string;
  /** Sizes and kinds of the weights. */
  readonly spec: WeightSpec;
  /** The codebook of weights that have one, where the file has one for all of its kind. */
  readonly levels?: Int8Array;
  /** How activations are multiplied with it, where the file says so. */
  readonly activations?: ActivationKind;
  /** Column j of what `rows` gives is column `order[j]` of the matrix, where groups are not of neighbours. */
  readonly order?: Int32Array;
  /** Reads the integers, scales and zero points of `count` rows from `first` on; no value is rounded. */
  rows(first: number, count: number): Promise<QuantizedWeights>;
  /**
   * What each group's weights have added to what `rows` gives, whose zero points then are the lowest integer; absent where
   * that is nothing.
   */
  readonly minima?: GroupMinima;
  /**
   * Whether scales, and minima, are bytes times factors, which `rows` gives, too; absent where they are not. Products with
   * e4m3 may differ from `scales` in the last bits, where a file says to divide.
   */
  readonly factored?: FactoredScale;
}

/** A float [n, groups] for each group of a matrix. */
interface GroupMinima {
  /** Type that the minima are stored in. */
  readonly dtype: "f32" | "f16" | "bf16";
  /** Minima [count, groups] of rows from `first` on, as stored. */
  rows(first: number, count: number): Promise<Tensor>;
}

/**
 * Named tensors on disk. A name that is not there gives InvalidFileError, a stored type that cannot be read
 * UnsupportedError; both come from `info`, `read` and `readRows`, never from listing.
 */
export interface TensorSource {
  /** Names of all tensors. */
  readonly names: readonly string[];
  /** Whether there is a tensor of this name. */
  has(name: string): boolean;
  /** Type and sizes of a tensor; InvalidFileError when there is none of this name. */
  info(name: string): TensorInfo;
  /** Reads the whole tensor; the caller owns it. */
  read(name: string): Promise<Tensor>;
  /**
   * Rows `firstRow .. firstRow + rowCount` of the leading dimension, shape [rowCount, ...rest], without reading the
   * others. InvalidArgumentError for rows outside the tensor and for scalars.
   */
  readRows(name: string, firstRow: number, rowCount: number): Promise<Tensor>;
  /** What the file stores in few bits, of which `read` gives the float values; null for other tensors. */
  lowBit?(name: string): LowBitTensor | null;
  /** How the file stores a tensor, by the file's own name; absent where `info` says it all. */
  storedType?(name: string): string;
}

/** A source that holds files open until `close`. */
export interface OpenTensors extends TensorSource {
  /** Strings that the files carry beside their tensors. */
  readonly metadata?: ReadonlyMap<string, string>;
  /** Closes the files. */
  close(): Promise<void>;
}
