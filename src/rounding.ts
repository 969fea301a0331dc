/** Adding and then subtracting 1.5 * 2^52 rounds a double to an integer. */
const WHOLE = 1.5 * 2 ** 52;

/** Rounds to the nearest integer, ties to even, as PyTorch does: exact for float32 and for doubles below 2^51. */
export function roundHalfEven(value: number): number {
  return value + WHOLE - WHOLE;
}
