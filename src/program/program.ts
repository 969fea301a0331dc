/**
 * The one program type: what `compile` makes, the `.pte` file stores and `runtime` executes.
 * It mirrors ExecuTorch's schema/program.fbs (identifier ET12); constant data stays behind `DataSource`.
 */
import type { HeadedParts } from "../byte-source.ts";
import type { DType } from "../dtype.ts";

/** Bytes that are read or made on demand, so that no program is ever whole in memory. */
export interface DataSource {
  /** Number of bytes. */
  readonly byteLength: number;
  /** Reads all bytes; the caller may keep them. */
  read(): Promise<Uint8Array>;
  /** Reads the bytes in parts, in order; absent where the data is only made as a whole. */
  parts?(): AsyncIterable<Uint8Array>;
  /** Makes the bytes in parts where a header, the first bytes, is known only at the end; absent for others. */
  headed?(): HeadedParts;
  /** Reads the bytes directly into `target`; absent where the data is only made as a whole. */
  readInto?(target: Uint8Array): Promise<void>;
  /** Reads some of the bytes; absent where the data is only made as a whole. */
  readRange?(offset: number, length: number): Promise<Uint8Array>;
}

/**
 * Place of a planned tensor: memory 1 is scratch, memory 2 is state that outlives a call, memory 3 is the handle of the
 * sequence table.
 */
export interface Allocation {
  /** Memory that the tensor lies in: 1 for scratch, 2 for state. */
  readonly memoryId: number;
  /** Byte at which the tensor begins there. */
  readonly offset: number;
}

export const SCRATCH_MEMORY = 1;
export const STATE_MEMORY = 2;
export const SEQUENCE_MEMORY = 3;

export interface TensorValue {
  /** Marks tensors among other values. */
  readonly kind: "tensor";
  /** Type of the elements. */
  readonly dtype: DType;
  /** Sizes of the tensor; upper bounds where it is dynamic. */
  readonly sizes: readonly number[];
  /** Order of the dimensions in memory, the outermost first. */
  readonly dimOrder: readonly number[];
  /** Whether sizes are fixed, at most the planned ones, or unlimited. */
  readonly dynamism: "static" | "bound" | "unbound";
  /** Index into `Program.constants`, null for tensors that the method computes or receives. */
  readonly constant: number | null;
  /** Planned place; null for constants, and for inputs in the caller's memory. */
  readonly allocation: Allocation | null;
  /** Fully qualified name, for constants and state. */
  readonly name: string | null;
}

export type Value =
  | { readonly kind: "null" }
  | { readonly kind: "int"; readonly value: number } // 2^63 stands for the largest int64, "to the end"
  | { readonly kind: "bool"; readonly value: boolean }
  | { readonly kind: "double"; readonly value: number }
  | { readonly kind: "string"; readonly value: string }
  | { readonly kind: "intList"; readonly items: readonly number[] } // indices of int values
  | { readonly kind: "doubleList"; readonly items: readonly number[] } // literals
  | { readonly kind: "boolList"; readonly items: readonly boolean[] } // literals
  | { readonly kind: "tensorList"; readonly items: readonly number[] } // indices of tensor values before this one
  | { readonly kind: "optionalTensorList"; readonly items: readonly number[] } // the same, -1 for none
  | TensorValue;

export function isTensorList(value: Value): value is Extract<Value, { kind: "tensorList" | "optionalTensorList" }> {
  return value.kind === "tensorList" || value.kind === "optionalTensorList";
}

export type Instruction =
  | { readonly kind: "kernel"; readonly operator: number; readonly args: readonly number[] }
  | { readonly kind: "delegate"; readonly delegate: number; readonly args: readonly number[] }
  | { readonly kind: "move"; readonly from: number; readonly to: number }
  | { readonly kind: "jumpFalse"; readonly condition: number; readonly destination: number }
  | { readonly kind: "free"; readonly value: number };

/** An operator's qualified name and overload, `torchao::_linear_8bit_act_4bit_weight` and `out`. */
export interface OperatorName {
  /** Name with its namespace. */
  readonly name: string;
  /** Name of the overload; empty for the default one. */
  readonly overload: string;
}

export interface Method {
  /** Name of the method. */
  readonly name: string;
  /** Values that instructions and arguments refer to by index. */
  readonly values: readonly Value[];
  /** Indices of the input values. */
  readonly inputs: readonly number[];
  /** Indices of the output values. */
  readonly outputs: readonly number[];
  /** Operators that instructions refer to by index. */
  readonly operators: readonly OperatorName[];
  /** Instructions in order. */
  readonly instructions: readonly Instruction[];
  /** Ids of backend delegates that instructions call; empty in programs of ours. Their blobs are not kept. */
  readonly delegates: readonly string[];
  /** Bytes of each memory; index 0 is reserved by the format. */
  readonly memorySizes: readonly number[];
}

/** A constant tensor's data. `alignment` is a power of two from 16 to 4096. One object listed twice is stored once. */
export interface Constant {
  /** Bytes of the constant. */
  readonly data: DataSource;
  /** Power of two that divides the constant's offset in the file. */
  readonly alignment: number;
}

/** A program as a value: methods, constants and named data, as a `.pte` file stores them. */
export interface Program {
  /** The file that it was read from, for messages; absent for programs made in memory. */
  readonly file?: string;
  /** Methods of the program. */
  readonly methods: readonly Method[];
  /** Constants, which `TensorValue.constant` indexes from 0; the format's table has a reserved entry before them. */
  readonly constants: readonly Constant[];
  /** Data by keys, such as tokenizer and chat template. */
  readonly namedData: ReadonlyMap<string, DataSource>;
}
