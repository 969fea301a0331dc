/** What a block format of ggml is: how many weights, bits and bytes, and how a block is decoded. */
import { f16Table } from "../../half.ts";
import type { FactoredScale } from "../../quantized.ts";

/** One block, decoded. */
export interface Block {
  /** Integers: signed in formats without minima, from 0 in those with, places in the codebook less half its size with codebook. */
  readonly q: Int8Array;
  /** One a group. */
  readonly scales: Float32Array;
  readonly minima: Float32Array;
  /** What the bytes that blocks of factored scales have are multiplied with to give scales, and minima. */
  readonly factors: Float32Array;
}

export interface BlockFormat {
  readonly name: string;
  /** In GGUF's tensor list. */
  readonly id: number;
  /** Weights of a block, and its bytes. */
  readonly size: number;
  readonly bytes: number;
  readonly bits: number;
  readonly groupSize: number;
  readonly hasMinima: boolean;
  /**
   * Whether scales, and minima, are bytes times factors of the block: integers times binary16 numbers, or e4m3 numbers
   * times one that all blocks have; null for neither.
   */
  readonly factored: FactoredScale | null;
  /** Whether every scale is a binary16 number. */
  readonly halfScales: boolean;
  readonly levels: Int8Array | null;
  /** What is subtracted from integers; 0 in formats with minima, whose integers begin at 0. */
  readonly zero: number;
  /** Whether the integers are places of a lattice times signs: more levels than codebooks have, which no layout holds. */
  readonly isLattice: boolean;
  /** Decodes the block whose bytes begin at `at`. */
  decode(data: Uint8Array, at: number, block: Block): void;
}

/** Weights of the blocks with two levels of scales. */
export const SUPER = 256;

/** The binary16 number at `at`. */
export function half(data: Uint8Array, at: number): number {
  return f16Table()[data[at]! | (data[at + 1]! << 8)]!;
}

type Fields = Pick<BlockFormat, "name" | "id" | "bytes" | "bits" | "decode"> & Partial<BlockFormat>;

/** Blocks of 32 weights with one scale in binary16. */
export const simple = (fields: Fields): BlockFormat => ({
  size: 32,
  groupSize: 32,
  hasMinima: false,
  factored: null,
  halfScales: true,
  levels: null,
  zero: 0,
  isLattice: false,
  ...fields,
});

/** Blocks of 256 weights with two levels of scales. */
export const nested = (fields: Fields): BlockFormat => simple({ size: SUPER, halfScales: false, ...fields });

/** A block to decode into. */
export function emptyBlock({ size, groupSize }: BlockFormat): Block {
  const groups = size / groupSize;
  return {
    q: new Int8Array(size),
    scales: new Float32Array(groups),
    minima: new Float32Array(groups),
    factors: new Float32Array(2),
  };
}
