/**
 * The block formats of ggml. A block has `size` integers, and for each group a scale and, in some formats, a minimum. weight =
 * scale * level + minimum in float32, where the level is the integer itself or its codebook entry.
 */
import { type Block, type BlockFormat, emptyBlock, half, nested, SUPER, simple } from "./block-format.ts";
import { latticeFormats } from "./lattice-blocks.ts";
import { smallFormats } from "./small-blocks.ts";

const HIGH_BITS = [0, 2, 4, 6] as const;

/** Codebook of the nonlinear 4-bit formats (IQ4_NL, IQ4_XS). */
export const nonlinear = Int8Array.of(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);

/** Unpacks 16 bytes to 32 integers: the low nibbles, then the high ones. */
function nibbles(data: Uint8Array, at: number, q: Int8Array, first: number, offset: number): void {
  for (let i = 0; i < 16; i++) {
    q[first + i] = (data[at + i]! & 15) - offset;
    q[first + 16 + i] = (data[at + i]! >> 4) - offset;
  }
}

/** Adds the fifth bits of 32 integers. */
function addFifthBits(data: Uint8Array, at: number, q: Int8Array): void {
  for (let i = 0; i < 32; i++) q[i]! += ((data[at + (i >> 3)]! >> (i & 7)) & 1) << 4;
}

/** Scale and minimum j of the eight pairs of 6 bits in 12 bytes (Q4_K, Q5_K). */
function sixBitPair(data: Uint8Array, at: number, j: number): readonly [number, number] {
  const byte = (i: number) => data[at + i]!;
  if (j < 4) return [byte(j) & 63, byte(j + 4) & 63];
  return [(byte(j + 4) & 15) | ((byte(j - 4) >> 6) << 4), (byte(j + 4) >> 4) | ((byte(j) >> 6) << 4)];
}

/** Reads two binary16 factors, d and m, and after them eight pairs of 6-bit scales and minima. */
function pairedScales(data: Uint8Array, at: number, { scales, minima, factors }: Block): void {
  const [d, m] = [half(data, at), half(data, at + 2)];
  factors.set([d, -m]);
  for (let j = 0; j < 8; j++) {
    const [scale, minimum] = sixBitPair(data, at + 4, j);
    scales[j] = d * scale;
    minima[j] = -(m * minimum);
  }
}

/** Decodes a scale and 32 nibbles: signed integers (Q4_0), or codebook indices less 8 (IQ4_NL). */
function scaledNibbles(data: Uint8Array, at: number, { q, scales }: Block): void {
  scales[0] = half(data, at);
  nibbles(data, at + 2, q, 0, 8);
}

const integerFormats: readonly BlockFormat[] = [
  simple({ name: "Q4_0", id: 2, bytes: 18, bits: 4, decode: scaledNibbles }),
  simple({
    name: "Q4_1",
    id: 3,
    bytes: 20,
    bits: 4,
    hasMinima: true,
    decode(data, at, { q, scales, minima }) {
      scales[0] = half(data, at);
      minima[0] = half(data, at + 2);
      nibbles(data, at + 4, q, 0, 0);
    },
  }),
  simple({
    name: "Q5_0",
    id: 6,
    bytes: 22,
    bits: 5,
    decode(data, at, { q, scales }) {
      scales[0] = half(data, at);
      nibbles(data, at + 6, q, 0, 16);
      addFifthBits(data, at + 2, q);
    },
  }),
  simple({
    name: "Q5_1",
    id: 7,
    bytes: 24,
    bits: 5,
    hasMinima: true,
    decode(data, at, { q, scales, minima }) {
      scales[0] = half(data, at);
      minima[0] = half(data, at + 2);
      nibbles(data, at + 8, q, 0, 0);
      addFifthBits(data, at + 4, q);
    },
  }),
  simple({
    name: "Q8_0",
    id: 8,
    bytes: 34,
    bits: 8,
    decode(data, at, { q, scales }) {
      scales[0] = half(data, at);
      for (let i = 0; i < 32; i++) q[i] = data[at + 2 + i]!;
    },
  }),
  nested({
    name: "Q2_K",
    id: 10,
    bytes: 84,
    bits: 2,
    groupSize: 16,
    hasMinima: true,
    factored: "i8",
    decode(data, at, { q, scales, minima, factors }) {
      const [d, m] = [half(data, at + 80), half(data, at + 82)];
      factors.set([d, -m]);
      for (let j = 0; j < 16; j++) {
        scales[j] = d * (data[at + j]! & 15);
        minima[j] = -(m * (data[at + j]! >> 4));
      }
      twoBits(data, at + 16, q);
    },
  }),
  nested({
    name: "Q3_K",
    id: 11,
    bytes: 110,
    bits: 3,
    groupSize: 16,
    factored: "i8",
    decode(data, at, { q, scales, factors }) {
      const d = half(data, at + 108);
      factors[0] = d;
      for (let j = 0; j < 16; j++) {
        const low = j < 8 ? data[at + 96 + j]! & 15 : data[at + 88 + j]! >> 4;
        const high = (data[at + 104 + (j & 3)]! >> (2 * (j >> 2))) & 3;
        scales[j] = d * ((low | (high << 4)) - 32);
      }
      twoBits(data, at + 32, q);
      for (let i = 0; i < SUPER; i++) q[i]! += (((data[at + (i & 31)]! >> (i >> 5)) & 1) << 2) - 4;
    },
  }),
  nested({
    name: "Q4_K",
    id: 12,
    bytes: 144,
    bits: 4,
    hasMinima: true,
    factored: "i8",
    decode(data, at, block) {
      pairedScales(data, at, block);
      fourBits(data, at + 16, block.q);
    },
  }),
  nested({
    name: "Q5_K",
    id: 13,
    bytes: 176,
    bits: 5,
    hasMinima: true,
    factored: "i8",
    decode(data, at, block) {
      const { q } = block;
      pairedScales(data, at, block);
      fourBits(data, at + 48, q);
      for (let i = 0; i < SUPER; i++) q[i]! += ((data[at + 16 + (i & 31)]! >> (i >> 5)) & 1) << 4;
    },
  }),
  nested({
    name: "Q6_K",
    id: 14,
    bytes: 210,
    bits: 6,
    groupSize: 16,
    factored: "i8",
    decode(data, at, { q, scales, factors }) {
      const d = half(data, at + 208);
      factors[0] = d;
      for (let j = 0; j < 16; j++) scales[j] = d * ((data[at + 192 + j]! << 24) >> 24);
      for (let i = 0; i < SUPER; i++) {
        const [part, quarter, column] = [i >> 7, (i >> 5) & 3, i & 31];
        const low = data[at + 64 * part + 32 * (quarter & 1) + column]! >> (quarter < 2 ? 0 : 4);
        const high = data[at + 128 + 32 * part + column]! >> HIGH_BITS[quarter]!;
        q[i] = ((low & 15) | ((high & 3) << 4)) - 32;
      }
    },
  }),
  simple({ name: "IQ4_NL", id: 20, bytes: 18, bits: 4, levels: nonlinear, decode: scaledNibbles }),
  nested({
    name: "IQ4_XS",
    id: 23,
    bytes: 136,
    bits: 4,
    levels: nonlinear,
    factored: "i8",
    decode(data, at, { q, scales, factors }) {
      const d = half(data, at);
      factors[0] = d;
      const high = data[at + 2]! | (data[at + 3]! << 8);
      for (let j = 0; j < 8; j++) {
        const low = (data[at + 4 + (j >> 1)]! >> (4 * (j & 1))) & 15;
        scales[j] = d * ((low | (((high >> (2 * j)) & 3) << 4)) - 32);
        nibbles(data, at + 8 + 16 * j, q, 32 * j, 8);
      }
    },
  }),
];

/** Unpacks 64 bytes to 256 integers of 2 bits: each half has 32 bytes, lowest bits first. */
function twoBits(data: Uint8Array, at: number, q: Int8Array): void {
  for (let i = 0; i < SUPER; i++) q[i] = (data[at + 32 * (i >> 7) + (i & 31)]! >> HIGH_BITS[(i >> 5) & 3]!) & 3;
}

/** Unpacks 128 bytes to 256 integers of 4 bits: each 64 have 32 bytes, low nibbles first. */
function fourBits(data: Uint8Array, at: number, q: Int8Array): void {
  for (let i = 0; i < SUPER; i++) q[i] = (data[at + 32 * (i >> 6) + (i & 31)]! >> (i & 32 ? 4 : 0)) & 15;
}

/** All supported block formats. */
export const blockFormats: readonly BlockFormat[] = [...integerFormats, ...smallFormats, ...latticeFormats];

/** Dequantizes whole blocks to float32; each step is rounded to float32, as in gguf-py. */
export function dequantizeBlocks(format: BlockFormat, data: Uint8Array, target: Float32Array): void {
  const { size, bytes, bits, groupSize, levels, hasMinima, zero } = format;
  const middle = 1 << (bits - 1);
  const block = emptyBlock(format);
  const { q, scales, minima } = block;
  for (let at = 0, to = 0; at < data.length; at += bytes, to += size) {
    format.decode(data, at, block);
    for (let group = 0; group < scales.length; group++) {
      const [scale, minimum] = [scales[group]!, minima[group]!];
      for (let i = group * groupSize; i < (group + 1) * groupSize; i++) {
        const level = levels ? levels[q[i]! + middle]! : q[i]! - zero;
        target[to + i] = hasMinima ? Math.fround(scale * level) + minimum : scale * level;
      }
    }
  }
}
