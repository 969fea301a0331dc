/** A dense row-major tensor: element type, shape, data. */
import { type DType, type TypedArray, viewOf, zeros } from "./dtype.ts";
import { UnsupportedError } from "./errors.ts";
import { decodeBf16, decodeF16Array } from "./half.ts";

/** A dense array of numbers: an element type, sizes from the outermost dimension in, and the elements in that order. */
export interface Tensor {
  /** Type of the elements. */
  readonly dtype: DType;
  /** Sizes of the tensor. */
  readonly shape: readonly number[];
  /** Elements in row-major order. */
  readonly data: TypedArray;
}

/** Number of elements of a shape; 1 for a scalar. */
export function elementCount(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** Whether two lists of sizes are equal. */
export function isSameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((size, i) => size === b[i]);
}

/** A zeroed tensor. */
export function zeroTensor(dtype: DType, shape: readonly number[]): Tensor {
  return { dtype, shape, data: zeros(dtype, elementCount(shape)) };
}

/** The bytes of an array, such as a tensor's data, without a copy. */
export function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return viewOf("u8", buffer, byteOffset, byteLength);
}

/** Float32 values of a float tensor: the tensor's own array for f32, a new one for f16, bf16 and f64. */
export function toFloat32(tensor: Tensor): Float32Array {
  const { dtype, data } = tensor;
  if (dtype === "f32") return data as Float32Array;
  const result = new Float32Array(data.length);
  if (dtype === "f16") decodeF16Array(data as Uint16Array, result);
  else if (dtype === "bf16") decodeBf16(data as Uint16Array, result);
  else if (dtype === "f64") result.set(data as Float64Array);
  else throw new UnsupportedError(`toFloat32: expected a float tensor but found ${dtype}`);
  return result;
}

/** Rows `first` to `first` + `count` - 1 of the leading dimension, in the same memory. */
export function rangeOfTensor({ dtype, shape, data }: Tensor, first: number, count: number): Tensor {
  const size = elementCount(shape.slice(1));
  return { dtype, shape: shape.with(0, count), data: data.subarray(first * size, (first + count) * size) };
}
