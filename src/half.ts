/** Conversions between float32 and the two 16-bit float formats, as bit patterns in a Uint16Array. */

const bitsOf = new Uint32Array(1);
const floatOf = new Float32Array(bitsOf.buffer);

let halfTable: Float32Array | undefined;

/** The 65536 float32 values of all IEEE binary16 bit patterns; built at first use (about 3 ms). */
export function f16Table(): Float32Array {
  if (!halfTable) {
    halfTable = new Float32Array(65536);
    for (let bits = 0; bits < 65536; bits++) halfTable[bits] = decodeF16(bits);
  }
  return halfTable;
}

function decodeF16(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** Nearest binary16 bit pattern, ties to even; overflow gives infinity. */
export function f32ToF16(value: number): number {
  floatOf[0] = value;
  const bits = bitsOf[0]!;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {
    // Subnormal: adding 0.5 places the unit of the last f16 bit (2^-24) in the last f32 bit, rounded to even.
    floatOf[0] = Math.abs(value) + 0.5;
    return sign | (bitsOf[0]! - 0x3f000000);
  }
  const roundToEven = 0xfff + ((magnitude >>> 13) & 1);
  return sign | ((magnitude - 0x38000000 + roundToEven) >>> 13);
}

/** Nearest bfloat16 bit pattern, ties to even. */
export function f32ToBf16(value: number): number {
  floatOf[0] = value;
  const bits = bitsOf[0]!;
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** Float32 values of bfloat16 bit patterns. `target` has the length of `source`. */
export function decodeBf16(source: Uint16Array, target: Float32Array): void {
  const words = new Uint32Array(target.buffer, target.byteOffset, target.length);
  for (let i = 0; i < source.length; i++) words[i] = source[i]! << 16;
}

/** Float32 values of binary16 bit patterns. `target` has the length of `source`. */
export function decodeF16Array(source: Uint16Array, target: Float32Array): void {
  const table = f16Table();
  for (let i = 0; i < source.length; i++) target[i] = table[source[i]!]!;
}

/** Rounds finite floats to the nearest bf16 numbers, ties to even, in place; gives these as words in `words`, too. */
export function roundToBf16(values: Float32Array, words: Uint16Array): void {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  for (let i = 0; i < bits.length; i++) {
    const word = (bits[i]! + 0x7fff + ((bits[i]! >>> 16) & 1)) >>> 16;
    words[i] = word;
    bits[i] = word << 16;
  }
}
