/** ggml's 1-bit and 2-bit, ternary, and 4-bit float formats (ggml-common.h; values as in gguf-py's quants.py). */
import { e2m1Doubled, floatOf } from "../quantized/small-floats.ts";
import { type Block, type BlockFormat, half, nested, SUPER, simple } from "./block-format.ts";

/** Unpacks a group of `bits`-bit integers, lowest bits first, and centers them on 0. */
function lowestFirst(data: Uint8Array, at: number, q: Int8Array, bits: number): void {
  const perByte = 8 / bits;
  for (let i = 0; i < q.length; i++)
    q[i] = ((data[at + Math.floor(i / perByte)]! >> (bits * (i % perByte))) & ((1 << bits) - 1)) - (1 << (bits - 1));
}

/** The format Q2_0: codes 0 to 3 mean -1 to 2, with one scale; `size` is its number of weights. */
const twoBits = (size: number): BlockFormat =>
  simple({
    name: "Q2_0",
    id: 42,
    size,
    groupSize: size,
    bytes: 2 + size / 4,
    bits: 2,
    zero: -1,
    decode(data, at, { q, scales }) {
      scales[0] = half(data, at);
      lowestFirst(data, at + 2, q, 2);
    },
  });

/** Q2_0 with blocks of 128 weights, as in files from before they had 64 (Ternary-Bonsai), with the same type number. */
export const largeTwoBits: BlockFormat = twoBits(128);

/** Extracts base-3 digits of a byte: digit j of byte v is floor(3 * (v * 3^j mod 256) / 256). */
const powers = [1, 3, 9, 27, 81] as const;
const digit = (byte: number, place: number) => ((((byte * powers[place]!) & 255) * 3) >> 8) - 1;

/** Unpacks TQ1_0: five digits of each of 32 bytes, then of 16, then four of each of 4. */
function ternaryDigits(data: Uint8Array, at: number, q: Int8Array): void {
  let to = 0;
  for (const [start, count, places] of [
    [0, 32, 5],
    [32, 16, 5],
    [48, 4, 4],
  ] as const)
    for (let place = 0; place < places; place++)
      for (let i = 0; i < count; i++) q[to++] = digit(data[at + start + i]!, place);
}

/**
 * Half of each e4m3 value, by code, since the codebook has doubled values. ggml's e4m3 has no sign, and its NaN code means 0.
 */
const halvedE4m3 = Float32Array.from({ length: 256 }, (_, code) => (code === 127 ? 0 : floatOf(code & 127, 4, 3) / 2));

function nibblesOf(data: Uint8Array, at: number, { q }: Block, first: number, half: number): void {
  for (let i = 0; i < half; i++) {
    q[first + i] = (data[at + i]! & 15) - 8;
    q[first + half + i] = (data[at + i]! >> 4) - 8;
  }
}

export const smallFormats: readonly BlockFormat[] = [
  nested({
    name: "TQ1_0",
    id: 34,
    bytes: 54,
    bits: 2,
    groupSize: SUPER,
    halfScales: true,
    decode(data, at, { q, scales }) {
      ternaryDigits(data, at, q);
      scales[0] = half(data, at + 52);
    },
  }),
  nested({
    name: "TQ2_0",
    id: 35,
    bytes: 66,
    bits: 2,
    groupSize: SUPER,
    halfScales: true,
    zero: -1,
    decode(data, at, { q, scales }) {
      for (let i = 0; i < SUPER; i++) q[i] = ((data[at + 32 * (i >> 7) + (i & 31)]! >> (2 * ((i >> 5) & 3))) & 3) - 2;
      scales[0] = half(data, at + 64);
    },
  }),
  simple({
    name: "MXFP4",
    id: 39,
    bytes: 17,
    bits: 4,
    halfScales: false,
    levels: e2m1Doubled,
    decode(data, at, block) {
      block.scales[0] = 2 ** (data[at]! - 128);
      nibblesOf(data, at + 1, block, 0, 16);
    },
  }),
  simple({
    name: "NVFP4",
    id: 40,
    size: 64,
    groupSize: 16,
    bytes: 36,
    bits: 4,
    levels: e2m1Doubled,
    factored: "e4m3",
    decode(data, at, block) {
      block.factors[0] = 0.5;
      for (let group = 0; group < 4; group++) {
        block.scales[group] = halvedE4m3[data[at + group]!]!;
        nibblesOf(data, at + 4 + 8 * group, block, 16 * group, 8);
      }
    },
  }),
  simple({
    name: "Q1_0",
    id: 41,
    size: 128,
    groupSize: 128,
    bytes: 18,
    bits: 1,
    levels: Int8Array.of(-1, 1),
    decode(data, at, { q, scales }) {
      scales[0] = half(data, at);
      lowestFirst(data, at + 2, q, 1);
    },
  }),
  twoBits(64),
];
