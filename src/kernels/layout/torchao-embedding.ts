/**
 * TorchAO's embedding layout (packed-weights header type 2, version 1): bit-packed rows without scales,
 * torchao/csrc/cpu/shared_kernels/embedding_xbit. Scales and zero points are separate tensors.
 */
import { ShapeError } from "../../errors.ts";
import { type ChunkSize, packChunk, unpackChunk } from "./torchao-bits.ts";
import { TORCHAO_HEADER_BYTES, TORCHAO_MAGIC } from "./torchao-linear.ts";

const TYPE_EMBEDDING = 2;
const VERSION = 1;
const CHUNKS: readonly ChunkSize[] = [128, 64, 32];

export interface EmbeddingShape {
  readonly bits: number;
  readonly rows: number;
  /** Values of a row, a multiple of 32. */
  readonly dim: number;
}

/** Bytes of a packed embedding, header included. */
export function embeddingByteLength({ bits, rows, dim }: EmbeddingShape): number {
  return TORCHAO_HEADER_BYTES + (rows * dim * bits) / 8;
}

/** Packs integers [rows, dim] from -2^(bits-1) to 2^(bits-1)-1. */
export function packEmbedding(qvals: Int8Array, shape: EmbeddingShape): Uint8Array {
  checkDim(shape);
  const target = new Uint8Array(embeddingByteLength(shape));
  const view = new DataView(target.buffer);
  for (const [i, value] of headerOf(shape).entries()) view.setInt32(4 * i, value, true);
  const offset = shape.bits < 8 ? 1 << (shape.bits - 1) : 0;
  const values = new Uint8Array(shape.dim);
  for (let row = 0; row < shape.rows; row++) {
    for (let c = 0; c < shape.dim; c++) values[c] = qvals[row * shape.dim + c]! + offset;
    for (const { from, size } of chunksOf(shape.dim))
      packChunk(shape.bits, size, { values, from }, target, rowStart(shape, row) + (from * shape.bits) / 8);
  }
  return target;
}

/** Unpacks one row into `target` [dim]. `values` is scratch of `dim` bytes. */
export function readEmbeddingRow(
  packed: Uint8Array,
  shape: EmbeddingShape,
  row: number,
  into: { target: Int8Array; values: Uint8Array },
): void {
  const { bits, dim } = shape;
  const offset = bits < 8 ? 1 << (bits - 1) : 0;
  for (const { from, size } of chunksOf(dim))
    unpackChunk(bits, size, { bytes: packed, from: rowStart(shape, row) + (from * bits) / 8 }, into.values, from);
  for (let c = 0; c < dim; c++) into.target[c] = into.values[c]! - offset;
}

/** ShapeError unless the buffer is a packed embedding of this shape. */
export function checkEmbedding(packed: Uint8Array, shape: EmbeddingShape): void {
  checkDim(shape);
  const expected = embeddingByteLength(shape);
  if (packed.length !== expected)
    throw new ShapeError(`packed embedding: expected ${expected} bytes but found ${packed.length}`);
  const view = new DataView(packed.buffer, packed.byteOffset, TORCHAO_HEADER_BYTES);
  const wanted = headerOf(shape);
  const found = wanted.map((_, i) => view.getInt32(4 * i, true));
  if (found.some((value, i) => value !== wanted[i]))
    throw new ShapeError(`packed embedding: expected header ${wanted.join(", ")} but found ${found.join(", ")}`);
}

/** Header fields that are not zero. */
function headerOf({ bits }: EmbeddingShape): number[] {
  return [TORCHAO_MAGIC, TYPE_EMBEDDING, VERSION, bits, CHUNKS.at(-1)!, CHUNKS[0]!];
}

function checkDim({ dim }: EmbeddingShape): void {
  if (!(dim > 0) || dim % 32 !== 0)
    throw new ShapeError(`packed embedding: expected a dimension divisible by 32 but found ${dim}`);
}

function rowStart({ bits, dim }: EmbeddingShape, row: number): number {
  return TORCHAO_HEADER_BYTES + (row * dim * bits) / 8;
}

/** Divides a row greedily into chunks of 128, 64 and 32. */
function* chunksOf(dim: number): Generator<{ from: number; size: ChunkSize }> {
  let from = 0;
  for (const size of CHUNKS) for (; dim - from >= size; from += size) yield { from, size };
}
