/** Blocks of two levels of scales: what is written is what the reader decodes, and is close to the floats. */
import { describe, expect, it } from "vitest";
import { Random } from "../../../test/support/random.ts";
import { SuperBlockQuantizer } from "../../quantize/super-blocks.ts";
import { emptyBlock } from "./block-format.ts";
import { blockFormats, dequantizeBlocks } from "./blocks.ts";
import { encodeSuperBlock, type SuperBlockType, superBlockTypes } from "./encode-super-blocks.ts";

/** Sums of uniform numbers: near to a normal distribution, with a factor a block, as weights of models have. */
function weights(count: number, seed: number): Float32Array {
  const random = new Random(seed);
  return Float32Array.from({ length: count }, (_, i) => {
    let sum = 0;
    for (let j = 0; j < 12; j++) sum += random.next() - 0.5;
    return sum * (0.02 + 0.01 * Math.sin(i >> 5));
  });
}

const rms = (values: Float32Array) => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length);

/** The error of the plain grid from least to largest value of each group, or by the largest magnitude: no scale is rounded. */
function plainError(values: Float32Array, { groupSize, bits, hasMinima }: SuperBlockType): number {
  const differences = values.map((value, i) => {
    const group = values.subarray(i - (i % groupSize), i - (i % groupSize) + groupSize);
    const [low, high] = [Math.min(0, ...group), Math.max(0, ...group)];
    if (!hasMinima) {
      const scale = Math.max(-low, high) / (2 ** (bits - 1) - 1);
      return Math.round(value / scale) * scale - value;
    }
    const scale = (high - low) / (2 ** bits - 1);
    return Math.round((value - low) / scale) * scale + low - value;
  });
  return rms(differences);
}

describe.each(Object.values(superBlockTypes))("$name", (type) => {
  const format = blockFormats.find(({ id }) => id === type.id)!;
  const quantizer = new SuperBlockQuantizer(type);

  it("is read as it was written", () => {
    const values = weights(4 * 256, 1);
    for (let start = 0; start < values.length; start += 256) {
      const block = quantizer.quantize(values, start);
      const bytes = new Uint8Array(type.bytes);
      encodeSuperBlock(type.name, block, bytes, 0);
      const decoded = emptyBlock(format);
      format.decode(bytes, 0, decoded);
      expect(decoded.q).toEqual(block.q);
      expect(decoded.scales).toEqual(Float32Array.from(block.scales, (scale) => Math.fround(block.d * scale)));
      if (type.hasMinima)
        expect(decoded.minima).toEqual(
          Float32Array.from(block.minima, (minimum) => -Math.fround(block.dmin * minimum)),
        );
    }
  });

  it("has an error that is less than a plain grid's with exact scales", () => {
    const values = weights(64 * 256, 2);
    const bytes = new Uint8Array(64 * type.bytes);
    for (let i = 0; i < 64; i++)
      encodeSuperBlock(type.name, quantizer.quantize(values, 256 * i), bytes, i * type.bytes);
    const found = new Float32Array(values.length);
    dequantizeBlocks(format, bytes, found);
    const error = rms(found.map((value, i) => value - values[i]!));
    const bound = plainError(values, type);
    expect(error).toBeLessThan(bound);
    expect(error).toBeLessThan((0.11 * rms(values) * 16) / 2 ** type.bits);
  });

  it.each([
    ["zeros", () => 0],
    ["one value", () => 0.3],
    ["one value below zero", () => -0.3],
    ["values beyond binary16", (i: number) => (i % 2 ? 1e6 : -1e6)],
    ["least values", (i: number) => (i % 3) * 1e-30],
    ["an outlier", (i: number) => (i === 7 ? 100 : 0.01 * Math.sin(i))],
  ])("holds %s as finite numbers", (_, value) => {
    const values = Float32Array.from({ length: 256 }, (_, i) => value(i));
    const bytes = new Uint8Array(type.bytes);
    encodeSuperBlock(type.name, quantizer.quantize(values, 0), bytes, 0);
    const found = new Float32Array(256);
    dequantizeBlocks(format, bytes, found);
    const most = values.reduce((largest, x) => Math.max(largest, Math.abs(x)), 0);
    for (const [i, x] of found.entries()) expect(Math.abs(x - values[i]!)).toBeLessThanOrEqual(0.1 * most + 1e-6);
  });
});
