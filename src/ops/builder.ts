/**
 * Builder: where a model's operator calls go, executed at once (eager) or recorded (capture). `T` is a tensor in the first
 * case and a symbolic value in the second.
 */
import type { HeadedParts } from "../byte-source.ts";
import type { DType, TypedArray } from "../dtype.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { Cpu, PackedLayout } from "../kernels/contract.ts";
import type { QuantizedWeights, WeightSpec } from "../quantized.ts";
import type { Argument, TensorSpec } from "./call-arguments.ts";

/** Quantized weights before they are packed, and their bias. */
export interface UnpackedMatrix {
  /** Integers, scales and zero points of the matrix. */
  readonly weights: QuantizedWeights;
  /** Bias [n] to be packed with the weights; null without one. */
  readonly bias: Float32Array | null;
}

/** Rows of a matrix in parts, in order, all but the last with a multiple of 32 rows; and its bias. */
export interface UnpackedStream {
  /** The rows of the matrix in parts, in order. */
  rows(): AsyncIterable<QuantizedWeights>;
  /** Bias [n], or null without one. */
  bias(): Promise<Float32Array | null>;
}

/** Source of a constant of packed weights. */
export interface PackedSource {
  /** Sizes and kinds of the weights. */
  readonly spec: WeightSpec;
  /** Layout that the weights are packed in. */
  readonly layout: PackedLayout;
  /** Whether a bias [n] is packed with the weights. */
  readonly hasBias: boolean;
  /** The codebook, where it is known before the weights are read. */
  readonly levels?: Int8Array;
  /** Key that matrices with the same codebook share, where its levels are not known yet. */
  readonly codebook?: string;
  /** Reads the whole matrix. */
  load(): Promise<UnpackedMatrix>;
  /** Reads the matrix in parts; absent where it can only be read whole. */
  readonly stream?: UnpackedStream;
}

/** A constant whose bytes are made when needed: packed weights, tables. */
export interface LazyConstant {
  /** Name of the content: constants with the same key are one buffer. */
  readonly key: string;
  /** Type of the elements. */
  readonly dtype: DType;
  /** Sizes of the tensor. */
  readonly shape: readonly number[];
  /** Reads or makes all elements. */
  read(): Promise<TypedArray>;
  /** Source of packed weights, which lets passes join several of them; absent for other constants. */
  readonly packed?: PackedSource;
  /**
   * Reads or makes the elements in parts, in order, so that they are never all in memory; absent where they are only made
   * whole.
   */
  parts?(): AsyncIterable<TypedArray>;
  /** Makes the bytes in parts where a header, the first bytes, is known only at the end; absent for others. */
  headed?(): HeadedParts;
  /** For a stack of experts' weights: the weights of each expert, in the order of their rows; absent for others. */
  readonly experts?: readonly (readonly StackedWeight[])[];
}

/** A weight of an expert within a stack: its name and number of rows. */
interface StackedWeight {
  /** Name of the weight in the checkpoint. */
  readonly name: string;
  /** Number of rows. */
  readonly rows: number;
}

/** Spec of the handle that stands for the sequence table. */
export const sequencesSpec: TensorSpec = { dtype: "i32", shape: [1] };

/** InvalidArgumentError where `what`, such as "state s", already is a tensor of another dtype or shape. */
export function checkSameSpec(what: string, known: TensorSpec, given: TensorSpec): void {
  const [expected, found] = [known, given].map(({ dtype, shape }) => `${dtype} [${shape}]`);
  if (found !== expected)
    throw new InvalidArgumentError(`${what}: expected ${expected}, which it is already, but found ${found}`);
}

/**
 * Receives the operator calls of a model's code. `T` is a tensor where calls run at once (eager), and a symbolic value
 * where they are captured to be compiled.
 */
export interface Builder<T> {
  /** The CPU that weights are packed for. */
  readonly cpu: Cpu;
  /** Calls a registered operator by its full name; missing trailing arguments take the schema's defaults. */
  call(operator: string, ...args: Argument<T>[]): T;
  /** Adds a tensor whose data is known. */
  constant(constant: LazyConstant): T;
  /** Adds a zeroed tensor that outlives the call, such as a KV cache. */
  state(name: string, spec: TensorSpec): T;
  /** Gives the handle of the sequence table, for operators with a paged KV cache. */
  sequences(): T;
  /** Type and sizes of a value. */
  spec(value: T): TensorSpec;
}
