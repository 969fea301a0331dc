/** 8-bit floats with 4 exponent and 3 fraction bits (OCP's e4m3), the type of NVFP4's scales. */

const FRACTION_BITS = 3;
const BIAS = 7;
/** The code of the largest value, 448; the code after it is NaN. */
const LARGEST = 0x7e;

let table: Float32Array | undefined;

/** The values of all 256 codes. */
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

/** The code of the nearest value; numbers beyond the largest are clamped. */
export function e4m3Code(value: number): number {
  const magnitude = Math.abs(value);
  const exponent = Math.max(1 - BIAS, Math.floor(Math.log2(magnitude)));
  // Fractions that are rounded up to 2 carry into the exponent.
  const code = Math.round(magnitude * 2 ** (FRACTION_BITS - exponent)) + (exponent + BIAS - 1) * 8;
  return Math.min(LARGEST, code) | (value < 0 || Object.is(value, -0) ? 0x80 : 0);
}
