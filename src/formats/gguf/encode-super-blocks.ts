/** Encodes Q4_K, Q5_K and Q6_K super-blocks: the inverse of blocks.ts. */
import { f32ToF16 } from "../../half.ts";
import { SUPER } from "./block-format.ts";

/**
 * A super-block of 256 weights: integers, and integer scales (and minima) of groups, which binary16 factors d (and dmin)
 * multiply.
 */
export interface SuperBlockValues {
  readonly d: number;
  readonly dmin: number;
  readonly scales: Int8Array;
  readonly minima: Int8Array;
  readonly q: Int8Array;
}

/** A super-block type that can be written. */
export interface SuperBlockType {
  readonly name: "Q4_K" | "Q5_K" | "Q6_K";
  /** Type number in GGUF's tensor list. */
  readonly id: number;
  readonly bytes: number;
  readonly bits: number;
  readonly groupSize: 16 | 32;
  readonly hasMinima: boolean;
  /** Least and largest integer scale of a group. */
  readonly low: number;
  readonly high: number;
}

const paired = { groupSize: 32, hasMinima: true, low: 0, high: 63 } as const;

export const superBlockTypes = {
  Q4_K: { name: "Q4_K", id: 12, bytes: 144, bits: 4, ...paired },
  Q5_K: { name: "Q5_K", id: 13, bytes: 176, bits: 5, ...paired },
  Q6_K: { name: "Q6_K", id: 14, bytes: 210, bits: 6, groupSize: 16, hasMinima: false, low: -128, high: 127 },
} as const satisfies Record<string, SuperBlockType>;

/** Writes a super-block at `at`. */
export function encodeSuperBlock(
  name: SuperBlockType["name"],
  block: SuperBlockValues,
  bytes: Uint8Array,
  at: number,
): void {
  const half = (value: number, to: number) => {
    const bits = f32ToF16(value);
    bytes[to] = bits & 255;
    bytes[to + 1] = bits >> 8;
  };
  if (name === "Q6_K") {
    sixBits(block, bytes, at);
    half(block.d, at + 208);
    return;
  }
  half(block.d, at);
  half(block.dmin, at + 2);
  pairsOfSixBits(block, bytes, at + 4);
  const isFive = name === "Q5_K";
  fourBits(block.q, bytes, at + (isFive ? 48 : 16));
  if (isFive) for (let i = 0; i < SUPER; i++) bytes[at + 16 + (i & 31)]! |= (block.q[i]! >> 4) << (i >> 5);
}

/** Packs eight 6-bit scales and minima into 12 bytes: the high bits of the last four pairs go to the first eight bytes. */
function pairsOfSixBits({ scales, minima }: SuperBlockValues, bytes: Uint8Array, at: number): void {
  for (let j = 0; j < 4; j++) {
    const [scale, minimum] = [scales[j + 4]!, minima[j + 4]!];
    bytes[at + j] = scales[j]! | ((scale >> 4) << 6);
    bytes[at + j + 4] = minima[j]! | ((minimum >> 4) << 6);
    bytes[at + j + 8] = (scale & 15) | ((minimum & 15) << 4);
  }
}

/** Packs the low 4 bits of 256 integers into 128 bytes: each 64 have 32 bytes, low nibbles first. */
function fourBits(q: Int8Array, bytes: Uint8Array, at: number): void {
  for (let i = 0; i < SUPER; i++) bytes[at + 32 * (i >> 6) + (i & 31)]! |= (q[i]! & 15) << (i & 32 ? 4 : 0);
}

function sixBits({ q, scales }: SuperBlockValues, bytes: Uint8Array, at: number): void {
  for (let i = 0; i < SUPER; i++) {
    const [part, quarter, column] = [i >> 7, (i >> 5) & 3, i & 31];
    const code = q[i]! + 32;
    bytes[at + 64 * part + 32 * (quarter & 1) + column]! |= (code & 15) << (quarter < 2 ? 0 : 4);
    bytes[at + 128 + 32 * part + column]! |= (code >> 4) << (2 * quarter);
  }
  for (let j = 0; j < 16; j++) bytes[at + 192 + j] = scales[j]!;
}
