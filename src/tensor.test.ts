/** Tensor construction, byte views and the conversion to float32. */
import { describe, expect, test } from "vitest";
import { type DType, dtypes, type TypedArray } from "./dtype.ts";
import { UnsupportedError } from "./errors.ts";
import { bytesOf, elementCount, toFloat32, zeroTensor } from "./tensor.ts";

test("elementCount is the product, 1 for a scalar and 0 with an empty dimension", () => {
  expect([elementCount([]), elementCount([5]), elementCount([2, 3, 4]), elementCount([2, 0, 4])]).toEqual([
    1, 5, 24, 0,
  ]);
});

test("zeroTensor has the dtype's array, as long as the shape says", () => {
  const sizes = {
    f64: 8,
    i64: 8,
    u64: 8,
    f32: 4,
    i32: 4,
    u32: 4,
    f16: 2,
    bf16: 2,
    i16: 2,
    u16: 2,
    i8: 1,
    u8: 1,
    bool: 1,
  };
  for (const dtype of dtypes) {
    const { data, shape } = zeroTensor(dtype, [2, 3]);
    expect([shape, data.length, data.byteLength]).toEqual([[2, 3], 6, 6 * sizes[dtype]]);
  }
});

test("bytesOf sees the part of the buffer that the array sees, without a copy", () => {
  const array = Uint16Array.of(0, 0x0201, 0x0403, 0).subarray(1, 3);
  const bytes = bytesOf(array);
  expect(bytes).toEqual(Uint8Array.of(1, 2, 3, 4));
  bytes[0] = 9;
  expect(array[0]).toBe(0x0209);
});

describe("toFloat32", () => {
  const cases: [DType, TypedArray, number[]][] = [
    ["f16", Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x7c00), [1, -2, 2 ** -24, Number.POSITIVE_INFINITY]],
    ["bf16", Uint16Array.of(0x3f80, 0xc000, 0x7f80), [1, -2, Number.POSITIVE_INFINITY]],
    ["f64", Float64Array.of(0.1, -1e300), [Math.fround(0.1), Number.NEGATIVE_INFINITY]],
  ];
  test.each(cases)("converts %s", (dtype, data, expected) => {
    expect(toFloat32({ dtype, shape: [data.length], data })).toEqual(Float32Array.from(expected));
  });

  test("gives a float32 tensor's own array", () => {
    const data = Float32Array.of(1, 2);
    expect(toFloat32({ dtype: "f32", shape: [2], data })).toBe(data);
  });

  test.each(dtypes.filter((dtype) => !/f/.test(dtype)))("refuses %s", (dtype) => {
    expect(() => toFloat32(zeroTensor(dtype, [1]))).toThrow(UnsupportedError);
    expect(() => toFloat32(zeroTensor(dtype, [1]))).toThrow(`found ${dtype}`);
  });
});
