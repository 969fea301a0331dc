/** A method's values as tensors: views of scratch, state and constants, checked against what the file planned. */
import { shown, unexpected } from "../../arguments.ts";
import { byteSize, viewOf } from "../../dtype.ts";
import { InvalidArgumentError, ShapeError, UnsupportedError } from "../../errors.ts";
import type { TensorSpec } from "../../ops/call-arguments.ts";
import { type Method, SCRATCH_MEMORY, SEQUENCE_MEMORY, STATE_MEMORY, type TensorValue } from "../../program/program.ts";
import { elementCount, isSameShape, type Tensor } from "../../tensor.ts";

/** Memory that the views of a method point into. */
export interface MethodMemory {
  readonly scratch: Uint8Array;
  readonly state: Uint8Array;
  /** The handle of the sequence table, for programs with a paged KV cache. */
  readonly sequences: Tensor | null;
  /** Data of the program's constants, by index. */
  readonly constants: readonly Uint8Array[];
}

/** A value as a tensor of these sizes, in the memory planned for it. */
export function viewValue(value: TensorValue, sizes: readonly number[], memory: MethodMemory): Tensor {
  const length = elementCount(sizes);
  if (value.allocation?.memoryId === SEQUENCE_MEMORY) return sequencesOf(value, memory);
  const bytes = placeOf(value, memory);
  const needed = length * byteSize(value.dtype);
  if (bytes.length < needed)
    throw new ShapeError(
      `tensor ${value.name ?? ""} [${sizes}]: needs ${needed} bytes but its memory has ${bytes.length}`,
    );
  return { dtype: value.dtype, shape: sizes, data: viewOf(value.dtype, bytes.buffer, bytes.byteOffset, length) };
}

/** The only value of memory 3, at whatever offset the file says. */
function sequencesOf({ dtype, sizes }: TensorValue, { sequences }: MethodMemory): Tensor {
  if (!sequences || dtype !== sequences.dtype || !isSameShape(sizes, sequences.shape))
    throw new UnsupportedError(
      `a value in memory ${SEQUENCE_MEMORY}: expected the handle of sequences, i32 [1], of a program that works on them but found ${dtype} [${sizes}]`,
    );
  return sequences;
}

function placeOf(value: TensorValue, memory: MethodMemory): Uint8Array {
  if (value.constant !== null) return memory.constants[value.constant]!;
  if (!value.allocation) throw new UnsupportedError("tensors without planned memory are not supported");
  const { memoryId, offset } = value.allocation;
  if (memoryId === SCRATCH_MEMORY) return memory.scratch.subarray(offset);
  if (memoryId === STATE_MEMORY) return memory.state.subarray(offset);
  throw new UnsupportedError(`memory ${memoryId} is not supported, only 1 (scratch), 2 (state) and 3 (sequences)`);
}

/** InvalidArgumentError for sizes that the method does not take for input `i`. */
export function checkInput(method: Method, i: number, sizes: readonly number[]): void {
  const value = method.values[method.inputs[i]!]!;
  if (value.kind !== "tensor" || value.constant !== null)
    throw new UnsupportedError(`method ${method.name}: input ${i} is no tensor with memory of its own`);
  const fits =
    value.dynamism === "static"
      ? isSameShape(sizes, value.sizes)
      : sizes.length === value.sizes.length && sizes.every((size, d) => size >= 1 && size <= value.sizes[d]!);
  const bound = value.dynamism === "static" ? "" : "from 1 to those of ";
  if (!fits)
    throw new InvalidArgumentError(
      `method ${method.name}, input ${i}: expected sizes ${bound}[${value.sizes}] but found [${sizes}]`,
    );
}

/** The value that a result is written to. ShapeError where the operator's result does not fit what the file planned. */
export function checkPlanned(method: Method, name: string, index: number, spec: TensorSpec): TensorValue {
  const value = method.values[index]!;
  if (value.kind !== "tensor") throw new ShapeError(`${name}: expected a tensor to write to but found ${value.kind}`);
  if (value.dtype !== spec.dtype || elementCount(spec.shape) > elementCount(value.sizes))
    throw new ShapeError(
      `${name}: gives ${spec.dtype} [${spec.shape}], which does not fit the ${value.dtype} [${value.sizes}] planned for it`,
    );
  return value;
}

/** InvalidArgumentError for anything but a list of as many tensors as the method takes. */
export function checkInputCount(method: Method, inputs: readonly Tensor[]): void {
  const isTensor = (input: Partial<Tensor> | null) => Array.isArray(input?.shape) && ArrayBuffer.isView(input.data);
  if (!Array.isArray(inputs) || !inputs.every(isTensor))
    throw unexpected("inputs", "a list of tensors with dtype, shape and data", inputs);
  if (inputs.length !== method.inputs.length)
    throw new InvalidArgumentError(
      `method ${method.name}: expected ${method.inputs.length} inputs but found ${inputs.length}`,
    );
}

/** Copies input `i` into the memory that the method reads, which has its sizes. */
export function copyInput(method: Method, i: number, source: Tensor, target: Tensor): void {
  if (source.dtype !== target.dtype)
    throw new InvalidArgumentError(
      `method ${method.name}, input ${i}: expected dtype ${target.dtype} but found ${shown(source.dtype)}`,
    );
  if (source.data.length !== target.data.length)
    throw new InvalidArgumentError(
      `method ${method.name}, input ${i}: expected ${target.data.length} values but found ${source.data.length}`,
    );
  (target.data as Uint8Array).set(source.data as Uint8Array);
}
