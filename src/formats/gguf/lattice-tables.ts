/** Tables of lattice points, unpacked when first used. */
import { latticePoints } from "./lattice-points.ts";

/** A table of points with `size` values each. */
export interface Lattice {
  readonly size: number;
  readonly values: Int8Array;
}

const lattices = new Map<string, Lattice>();

/** The points of a format; IQ1_M shares those of IQ1_S. */
export function latticeOf(name: keyof typeof latticePoints): Lattice {
  let lattice = lattices.get(name);
  if (!lattice) {
    const { values, size, places } = latticePoints[name];
    const bytes = Buffer.from(places, "base64");
    const bits = 32 - Math.clz32(values.length - 1);
    const placeAt = (i: number) =>
      ((bytes[(i * bits) >> 3]! | ((bytes[((i * bits) >> 3) + 1] ?? 0) << 8)) >> ((i * bits) & 7)) & ((1 << bits) - 1);
    const length = Math.floor((8 * bytes.length) / bits);
    lattice = { size, values: Int8Array.from({ length }, (_, i) => values[placeAt(i)]!) };
    lattices.set(name, lattice);
  }
  return lattice;
}
