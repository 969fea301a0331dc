/** Description of a ggml block format: weights, bits and bytes of a block, and how to decode it. */
import { f16Table } from "../../half.ts";
import type { FactoredScale } from "../../quantized.ts";

/** One block, decoded. */
export interface Block {
  /** Integers [size]: signed without minima, from 0 with minima; with a codebook, its indices less half its size. */
  readonly q: Int8Array;
  /** Scales [groups]. */
  readonly scales: Float32Array;
  readonly minima: Float32Array;
  /** For factored scales: the block's factors, which its integer scales, and minima, are multiplied by. */
  readonly factors: Float32Array;
}

export interface BlockFormat {
  readonly name: string;
  /** Type number in GGUF's tensor list. */
  readonly id: number;
  /** Weights and bytes of a block. */
  readonly size: number;
  readonly bytes: number;
  readonly bits: number;
  readonly groupSize: number;
  readonly hasMinima: boolean;
  /**
   * Form of factored scales and minima: integers times the block's binary16 factor, or e4m3 numbers times a factor that all
   * blocks share; null for plain ones.
   */
  readonly factored: FactoredScale | null;
  /** Whether every scale is exactly a binary16 number. */
  readonly halfScales: boolean;
  readonly levels: Int8Array | null;
  /** Zero point that is subtracted from integers; 0 in formats with minima, whose integers begin at 0. */
  readonly zero: number;
  /** Whether weights are signed lattice points: they take more levels than a codebook has, so no packed layout holds them. */
  readonly isLattice: boolean;
  /** Decodes the block that begins at byte `at`. */
  decode(data: Uint8Array, at: number, block: Block): void;
}

/** Weights of a super-block, which has two levels of scales. */
export const SUPER = 256;

/** Reads the binary16 number at `at`. */
export function half(data: Uint8Array, at: number): number {
  return f16Table()[data[at]! | (data[at + 1]! << 8)]!;
}

type Fields = Pick<BlockFormat, "name" | "id" | "bytes" | "bits" | "decode"> & Partial<BlockFormat>;

/** A format with blocks of 32 weights and one binary16 scale. */
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

/** A format with super-blocks of 256 weights and two levels of scales. */
export const nested = (fields: Fields): BlockFormat => simple({ size: SUPER, halfScales: false, ...fields });

/** An empty block to decode into. */
export function emptyBlock({ size, groupSize }: BlockFormat): Block {
  const groups = size / groupSize;
  return {
    q: new Int8Array(size),
    scales: new Float32Array(groups),
    minima: new Float32Array(groups),
    factors: new Float32Array(2),
  };
}
