/** Quantized weights as blocks of ggml, where a block type holds them. */
import { f32ToF16 } from "../../half.ts";
import { groupCount, type QuantizedWeights, type WeightSpec } from "../../quantized.ts";

/** Weights of a block. */
const SIZE = 32;

/** A block type that can be written. */
export interface BlockType {
  readonly name: "Q4_0" | "Q4_1" | "Q8_0";
  /** In GGUF's tensor list. */
  readonly id: number;
  readonly bytes: number;
}

const types = {
  Q4_0: { name: "Q4_0", id: 2, bytes: 18 },
  Q4_1: { name: "Q4_1", id: 3, bytes: 20 },
  Q8_0: { name: "Q8_0", id: 8, bytes: 34 },
} as const satisfies Record<string, BlockType>;

/**
 * The block type for weights of a spec, or why there is none. Q4_0 and Q8_0 hold the weights exactly; the minimum of a
 * Q4_1 block, -(zero + 8) * scale, is rounded to binary16.
 */
export function blockTypeFor({ bits, k, groupSize, hasZeros, hasLevels, scaleDType }: WeightSpec): BlockType | string {
  if (k % SIZE !== 0) return `rows of ${k} weights are no blocks of ${SIZE}`;
  if (groupSize < k && groupSize % SIZE !== 0) return `groups of ${groupSize} are no blocks of ${SIZE}`;
  if (scaleDType !== "f16") return "scales of blocks are f16, not f32";
  if (hasLevels && bits > 1) return "codebooks are not written";
  if (hasZeros) return bits <= 4 ? types.Q4_1 : `zero points are written with at most 4 bits, not ${bits}`;
  return bits <= 4 ? types.Q4_0 : types.Q8_0;
}

/** Bytes of a matrix in a block type. */
export function blockBytes({ bytes }: BlockType, n: number, k: number): number {
  return (n * k * bytes) / SIZE;
}

/** The blocks of whole rows. */
export function encodeBlocks({ name, bytes }: BlockType, weights: QuantizedWeights): Uint8Array {
  const { n, k, groupSize, scales, zeros, levels, bits } = weights;
  const groups = groupCount(weights);
  const target = new Uint8Array(blockBytes({ name, bytes } as BlockType, n, k));
  const view = new DataView(target.buffer);
  const integers = levels ? weights.qvals.map((q) => levels[q + (1 << (bits - 1))]!) : weights.qvals;
  for (let row = 0, at = 0, first = 0; row < n; row++)
    for (let c = 0; c < k; c += SIZE, at += bytes, first += SIZE) {
      const group = row * groups + Math.floor(c / groupSize);
      view.setUint16(at, f32ToF16(scales[group]!), true);
      if (name === "Q8_0") {
        target.set(new Uint8Array(integers.buffer, integers.byteOffset + first, SIZE), at + 2);
        continue;
      }
      if (name === "Q4_1") view.setUint16(at + 2, f32ToF16(-(zeros![group]! + 8) * scales[group]!), true);
      for (let i = 0, to = at + bytes - SIZE / 2; i < SIZE / 2; i++)
        target[to + i] = (integers[first + i]! + 8) | ((integers[first + SIZE / 2 + i]! + 8) << 4);
    }
  return target;
}
