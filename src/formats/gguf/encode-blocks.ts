/** Encodes quantized weights as ggml blocks, where a block type represents them exactly. */
import { f32ToF16 } from "../../half.ts";
import { groupCount, type QuantizedWeights, type WeightSpec } from "../../quantized.ts";
import { nonlinear } from "./blocks.ts";

/** Weights of a block. */
const SIZE = 32;

/** A block type that can be written. */
export interface BlockType {
  readonly name: "Q4_0" | "Q5_0" | "Q8_0" | "IQ4_NL";
  /** Type number in GGUF's tensor list. */
  readonly id: number;
  readonly bytes: number;
  /** Bits of its integers, which are signed, or are codebook indices. */
  readonly bits: number;
}

/** Fewest bits first. */
const types: readonly BlockType[] = [
  { name: "Q4_0", id: 2, bytes: 18, bits: 4 },
  { name: "Q5_0", id: 6, bytes: 22, bits: 5 },
  { name: "Q8_0", id: 8, bytes: 34, bits: 8 },
];

/** The block type with a codebook. */
const iq4nl: BlockType = { name: "IQ4_NL", id: 20, bytes: 18, bits: 4 };

/**
 * The block type that represents weights of a spec exactly, or the reason why there is none. Integers less their zero points
 * need one bit more; block types with minima do not help, since they would round -(zero + 8) * scale to binary16. `levels` is
 * the codebook, if any.
 */
export function blockTypeFor(spec: WeightSpec, levels?: Int8Array | null): BlockType | string {
  const { bits, k, groupSize, hasZeros, hasLevels, scaleDType } = spec;
  if (k % SIZE !== 0) return `rows of ${k} weights are no blocks of ${SIZE}`;
  if (groupSize < k && groupSize % SIZE !== 0) return `groups of ${groupSize} are no blocks of ${SIZE}`;
  if (scaleDType !== "f16") return `scales of blocks are f16, not ${scaleDType}`;
  if (hasLevels && bits > 1) {
    if (levels?.join() === nonlinear.join() && !hasZeros) return iq4nl;
    return "of codebooks, that of IQ4_NL is written, of 4 bits, without zero points";
  }
  const needed = hasZeros ? bits + 1 : bits;
  return types.find((type) => type.bits >= needed) ?? `zero points are written with at most 7 bits, not ${bits}`;
}

/** Bytes of a matrix [n, k] in a block type. */
export function blockBytes({ bytes }: BlockType, n: number, k: number): number {
  return (n * k * bytes) / SIZE;
}

/** Encodes whole rows to blocks. */
export function encodeBlocks(type: BlockType, weights: QuantizedWeights): Uint8Array {
  const { n, k, groupSize, qvals, scales, zeros, levels, bits } = weights;
  const groups = groupCount(weights);
  const target = new Uint8Array(blockBytes(type, n, k));
  const view = new DataView(target.buffer);
  const integers = new Int8Array(SIZE);
  for (let row = 0, at = 0, first = 0; row < n; row++)
    for (let c = 0; c < k; c += SIZE, at += type.bytes, first += SIZE) {
      const group = row * groups + Math.floor(c / groupSize);
      const zero = zeros ? zeros[group]! : 0;
      for (let i = 0; i < SIZE; i++) {
        const q = qvals[first + i]!;
        integers[i] = (levels && type !== iq4nl ? levels[q + (1 << (bits - 1))]! : q) - zero;
      }
      view.setUint16(at, f32ToF16(scales[group]!), true);
      placeIntegers(type, integers, view, at + 2);
    }
  return target;
}

/**
 * Writes a block's integers: bytes, or nibbles of the first and second half, which with five bits follow the fifth bits of all.
 */
function placeIntegers({ name, bits }: BlockType, integers: Int8Array, view: DataView, at: number): void {
  if (name === "Q8_0") {
    for (let i = 0; i < SIZE; i++) view.setInt8(at + i, integers[i]!);
    return;
  }
  const middle = 1 << (bits - 1);
  let highest = 0;
  const nibble = (i: number) => {
    const stored = integers[i]! + middle;
    highest |= (stored >> 4) << i;
    return stored & 15;
  };
  const nibbles = name === "Q5_0" ? at + 4 : at;
  for (let i = 0; i < SIZE / 2; i++) view.setUint8(nibbles + i, nibble(i) | (nibble(i + SIZE / 2) << 4));
  if (name === "Q5_0") view.setInt32(at, highest, true);
}
