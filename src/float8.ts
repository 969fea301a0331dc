/** Floats of 8 bits with 4 of exponent and 3 of fraction (e4m3 of OCP's 8-bit formats), of which scales of NVFP4 are. */

const FRACTION_BITS = 3;
const BIAS = 7;
/** The code of the largest number, 448; the next one is NaN. */
const LARGEST = 0x7e;

let table: Float32Array | undefined;

/** The 256 values by code. */
export function e4m3Table(): Float32Array {
  table ??= Float32Array.from({ length: 256 }, (_, code) => decode(code));
  return table;
}

function decode(code: number): number {
  if ((code & 0x7f) > LARGEST) return Number.NaN;
  const sign = code & 0x80 ? -1 : 1;
  const exponent = (code >> FRACTION_BITS) & 15;
  const fraction = (code & 7) / 8;
  return sign * (exponent === 0 ? fraction * 2 ** (1 - BIAS) : (1 + fraction) * 2 ** (exponent - BIAS));
}

/** The code of the nearest value; of numbers past the largest that one's. */
export function e4m3Code(value: number): number {
  const magnitude = Math.abs(value);
  const exponent = Math.max(1 - BIAS, Math.floor(Math.log2(magnitude)));
  // Fractions that are rounded up to 2 carry into the exponent.
  const code = Math.round(magnitude * 2 ** (FRACTION_BITS - exponent)) + (exponent + BIAS - 1) * 8;
  return Math.min(LARGEST, code) | (value < 0 || Object.is(value, -0) ? 0x80 : 0);
}
