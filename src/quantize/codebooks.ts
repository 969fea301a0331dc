/** Levels that suit weights better than even steps: close together around 0, where most of them are. */

/**
 * Codebooks of 2^bits levels, rising. That of 4 bits is llama.cpp's of IQ4_NL; those of 2 and 3 bits have the least
 * squared error, by Lloyd's algorithm, for groups of 32 numbers of Student's t distribution with 5 degrees of freedom.
 */
export const codebooks: Readonly<Record<number, Int8Array>> = {
  1: Int8Array.of(-1, 1),
  2: Int8Array.of(-127, -36, 8, 65),
  3: Int8Array.of(-127, -70, -38, -16, 2, 22, 48, 90),
  4: Int8Array.of(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
};

/** A scheme with other bits: with even steps, symmetric about 0, where there is no codebook of so many bits. */
export function atBits<S extends { readonly bits: number; readonly mappingType: string }>(scheme: S, bits: number): S {
  const mappingType = scheme.mappingType === "codebook" && !codebooks[bits] ? "symmetric" : scheme.mappingType;
  return { ...scheme, bits, mappingType };
}
