/** Dense tensors of any dtype as lists of numbers, for the kernels of general aten operators. */
import type { DType, TypedArray } from "../../dtype.ts";
import { decodeBf16, decodeF16Array, f32ToBf16, f32ToF16 } from "../../half.ts";
import type { Kernel } from "../../kernels/contract.ts";
import type { Tensor } from "../../tensor.ts";

/** Typed arrays of plain numbers. */
export type Numbers = Exclude<TypedArray, BigInt64Array | BigUint64Array>;

/** The values of a tensor as numbers: its own array where that holds numbers, else a decoded copy. */
export function numbersOf({ dtype, data }: Tensor): Numbers {
  if (dtype === "i64" || dtype === "u64") return Float64Array.from(data as BigInt64Array, Number);
  if (dtype !== "f16" && dtype !== "bf16") return data as Numbers;
  const values = new Float32Array(data.length);
  if (dtype === "f16") decodeF16Array(data as Uint16Array, values);
  else decodeBf16(data as Uint16Array, values);
  return values;
}

/** Writes a number as an element type stores it. */
export function storeInto({ dtype, data }: Tensor): (index: number, value: number) => void {
  const conversion = conversions[dtype];
  if (dtype === "i64" || dtype === "u64")
    return (index, value) => {
      (data as BigInt64Array)[index] = toInt64(value);
    };
  return (index, value) => {
    (data as Numbers)[index] = conversion ? conversion(value) : value;
  };
}

/** A number as int64: clamped to the range, and the least for NaN, as x86 converts it. */
function toInt64(value: number): bigint {
  if (value >= 2 ** 63) return 2n ** 63n - 1n;
  return value > -(2 ** 63) ? BigInt(Math.trunc(value)) : -(2n ** 63n);
}

const conversions: Partial<Record<DType, (value: number) => number>> = {
  f16: f32ToF16,
  bf16: f32ToBf16,
  bool: (value) => (value === 0 ? 0 : 1),
};

/** A kernel of a general operator: plain loops for any shapes and dtypes. */
export function denseKernel<A>(operator: string, run: (args: A) => void): Kernel<A> {
  return {
    name: `${operator}_any_1x1x1_reference`,
    target: "reference",
    layouts: null,
    bits: null,
    needs: [],
    mStep: 1,
    nStep: 1,
    bind: (args) => () => run(args),
  };
}

/** Row-major strides. */
export function stridesOf(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length);
  let stride = 1;
  for (let dim = shape.length - 1; dim >= 0; dim--) {
    strides[dim] = stride;
    stride *= shape[dim]!;
  }
  return strides;
}

/** Strides of a tensor broadcast to shape `target`: 0 where its size is 1. */
export function broadcastStrides(shape: readonly number[], target: readonly number[]): number[] {
  const strides = stridesOf(shape);
  const missing = target.length - shape.length;
  return target.map((_, dim) => (dim < missing || shape[dim - missing] === 1 ? 0 : strides[dim - missing]!));
}

/** Calls `visit(i, offset)` for each element i of `shape` in order, with its offset by `strides` from `start`. */
export function eachPlace(
  shape: readonly number[],
  strides: readonly number[],
  visit: (index: number, offset: number) => void,
  start = 0,
): void {
  // An empty tensor may still have very many rows.
  if (shape.includes(0)) return;
  const last = shape.length - 1;
  const inner = last < 0 ? 1 : shape[last]!;
  const step = last < 0 ? 0 : strides[last]!;
  const counts = new Array<number>(Math.max(0, last)).fill(0);
  const rows = shape.slice(0, Math.max(0, last)).reduce((product, size) => product * size, 1);
  let offset = start;
  for (let row = 0, index = 0; row < rows; row++) {
    for (let i = 0, place = offset; i < inner; i++, place += step) visit(index++, place);
    for (let dim = last - 1; dim >= 0; dim--) {
      offset += strides[dim]!;
      counts[dim]!++;
      if (counts[dim]! < shape[dim]!) break;
      offset -= strides[dim]! * shape[dim]!;
      counts[dim] = 0;
    }
  }
}
