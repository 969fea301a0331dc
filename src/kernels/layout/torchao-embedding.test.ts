/** TorchAO's embedding layout: rows cut into chunks of 128, 64 and 32, without scales. */
import { describe, expect, it } from "vitest";
import { Random } from "../../../test/support/random.ts";
import { expectSame } from "../../../test/support/same.ts";
import { ShapeError } from "../../errors.ts";
import { packChunk } from "./torchao-bits.ts";
import { checkEmbedding, embeddingByteLength, packEmbedding, readEmbeddingRow } from "./torchao-embedding.ts";

/** Chunks of a row, written out for each dimension tested. */
const chunksOf = {
  32: [32],
  64: [64],
  96: [64, 32],
  128: [128],
  160: [128, 32],
  224: [128, 64, 32],
  288: [128, 128, 32],
} as const;
const dims = [32, 64, 96, 128, 160, 224, 288] as const;

describe.each([1, 2, 3, 4, 5, 6, 7, 8])("%i bits", (bits) => {
  it.each(dims)("rows of %i: byte for byte, and back", (dim) => {
    const random = new Random(dim + bits);
    const rows = 5;
    const shape = { bits, rows, dim };
    const qvals = Int8Array.from({ length: rows * dim }, () => random.integer(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1));
    const packed = packEmbedding(qvals, shape);
    const expected: number[] = [
      ...new Uint8Array(Int32Array.of(6712, 2, 1, bits, 32, 128, ...new Array(10).fill(0)).buffer),
    ];
    for (let row = 0; row < rows; row++) {
      let from = row * dim;
      for (const size of chunksOf[dim]) {
        const values = Uint8Array.from(qvals.subarray(from, from + size), (q) => (bits < 8 ? q + 2 ** (bits - 1) : q));
        const chunk = new Uint8Array((size * bits) / 8);
        packChunk(bits, size, { values, from: 0 }, chunk, 0);
        expected.push(...chunk);
        from += size;
      }
    }
    expectSame(packed, Uint8Array.from(expected));
    expect(packed.length).toBe(embeddingByteLength(shape));
    checkEmbedding(packed, shape);
    const target = new Int8Array(dim);
    for (let row = rows - 1; row >= 0; row--) {
      readEmbeddingRow(packed, shape, row, { target, values: new Uint8Array(dim) });
      expectSame(target, qvals.slice(row * dim, (row + 1) * dim));
    }
  });
});

describe("errors", () => {
  const shape = { bits: 4, rows: 3, dim: 64 };
  const good = packEmbedding(new Int8Array(3 * 64), shape);

  it("a dimension that is no multiple of 32", () => {
    expect(() => packEmbedding(new Int8Array(40), { bits: 4, rows: 1, dim: 40 })).toThrow(
      new ShapeError("packed embedding: expected a dimension divisible by 32 but found 40"),
    );
  });

  it("a buffer of another size", () => {
    expect(() => checkEmbedding(good.subarray(1), shape)).toThrow(/expected 160 bytes but found 159/);
    expect(() => checkEmbedding(new Uint8Array(0), { ...shape, rows: 0 })).toThrow(ShapeError);
  });

  it.each([
    ["magic", 0],
    ["type", 1],
    ["version", 2],
    ["bits", 3],
    ["smallest chunk", 4],
    ["largest chunk", 5],
  ])("a header with another %s", (_, field) => {
    const bytes = good.slice();
    bytes[4 * field]! ^= 1;
    expect(() => checkEmbedding(bytes, shape)).toThrow(/expected header 6712, 2, 1, 4, 32, 128 but found/);
    expect(() => checkEmbedding(bytes, shape)).toThrow(ShapeError);
  });
});
