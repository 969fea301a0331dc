import { describe, expect, it } from "vitest";
import { Random, type RandomWeightsOptions, randomWeights, weightVariants } from "../../../test/support/random.ts";
import { expectSame } from "../../../test/support/same.ts";
import { unpackWeights } from "../../../test/support/unpack-weights.ts";
import { ShapeError } from "../../errors.ts";
import type { QuantizedWeights } from "../../quantized.ts";
import type { PackedLayout } from "../contract.ts";
import { checksum, HEADER_BYTES } from "./header.ts";
import { layoutNamed, layouts, openPacked, packWeights, startPacking, verifyPacked } from "./packed.ts";
import { panel16 } from "./panel16.ts";
import { panel32 } from "./panel32.ts";

const allBits = [1, 2, 3, 4, 5, 6, 7, 8];

/** n, k and group sizes: multiples of everything, odd ones, one row, groups that do not divide k, one scale a row. */
const shapes = [
  [16, 128, 32],
  [16, 128, 64],
  [32, 256, 128],
  [8, 96, 96],
  [1, 32, 32],
  [17, 64, 16],
  [33, 100, 12],
  [5, 61, 7],
  [3, 130, 32],
  [19, 65, 65],
  [2, 1, 1],
  [7, 48, 1000],
  [18, 304, 16],
  [33, 290, 32],
] as const;

function roundTrip(weights: QuantizedWeights, bias: Float32Array | null, layout: PackedLayout) {
  const packed = openPacked(packWeights(weights, bias, layout), weights);
  expect(packed.layout).toBe(layout);
  return unpackWeights(packed);
}

describe.each(layouts.map((layout) => [layout.name, layout] as const))("layout %s", (_, layout) => {
  it.each(allBits)("gives back what was packed, %i bits", (bits) => {
    const random = new Random(bits);
    let stored = 0;
    for (const [n, k, groupSize] of shapes)
      for (const variant of weightVariants) {
        const weights = randomWeights(random, { n, k, bits, groupSize, ...variant });
        if (layout.refusal(weights) !== null) continue;
        for (const bias of [null, random.floats(n, 10)]) {
          const result = roundTrip(weights, bias, layout);
          const { qvals, scales, zeros, levels, ...spec } = result.weights;
          expect(weights).toMatchObject(spec);
          expectSame(qvals, weights.qvals);
          expectSame(scales, weights.scales);
          expectSame(zeros, weights.zeros);
          expectSame(levels, weights.levels);
          expectSame(result.bias, bias);
          stored++;
        }
      }
    expect(stored).toBeGreaterThan(10);
  });

  it("takes rows in parts", () => {
    const weights = randomWeights(new Random(4), { n: 2 * layout.nr + 5, k: 96, bits: 5, groupSize: 32 });
    const bias = Float32Array.from({ length: weights.n }, (_, i) => i - 3);
    const { packer, target } = startPacking(weights, bias, layout);
    for (const first of [layout.nr, 0]) {
      const n = first === 0 ? layout.nr : weights.n - first;
      const [qvals, scales] = [weights.qvals.subarray(96 * first), weights.scales.subarray(3 * first)];
      const zeros = weights.zeros?.subarray(3 * first) ?? null;
      packer.add({ ...weights, n, qvals: qvals.subarray(0, 96 * n), scales: scales.subarray(0, 3 * n), zeros }, first);
    }
    packer.finish();
    expect(target).toEqual(packWeights(weights, bias, layout));
  });

  it("is chosen by its name", () => {
    expect(layoutNamed(layout.name)).toBe(layout);
  });

  it("does not depend on what the target's place in memory is", () => {
    const weights = randomWeights(new Random(3), { n: 9, k: 64, bits: 3, groupSize: 32 });
    const bytes = packWeights(weights, null, layout);
    const room = new Uint8Array(bytes.length + 4);
    room.set(bytes, 4);
    expect(unpackWeights(openPacked(room.subarray(4), weights)).weights).toEqual(weights);
    expect(() => openPacked(room.subarray(3), weights)).toThrow(
      new ShapeError("packed weights: expected a place that is a multiple of 4 bytes but found 3"),
    );
    const target = new Uint8Array(bytes.length + 4).subarray(4);
    const packer = layout.packer({ spec: weights, bias: null, target });
    packer.add(weights, 0);
    packer.finish();
    expect(target).toEqual(bytes);
  });
});

it("an unknown layout name lists the known ones", () => {
  expect(() => layoutNamed("best")).toThrow(
    new ShapeError(`layout "best": expected one of ${layouts.map(({ name }) => name).join(", ")}`),
  );
});

describe("what a layout cannot store", () => {
  it.each(layouts.map((layout) => [layout.name, layout] as const))("sizes of 32 bits: %s", (_, layout) => {
    const spec = { bits: 4, n: 1, k: 32, groupSize: 2 ** 31 - 1, hasZeros: false, hasLevels: false } as const;
    expect(layout.refusal({ ...spec, scaleDType: "f32" })).toBe(null);
    expect(layout.refusal({ ...spec, scaleDType: "f32", groupSize: 2 ** 31 })).toMatch(/may be 2147483647 at most/);
  });

  const weights = (options: Partial<RandomWeightsOptions>) =>
    randomWeights(new Random(1), { n: 4, k: 64, bits: 4, groupSize: 32, ...options });
  it.each([
    ["panel16", { bits: 5, levels: true }, /codebooks of more than 4 bits are not stored, found 5/],
    ["torchao_universal", { levels: true }, /codebooks are not stored/],
    ["torchao_universal", { scaleDType: "f16" }, /scales must be f32, found f16/],
    ["torchao_universal", { groupSize: 8 }, /the group size must be a multiple of 16, found 8/],
    ["panel16", { n: 1, k: 65505 }, /k may be 65504 at most, not 65505/],
    ["panel32", { n: 1, k: 65505, groupSize: 65505 }, /k may be 65504 at most, not 65505/],
    ["torchao_universal", { n: 1, k: 65520, groupSize: 65520 }, /groups may have 65504 weights at most, not 65520/],
    ["torchao_universal", { groupSize: 48 }, /k must be a multiple of the group size 48, found 64/],
  ] as const)("%s refuses %o", (name, options, message) => {
    expect(() => packWeights(weights(options), null, layoutNamed(name))).toThrow(message);
    expect(() => packWeights(weights(options), null, layoutNamed(name))).toThrow(ShapeError);
  });
});

it("takes zero points that the parities of scales tell, and no others", () => {
  const form = { n: 4, k: 64, bits: 4, groupSize: 32, levels: true, scaleDType: "i8", oddZero: 7 } as const;
  const weights = randomWeights(new Random(1), form);
  const pack = (changes: Partial<typeof weights>) =>
    packWeights({ ...weights, ...changes }, null, layoutNamed("panel16"));
  expect(() => pack({})).not.toThrow();
  const others = weights.zeros!.map((zero) => 7 - zero);
  expect(() => pack({ zeros: others })).toThrow(/expected zero point \d with integer scale -?\d+ but found \d/);
  expect(() => pack({ levels: new Int8Array(16).fill(-122) })).toThrow(
    /levels of -128..127 minus 7, too, but found -122/,
  );
});

describe("size of panel16", () => {
  /** Bits a weight without the header and the f32 corrections, which are 4 bytes a row. */
  const bitsPerWeight = (options: Partial<RandomWeightsOptions>) => {
    const spec = {
      n: 256,
      k: 4096,
      bits: 4,
      groupSize: 32,
      hasZeros: false,
      hasLevels: false,
      scaleDType: "f16" as const,
    };
    const weights = { ...spec, ...options, hasZeros: options.zeros ?? false };
    return (8 * (panel16.byteLength(weights, false) - HEADER_BYTES - 4 * weights.n)) / (weights.n * weights.k);
  };
  it.each([
    [{ bits: 4 }, 4.5],
    [{ bits: 2 }, 2.5],
    [{ bits: 1 }, 1.5],
    [{ bits: 8 }, 8.5],
    [{ bits: 4, zeros: true }, 4.75],
    [{ bits: 4, groupSize: 128 }, 4.125],
    [{ bits: 3, scaleDType: "f32" as const }, 4],
    [{ bits: 4, groupSize: 4096 }, 4 + 16 / 4096],
  ])("%o: %f bits a weight and 4 bytes a row", (options, expected) => {
    // A panel of 16 rows ends at a multiple of 64 bytes: at most 63 bytes for 16 x 4096 weights.
    expect(bitsPerWeight(options) - expected).toBeGreaterThanOrEqual(0);
    expect(bitsPerWeight(options) - expected).toBeLessThan((8 * 64) / (16 * 4096));
  });

  it("a bias costs 4 bytes a row, short panels cost a whole one", () => {
    const spec = {
      n: 32,
      k: 64,
      bits: 4,
      groupSize: 32,
      hasZeros: false,
      hasLevels: false,
      scaleDType: "f16" as const,
    };
    expect(panel16.byteLength(spec, true) - panel16.byteLength(spec, false)).toBe(4 * 32);
    expect(panel16.byteLength({ ...spec, n: 17 }, false)).toBe(panel16.byteLength(spec, false));
  });
});

describe("bytes of panel16, by hand", () => {
  it("places scales, vectors, correction and bias as its header comment says", () => {
    const qvals = new Int8Array(2 * 32);
    qvals[0] = -8; // row 0, k = 0: field 0, byte 0
    qvals[5] = 7; // row 0, k = 5: field 1, byte 1
    qvals[32 + 31] = 1; // row 1, k = 31: vector 3, field 1, byte 3
    const spec = { n: 2, k: 32, bits: 4, groupSize: 32, hasZeros: true, hasLevels: false, scaleDType: "f16" as const };
    const weights = { ...spec, qvals, scales: Float32Array.of(1, 2), zeros: Int8Array.of(3, -1), levels: null };
    const bytes = packWeights(weights, Float32Array.of(0.5, -0.5), panel16);
    const view = new DataView(bytes.buffer);
    expect([...bytes.subarray(0, 4)].map((byte) => String.fromCharCode(byte)).join("")).toBe("LBW1");
    expect(bytes.length).toBe(64 + 448); // 32 scales + 16 zeros + 256 vectors + 64 corrections + 64 biases = 432
    expect([view.getUint16(64, true), view.getUint16(66, true)]).toEqual([0x3c00, 0x4000]);
    expect([view.getInt8(96), view.getInt8(97)]).toEqual([3, -1]);
    const vectors = 64 + 32 + 16;
    expect(bytes[vectors]).toBe(0x80); // unsigned 0, and 8 for k = 4
    expect(bytes[vectors + 1]).toBe(0xf8); // unsigned 8 for k = 1, 15 for k = 5
    expect(bytes[vectors + 3 * 64 + 4 + 3]).toBe(0x98);
    const corrections = vectors + 256;
    expect(view.getFloat32(corrections, true)).toBe(-8 + 7 - 32 * 3);
    expect(view.getFloat32(corrections + 4, true)).toBe(2 * (1 + 32));
    expect([view.getFloat32(corrections + 64, true), view.getFloat32(corrections + 68, true)]).toEqual([0.5, -0.5]);
  });
});

describe("bytes of panel32, by hand", () => {
  it("places fields of a byte in rows four apart, highest bit flipped", () => {
    const qvals = new Int8Array(10 * 32);
    qvals[1 * 32 + 5] = 7; // row 1, k = 5: step 1, vector 0, low nibble, lane 1, byte 1
    qvals[5 * 32 + 5] = -8; // row 5: the high nibble of the same byte
    qvals[8 * 32 + 31] = 1; // row 8, k = 31: step 7, vector 1, low nibble, lane 0, byte 3
    const spec = { n: 10, k: 32, bits: 4, groupSize: 32, hasZeros: false, hasLevels: false };
    const scales = new Float32Array(10).fill(2);
    const weights = { ...spec, scaleDType: "f16" as const, qvals, scales, zeros: null, levels: null };
    const bytes = packWeights(weights, null, panel32);
    expect(bytes.length).toBe(64 + 704); // 64 scales + 512 vectors + 128 corrections
    expect(bytes[15]).toBe(1);
    const vectors = 64 + 64;
    expect(bytes[vectors]).toBe(0x88 ^ 0x80);
    expect(bytes[vectors + 64 + 4 + 1]).toBe(0x0f ^ 0x80);
    expect(bytes[vectors + 7 * 64 + 16 + 3]).toBe(0x09 ^ 0x80);
    expect(bytes[vectors + 48]).toBe(0x80); // rows 24..31 do not exist
  });

  it("says whether a scale is negative", () => {
    const weights = randomWeights(new Random(2), { n: 3, k: 32, bits: 2, groupSize: 32 });
    weights.scales[1] = -0.5;
    expect(packWeights(weights, null, panel32)[15]).toBe(0);
  });
});

describe("a damaged buffer", () => {
  const weights = randomWeights(new Random(5), { n: 20, k: 70, bits: 3, groupSize: 32, zeros: true });
  const good = packWeights(weights, null, panel16);

  /** Changes header bytes and makes the header's own checksum right again, as an attacker would. */
  const forged = (change: (view: DataView) => unknown): Uint8Array => {
    const bytes = good.slice();
    const view = new DataView(bytes.buffer);
    change(view);
    view.setUint32(60, checksum(bytes.subarray(0, 60)), true);
    return bytes;
  };

  it("of every header byte is noticed by the header's checksum or magic", () => {
    for (let i = 0; i < HEADER_BYTES; i++) {
      const bytes = good.slice();
      bytes[i]! ^= 1 << (i % 8);
      expect(() => openPacked(bytes, weights), `byte ${i}`).toThrow(ShapeError);
    }
  });

  it.each<[string, (view: DataView) => unknown, RegExp]>([
    ["magic", (view) => view.setUint32(0, 1, true), /expected a lowbit or TorchAO header but found 0x1/],
    ["version", (view) => view.setUint16(4, 9, true), /expected version 1 but found 9; export the model again/],
    ["layout", (view) => view.setUint16(6, 99, true), /layout 99 is not known to this version/],
    ["bits 0", (view) => view.setUint8(8, 0), /expected 1..8 bits .* but found 0 bits/],
    ["bits 9", (view) => view.setUint8(8, 9), /but found 9 bits/],
    ["other bits", (view) => view.setUint8(8, 4), /expected \d+ bytes but found \d+/],
    ["scale type", (view) => view.setUint8(9, 7), /scale type/],
    ["other scales", (view) => view.setUint8(9, 1), /expected \d+ bytes but found \d+/],
    ["unknown flags", (view) => view.setUint16(10, 0x101, true), /flags/],
    ["zeros gone", (view) => view.setUint16(10, 0, true), /expected \d+ bytes but found \d+/],
    ["nr", (view) => view.setUint8(12, 8), /panel16 has nr 16, kr 4, sr 1 but the header says nr 8/],
    ["n", (view) => view.setUint32(16, 21, true), /expected n 20, .* but the header says n 21/],
    ["n 0", (view) => view.setUint32(16, 0, true), /positive n, k and group size/],
    ["k", (view) => view.setUint32(20, 71, true), /header says n 20, k 71/],
    ["group size", (view) => view.setUint32(24, 64, true), /header says .* group size 64/],
    ["byte length", (view) => view.setBigUint64(32, 1n << 62n, true), /the header says \d+ bytes but the buffer has/],
    [
      "codebook of 5 bits",
      (view) => [view.setUint8(8, 5), view.setUint16(10, 4, true)],
      /codebooks of more than 4 bits/,
    ],
    ["shift of no codebook", (view) => view.setUint16(10, 17, true), /zero points of odd scales are for codebooks/],
    [
      "shift beyond int8",
      (view) => [view.setUint16(10, 21, true), view.setInt8(40, -120), view.setInt8(56, 9)],
      /expected levels of -128..127 minus 9, too, but found -120/,
    ],
  ])("with a forged %s says so", (_, change, message) => {
    expect(() => openPacked(forged(change), weights)).toThrow(message);
    expect(() => openPacked(forged(change), weights)).toThrow(ShapeError);
  });

  it("with rows so long that sums of 32 bits would overflow says so", () => {
    for (const [k, groupSize] of [
      [2 ** 16, 32],
      [2 ** 29, 2 ** 29],
      [2 ** 26, 1],
      [2 ** 32 - 1, 2 ** 32 - 1],
    ] as const) {
      const bytes = forged((view) => [view.setUint32(20, k, true), view.setUint32(24, groupSize, true)]);
      expect(() => openPacked(bytes, { n: 20, k, groupSize })).toThrow(/k may be 65504 at most, not \d+/);
    }
  });

  it("cut short at any length is a ShapeError", () => {
    for (const length of [0, 1, 3, 4, 40, 63, 64, 65, good.length - 1])
      expect(() => openPacked(good.slice(0, length), weights), `${length} bytes`).toThrow(ShapeError);
  });

  it("in its payload is found by verifyPacked", () => {
    expect(verifyPacked(openPacked(good, weights))).toBe(true);
    for (const at of [HEADER_BYTES, HEADER_BYTES + 101, good.length - 1]) {
      const bytes = good.slice();
      bytes[at]! ^= 0x10;
      expect(verifyPacked(openPacked(bytes, weights))).toBe(false);
    }
  });

  it("has no checksum to compare with in TorchAO's layout", () => {
    const spec = randomWeights(new Random(5), { n: 4, k: 64, bits: 3, groupSize: 32 });
    expect(verifyPacked(openPacked(packWeights(spec, null, layoutNamed("torchao_universal")), spec))).toBeNull();
  });
});
