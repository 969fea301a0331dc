/**
 * What a model's operator calls are made on: executed at once (eager) or recorded (capture).
 * `T` is a tensor in the first case and a symbolic value in the second.
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
  /** Bias [n] of weights that are packed with one. */
  readonly bias: Float32Array | null;
}

/** Rows of a matrix in order, each part but the last of a multiple of 32 of them, and its bias [n], null for none. */
export interface UnpackedStream {
  /** The matrix in parts of some rows, in order. */
  rows(): AsyncIterable<QuantizedWeights>;
  /** Bias [n], or null without one. */
  bias(): Promise<Float32Array | null>;
}

/** What a constant of packed weights is made of. */
export interface PackedSource {
  /** Sizes and kinds of the weights. */
  readonly spec: WeightSpec;
  /** Layout that the weights are packed in. */
  readonly layout: PackedLayout;
  /** Whether a bias [n] is packed with the weights. */
  readonly hasBias: boolean;
  /** The codebook of weights that have one, where it is known before they are read. */
  readonly levels?: Int8Array;
  /** What matrices with the same codebook have in common, where its levels are not known yet. */
  readonly codebook?: string;
  /** Reads the whole matrix. */
  load(): Promise<UnpackedMatrix>;
  /** Reads the matrix in parts; absent where it is only had whole. */
  readonly stream?: UnpackedStream;
}

/** A constant whose bytes are made when they are needed: packed weights, tables. */
export interface LazyConstant {
  /** Name of the content: constants of one key are one buffer. */
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
   * Reads or makes the elements in parts, in order, so that they are never whole in memory; absent where they are only
   * made whole.
   */
  parts?(): AsyncIterable<TypedArray>;
  /** Makes the bytes in parts, of which the first ones are known last; absent where there is no such head. */
  headed?(): HeadedParts;
  /** Weights of each expert in the order of their rows, of a constant that has those of all; absent for others. */
  readonly experts?: readonly (readonly StackedWeight[])[];
}

/** A weight of an expert within a constant of all: its name, and how many rows it has. */
interface StackedWeight {
  /** Name of the weight in the checkpoint. */
  readonly name: string;
  /** Number of rows. */
  readonly rows: number;
}

/** The handle that stands for the table of sequences. */
export const sequencesSpec: TensorSpec = { dtype: "i32", shape: [1] };

/** InvalidArgumentError where `what`, such as "state s", is a tensor of another dtype or other sizes already. */
export function checkSameSpec(what: string, known: TensorSpec, given: TensorSpec): void {
  const [expected, found] = [known, given].map(({ dtype, shape }) => `${dtype} [${shape}]`);
  if (found !== expected)
    throw new InvalidArgumentError(`${what}: expected ${expected}, which it is already, but found ${found}`);
}

/**
 * What a model's code calls operators on. `T` is a tensor where calls run at once (eager), and a symbolic value where they are
 * captured to be compiled.
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
  /** Gives what stands for the table of a step's sequences, for operators that work on them. */
  sequences(): T;
  /** Type and sizes of a value. */
  spec(value: T): TensorSpec;
}
