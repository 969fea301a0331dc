/** Codebooks: uneven levels that suit weights better than even steps, close together around 0, where most weights are. */

/**
 * Codebooks of 2^bits levels, rising. The one of 4 bits is that of llama.cpp's IQ4_NL. Those of 2 and 3 bits have the least
 * squared error, by Lloyd's algorithm, for groups of 32 numbers of Student's t distribution with 5 degrees of freedom.
 */
export const codebooks: Readonly<Record<number, Int8Array>> = {
  1: Int8Array.of(-1, 1),
  2: Int8Array.of(-127, -36, 8, 65),
  3: Int8Array.of(-127, -70, -38, -16, 2, 22, 48, 90),
  4: Int8Array.of(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
};

/**
 * Zero points of groups whose integer scale is odd, for `codebooks`: a group then has the better one of two codebooks, without
 * a bit for the choice. Those of least squared error on SmolLM2-135M and Gemma 3 270M, of the tried ones with which levels
 * still fit int8.
 */
const oddZeros: Readonly<Record<number, number>> = { 2: -20, 3: -10, 4: -3 };

/** Largest magnitude of the fixed levels, and of learned ones of so many bits: see `learnLevels`. */
export const FIXED_LEVEL_MAX = 127;
export const learnedLevelMax = (bits: number) => (bits < 4 ? 63 : FIXED_LEVEL_MAX);

/** Zero point of groups with odd integer scales, for codebooks of levels up to `levelMax`; undefined for 1 bit. */
export function oddZeroOf(bits: number, levelMax: number): number | undefined {
  const zero = oddZeros[bits];
  return zero === undefined ? undefined : Math.round((zero * levelMax) / FIXED_LEVEL_MAX);
}

/** Bits of weights in groups of 16 whose scales are integers. */
export const PAIRED_BITS: readonly number[] = [2, 3, 4, 6];

/** Fields of a scheme that depend on each other. */
export interface BitsOfScheme {
  readonly bits: number;
  readonly groupSize: number | "axis";
  readonly mappingType: string;
  readonly scaleDType: string;
}

/**
 * `scheme` with another number of bits. If there is no codebook of so many bits, it gets a symmetric mapping; if groups of 16
 * cannot have integer scales, groups of 32.
 */
export function atBits<S extends BitsOfScheme>(scheme: S, bits: number): S {
  const isPossible = scheme.mappingType === "kmeans" || scheme.mappingType === "codebook" ? codebooks[bits] : true;
  const mappingType = isPossible ? scheme.mappingType : "symmetric";
  const isPaired = scheme.scaleDType === "i8" && scheme.groupSize === 16 && !PAIRED_BITS.includes(bits);
  return { ...scheme, bits, mappingType, ...(isPaired && { groupSize: 32 }) };
}
