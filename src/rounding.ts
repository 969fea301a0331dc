/** Adding and taking away 1.5 * 2^52 leaves a double no bits after the point. */
const WHOLE = 1.5 * 2 ** 52;

/** The nearest whole number, the even one of two, as PyTorch rounds: exact for float32 and for doubles below 2^51. */
export function roundHalfEven(value: number): number {
  return value + WHOLE - WHOLE;
}
