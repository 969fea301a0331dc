/** Values of 4-bit and 8-bit floats (OCP 8-bit floating point and Microscaling formats). */
import { e4m3Table } from "../../float8.ts";

/** The 16 values of e2m1 by code, doubled to be integers: sign in bit 3, two exponent bits, one fraction bit. */
export const e2m1Doubled: Int8Array = Int8Array.of(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);

/** Values by code, by safetensors' name of the type. */
const tables = new Map<string, Float32Array>();

const kinds: Readonly<Record<string, (code: number) => number>> = {
  F8_E4M3: (code) => e4m3Table()[code]!,
  F8_E5M2: (code) => ((code & 0x7c) === 0x7c ? special(code) : floatOf(code, 5, 2)),
  F8_E8M0: (code) => (code === 255 ? Number.NaN : 2 ** (code - 127)),
};

/** The 256 values of an 8-bit float type by code; null for another type. */
export function float8Values(storedType: string): Float32Array | null {
  const kind = Object.hasOwn(kinds, storedType) ? kinds[storedType] : undefined;
  if (!kind) return null;
  const known = tables.get(storedType);
  if (known) return known;
  const table = Float32Array.from({ length: 256 }, (_, code) => kind(code));
  tables.set(storedType, table);
  return table;
}

/** Value of a code with a sign bit and these numbers of exponent and fraction bits, in a type without infinities and NaN. */
export function floatOf(code: number, exponentBits: number, fractionBits: number): number {
  const sign = code & 0x80 ? -1 : 1;
  const exponent = (code >> fractionBits) & ((1 << exponentBits) - 1);
  const fraction = (code & ((1 << fractionBits) - 1)) / (1 << fractionBits);
  const bias = (1 << (exponentBits - 1)) - 1;
  return exponent === 0 ? sign * fraction * 2 ** (1 - bias) : sign * (1 + fraction) * 2 ** (exponent - bias);
}

/** Infinity or NaN of an e5m2 code. */
function special(code: number): number {
  if (code & 3) return Number.NaN;
  return code & 0x80 ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
}
