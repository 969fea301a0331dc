/** Half-float conversions against bit fields assembled by a DataView and against a search for the nearest value. */
import { describe, expect, test } from "vitest";
import { decodeBf16, decodeF16Array, f16Table, f32ToBf16, f32ToF16, roundToBf16 } from "./half.ts";

const view = new DataView(new ArrayBuffer(4));

function floatOf(bits: number): number {
  view.setUint32(0, bits >>> 0);
  return view.getFloat32(0);
}

/** Binary16 to a number by moving its fields into a binary32; a subnormal is shifted until its leading one drops out. */
function f16Value(bits: number): number {
  const sign = (bits & 0x8000) << 16;
  let exponent = (bits >> 10) & 31;
  let fraction = bits & 1023;
  if (exponent === 31) return floatOf(sign | 0x7f800000 | (fraction << 13));
  if (exponent === 0) {
    if (fraction === 0) return floatOf(sign);
    exponent = 1;
    while (fraction < 1024) {
      fraction <<= 1;
      exponent--;
    }
    fraction &= 1023;
  }
  return floatOf(sign | ((exponent + 112) << 23) | (fraction << 13));
}

/** A 16-bit format for the search: its values, the pattern of infinity, and the value infinity's pattern would continue at. */
interface Format {
  readonly value: (bits: number) => number;
  readonly infinity: number;
  readonly beyond: number;
}
const f16: Format = { value: f16Value, infinity: 0x7c00, beyond: 65536 };
const bf16: Format = { value: (bits) => floatOf(bits << 16), infinity: 0x7f80, beyond: 2 ** 128 };

/** Nearest pattern to a float32 that is not NaN, ties to the even pattern, by halving the ordered patterns. */
function nearest({ value, infinity, beyond }: Format, x: number): number {
  const sign = Object.is(Math.sign(x), -0) || x < 0 ? 0x8000 : 0;
  const size = Math.abs(x);
  if (size >= beyond) return sign | infinity;
  const valueAt = (bits: number) => (bits === infinity ? beyond : value(bits));
  let below = 0;
  for (let above = infinity; above - below > 1; ) {
    const middle = (below + above) >> 1;
    if (valueAt(middle) <= size) below = middle;
    else above = middle;
  }
  const down = size - valueAt(below);
  const up = valueAt(below + 1) - size;
  const even = below % 2 === 0 ? below : below + 1;
  return sign | (down < up ? below : up < down ? below + 1 : even);
}

/** Float32 values that matter to a format: around each of some patterns and around the midpoints, and at random. */
function samples(format: Format, patternStep: number): number[] {
  const found: number[] = [0, -0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 3.4028234663852886e38, 2 ** -149];
  for (let bits = 0; bits < format.infinity; bits += patternStep) {
    const low = format.value(bits);
    const high = bits + 1 === format.infinity ? format.beyond : format.value(bits + 1);
    for (const centre of [low, low / 2 + high / 2]) {
      view.setFloat32(0, centre);
      const near = view.getUint32(0);
      for (const step of [-1, 0, 1]) if (near + step >= 0) found.push(floatOf(near + step), -floatOf(near + step));
    }
  }
  let state = 12345;
  for (let i = 0; i < 100_000; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const value = floatOf(state);
    if (!Number.isNaN(value)) found.push(value);
  }
  return found;
}

/** Samples whose conversion differs from the search. */
function wrong(format: Format, convert: (value: number) => number, values: number[]): string[] {
  return values
    .filter((x) => convert(x) !== nearest(format, x))
    .map((x) => `${x}: ${convert(x).toString(16)} instead of ${nearest(format, x).toString(16)}`);
}

describe("binary16", () => {
  test("all 65536 patterns decode to their value", () => {
    const table = f16Table();
    const decoded = new Float32Array(65536);
    decodeF16Array(
      Uint16Array.from({ length: 65536 }, (_, bits) => bits),
      decoded,
    );
    const bad = [];
    for (let bits = 0; bits < 65536; bits++)
      if (!Object.is(table[bits], f16Value(bits)) || !Object.is(decoded[bits], f16Value(bits))) bad.push(bits);
    expect(bad).toEqual([]);
    expect([table[0x3c00], table[0xc000], table[0x7bff], table[1], table[0x03ff]]).toEqual([
      1,
      -2,
      65504,
      2 ** -24,
      1023 * 2 ** -24,
    ]);
  });

  test("every pattern that is not NaN encodes back to itself", () => {
    const table = f16Table();
    const bad = [];
    for (let bits = 0; bits < 65536; bits++)
      if (!Number.isNaN(table[bits]) && f32ToF16(table[bits]!) !== bits) bad.push(bits);
    expect(bad).toEqual([]);
  });

  test("float32 rounds to the nearest, ties to even: subnormals, midpoints, overflow, random", () => {
    expect(wrong(f16, f32ToF16, samples(f16, 1))).toEqual([]);
    // The last value that rounds down and the tie that goes to infinity; the tie to zero and the first above it.
    expect([65519.996, 65520, -65520].map(f32ToF16)).toEqual([0x7bff, 0x7c00, 0xfc00]);
    expect([2 ** -25, 2 ** -25 + 2 ** -48, -(2 ** -26)].map(f32ToF16)).toEqual([0, 1, 0x8000]);
  });

  test("NaN of either sign and any payload stays NaN", () => {
    for (const bits of [0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff])
      expect(f16Value(f32ToF16(floatOf(bits)))).toBeNaN();
  });
});

describe("bfloat16", () => {
  test("all 65536 patterns decode to their value", () => {
    const decoded = new Float32Array(65536);
    decodeBf16(
      Uint16Array.from({ length: 65536 }, (_, bits) => bits),
      decoded,
    );
    const bad = [];
    for (let bits = 0; bits < 65536; bits++) if (!Object.is(decoded[bits], bf16.value(bits))) bad.push(bits);
    expect(bad).toEqual([]);
    expect([decoded[0x3f80], decoded[0xc049], decoded[0x0001]]).toEqual([1, -3.140625, 2 ** -133]);
  });

  test("decodes into a part of a larger array", () => {
    const larger = new Float32Array(4).fill(9);
    decodeBf16(Uint16Array.of(0x3f80, 0x4000), larger.subarray(1, 3));
    expect(larger).toEqual(Float32Array.of(9, 1, 2, 9));
  });

  test("float32 rounds to the nearest, ties to even: subnormals, midpoints, overflow, random", () => {
    expect(wrong(bf16, f32ToBf16, samples(bf16, 3))).toEqual([]);
    expect([floatOf(0x7f7f7fff), floatOf(0x7f7f8000)].map(f32ToBf16)).toEqual([0x7f7f, 0x7f80]);
  });

  test("NaN of either sign and any payload stays NaN", () => {
    for (const bits of [0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff])
      expect(bf16.value(f32ToBf16(floatOf(bits)))).toBeNaN();
  });
});

test("rounds arrays to bf16 as single values", () => {
  const values = Float32Array.from(
    { length: 2 ** 16 },
    (_, i) => floatOf((i * 65537 + 0x7f01) % 0x7f000000) * (i % 2 ? 1 : -1),
  );
  const [expected, words] = [Uint16Array.from(values, f32ToBf16), new Uint16Array(values.length)];
  roundToBf16(values, words);
  expect(words).toEqual(expected);
  expect(Uint16Array.from(values, f32ToBf16)).toEqual(expected);
  expect(values.every((value, i) => value === bf16.value(expected[i]!))).toBe(true);
});
