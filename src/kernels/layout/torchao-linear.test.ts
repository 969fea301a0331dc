/** TorchAO's universal layout against a straight-line packer that appends one field after the other. */
import { describe, expect, it } from "vitest";
import { Random, randomWeights } from "../../../test/support/random.ts";
import { expectSame } from "../../../test/support/same.ts";
import { ShapeError } from "../../errors.ts";
import type { QuantizedWeights } from "../../quantized.ts";
import { openPacked, packWeights } from "./packed.ts";
import { packChunk } from "./torchao-bits.ts";
import { torchaoUniversal } from "./torchao-linear.ts";

/** The layout as a list of bytes: header, then for each panel of 8 rows its groups, then its bias. */
function straightLine(weights: QuantizedWeights, bias: Float32Array | null): Uint8Array {
  const { n, k, bits, groupSize, qvals, scales, zeros } = weights;
  const bytes: number[] = [];
  const int32 = (value: number) => bytes.push(...new Uint8Array(Int32Array.of(value).buffer));
  const float32 = (value: number) => bytes.push(...new Uint8Array(Float32Array.of(value).buffer));
  for (const value of [6712, 1, bits, zeros ? 1 : 0, bias ? 1 : 0, 8, 16, 2, 0, 0, 0, 0, 0, 0, 0, 0]) int32(value);
  const q = (row: number, c: number) => (row < n ? qvals[row * k + c]! : 0);
  const groups = k / groupSize;
  for (let first = 0; first < n; first += 8) {
    const rows = Array.from({ length: 8 }, (_, i) => first + i);
    for (let g = 0; g < groups; g++) {
      for (let c = g * groupSize; c < (g + 1) * groupSize; c += 16) {
        // Two halves of 16 k: eight values of each of the eight rows.
        const values = [c, c + 8].flatMap((half) =>
          rows.flatMap((row) => Array.from({ length: 8 }, (_, i) => q(row, half + i))),
        );
        const unsigned = Uint8Array.from(values, (value) => (bits < 8 ? value + 2 ** (bits - 1) : value));
        const chunk = new Uint8Array(16 * bits);
        packChunk(bits, 128, { values: unsigned, from: 0 }, chunk, 0);
        bytes.push(...chunk);
      }
      for (const row of rows) float32(row < n ? scales[row * groups + g]! : 0);
      for (const row of rows) {
        let sum = 0;
        for (let c = g * groupSize; c < (g + 1) * groupSize; c++) sum += q(row, c);
        int32(sum);
      }
      if (zeros) for (const row of rows) int32(row < n ? zeros[row * groups + g]! : 0);
    }
    if (bias) for (const row of rows) float32(row < n ? bias[row]! : 0);
  }
  return Uint8Array.from(bytes);
}

describe.each([1, 2, 3, 4, 5, 6, 7, 8])("%i bits", (bits) => {
  it.each([
    [8, 32, 32],
    [16, 128, 32],
    [9, 64, 16],
    [1, 96, 48],
    [15, 64, 64],
  ])("rows %i, k %i, group %i: byte for byte", (n, k, groupSize) => {
    const random = new Random(bits + n);
    for (const zeros of [false, true]) {
      const weights = randomWeights(random, { n, k, bits, groupSize, zeros });
      for (const bias of [null, random.floats(n)])
        expectSame(packWeights(weights, bias, torchaoUniversal), straightLine(weights, bias));
    }
  });
});

it("overhead is 64 / g bits a weight, with zeros 96 / g", () => {
  const size = (groupSize: number, zeros: boolean) => {
    const spec = { n: 64, k: 1024, bits: 4, groupSize, hasZeros: zeros, hasLevels: false, scaleDType: "f32" as const };
    return (8 * (torchaoUniversal.byteLength(spec, false) - 64)) / (64 * 1024);
  };
  expect([size(32, false), size(32, true), size(128, false), size(256, true)]).toEqual([6, 7, 4.5, 4.375]);
});

describe("a damaged buffer", () => {
  const weights = randomWeights(new Random(2), { n: 10, k: 64, bits: 4, groupSize: 32 });
  const good = packWeights(weights, null, torchaoUniversal);
  const forged = (field: number, value: number) => {
    const bytes = good.slice();
    new DataView(bytes.buffer).setInt32(4 * field, value, true);
    return bytes;
  };

  it.each([
    ["type", 1, 2, /expected TorchAO type 1 but found type 2/],
    ["bits 0", 2, 0, /but found 0 bits/],
    ["bits 9", 2, 9, /but found 9 bits/],
    ["negative bits", 2, -4, /but found -4 bits/],
    ["other bits", 2, 5, /expected \d+ bytes but found \d+/],
    ["zeros", 3, 1, /expected \d+ bytes but found \d+/],
    ["bias", 4, 1, /expected \d+ bytes but found \d+/],
    ["nr", 5, 4, /nr 8, kr 16, sr 2 but found 4 bits and nr 4/],
    ["kr", 6, 32, /kr 32/],
    ["sr", 7, 8, /sr 8/],
  ] as const)("with a forged %s says so", (_, field, value, message) => {
    expect(() => openPacked(forged(field, value), weights)).toThrow(message);
    expect(() => openPacked(forged(field, value), weights)).toThrow(ShapeError);
  });

  it("of which the arguments say another shape is a ShapeError", () => {
    for (const change of [
      { n: 17 },
      { k: 96 },
      { groupSize: 24 },
      { groupSize: 0 },
      { n: 2 ** 31 },
      { k: -64 },
      { groupSize: 2 ** 32 },
    ])
      expect(() => openPacked(good, { ...weights, ...change }), JSON.stringify(change)).toThrow(ShapeError);
  });
});
