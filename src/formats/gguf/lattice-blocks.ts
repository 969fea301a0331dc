/**
 * ggml's lattice formats (IQ1, IQ2, IQ3): a weight group is an index into a table of points of 8 or 4 values, with signs and
 * scales (ggml-common.h; values as in gguf-py's quants.py). A block decodes to the values as integers, those of IQ1 in eighths.
 */
import { type Block, type BlockFormat, half, nested, SUPER } from "./block-format.ts";
import { type Lattice, latticeOf } from "./lattice-tables.ts";

type Decode = BlockFormat["decode"];

const word = (data: Uint8Array, at: number) => data[at]! | (data[at + 1]! << 8);
const longWord = (data: Uint8Array, at: number) => (word(data, at) | (word(data, at + 2) << 16)) >>> 0;
const nibble = (data: Uint8Array, at: number, i: number) => (data[at + (i >> 1)]! >> (4 * (i & 1))) & 15;

/** Expands seven stored sign bits to eight: the last makes the number of set bits even. */
function evenSigns(bits: number): number {
  const folded = bits ^ (bits >> 4);
  const parity = (0x6996 >> (folded & 15)) & 1;
  return bits | (parity << 7);
}

/** Writes the values of point `index` at `to`, negated where a bit of `signs` is set. */
function putPoint({ q }: Block, to: number, { values, size }: Lattice, index: number, signs: number): void {
  for (let i = 0; i < size; i++) {
    const value = values[index * size + i]!;
    q[to + i] = (signs >> i) & 1 ? -value : value;
  }
}

/**
 * Decodes formats with point indices for each 32 weights and a 32-bit word of four times seven signs and a scale; the word
 * follows those indices (IQ2_XXS) or the indices of all weights (IQ3_XXS).
 */
const packedSigns =
  (name: "IQ2_XXS" | "IQ3_XXS"): Decode =>
  (data, at, block) => {
    const lattice = latticeOf(name);
    const isTwoBits = name === "IQ2_XXS";
    const perSigns = 8 / lattice.size;
    const d = half(data, at);
    for (let group = 0; group < 8; group++) {
      const points = at + 2 + 8 * group;
      const rest = longWord(data, isTwoBits ? points + 4 : at + 66 + 4 * group);
      block.scales[group] = d * (0.5 + (rest >>> 28)) * (isTwoBits ? 0.25 : 0.5);
      for (let i = 0; i < 4 * perSigns; i++) {
        const first = i * lattice.size;
        const signs = evenSigns((rest >>> (7 * (first >> 3))) & 127) >> (first & 7);
        putPoint(block, 32 * group + first, lattice, data[points + i]!, signs);
      }
    }
  };

const iq2xs: Decode = (data, at, block) => {
  const lattice = latticeOf("IQ2_XS");
  const d = half(data, at);
  for (let group = 0; group < 16; group++) {
    block.scales[group] = d * (0.5 + nibble(data, at + 66, group)) * 0.25;
    for (let part = 0; part < 2; part++) {
      const code = word(data, at + 2 + 4 * group + 2 * part);
      putPoint(block, 16 * group + 8 * part, lattice, code & 511, evenSigns(code >> 9));
    }
  }
};

const iq2s: Decode = (data, at, block) => {
  const lattice = latticeOf("IQ2_S");
  const d = half(data, at);
  for (let group = 0; group < 16; group++) block.scales[group] = d * (0.5 + nibble(data, at + 74, group)) * 0.25;
  for (let i = 0; i < 32; i++) {
    const high = (data[at + 66 + (i >> 2)]! >> (2 * (i & 3))) & 3;
    putPoint(block, 8 * i, lattice, data[at + 2 + i]! | (high << 8), data[at + 34 + i]!);
  }
};

const iq3s: Decode = (data, at, block) => {
  const lattice = latticeOf("IQ3_S");
  const d = half(data, at);
  for (let group = 0; group < 8; group++) block.scales[group] = d * (1 + 2 * nibble(data, at + 106, group));
  for (let i = 0; i < 64; i++) {
    const high = (data[at + 66 + (i >> 3)]! >> (i & 7)) & 1;
    const signs = data[at + 74 + (i >> 1)]! >> (4 * (i & 1));
    putPoint(block, 4 * i, lattice, data[at + 2 + i]! | (high << 8), signs);
  }
};

/** Writes the values of an IQ1 point in eighths, shifted by an eighth up or down. */
function putShifted({ q }: Block, to: number, index: number, isDown: boolean): void {
  const { values } = latticeOf("IQ1_S");
  for (let i = 0; i < 8; i++) q[to + i] = 8 * values[8 * index + i]! + (isDown ? -1 : 1);
}

const iq1s: Decode = (data, at, block) => {
  const d = half(data, at);
  for (let group = 0; group < 8; group++) {
    const high = word(data, at + 34 + 2 * group);
    block.scales[group] = (d * (2 * ((high >> 12) & 7) + 1)) / 8;
    for (let i = 0; i < 4; i++)
      putShifted(
        block,
        32 * group + 8 * i,
        data[at + 2 + 4 * group + i]! | (((high >> (3 * i)) & 7) << 8),
        (high & 0x8000) !== 0,
      );
  }
};

/** Decodes IQ1_M, whose block scale is stored in the highest four bits of each of the four scale words. */
const iq1m: Decode = (data, at, block) => {
  const scales = [0, 1, 2, 3].map((i) => word(data, at + 48 + 2 * i));
  const bits = scales.reduce((whole, value, i) => whole | ((value >> 12) << (4 * i)), 0);
  const d = half(Uint8Array.of(bits & 255, bits >> 8), 0);
  for (let group = 0; group < 16; group++) {
    block.scales[group] = (d * (2 * ((scales[group >> 2]! >> (3 * (group & 3))) & 7) + 1)) / 8;
    for (let i = 2 * group; i < 2 * group + 2; i++) {
      const high = (data[at + 32 + (i >> 1)]! >> (4 * (i & 1))) & 15;
      putShifted(block, 8 * i, data[at + i]! | ((high & 7) << 8), (high & 8) !== 0);
    }
  }
};

const lattice = (name: string, id: number, bytes: number, groupSize: number, decode: Decode): BlockFormat =>
  nested({ name, id, bytes, bits: 8, size: SUPER, groupSize, isLattice: true, decode });

export const latticeFormats: readonly BlockFormat[] = [
  lattice("IQ2_XXS", 16, 66, 32, packedSigns("IQ2_XXS")),
  lattice("IQ2_XS", 17, 74, 16, iq2xs),
  lattice("IQ3_XXS", 18, 98, 32, packedSigns("IQ3_XXS")),
  lattice("IQ1_S", 19, 50, 32, iq1s),
  lattice("IQ3_S", 21, 110, 32, iq3s),
  lattice("IQ2_S", 22, 82, 16, iq2s),
  lattice("IQ1_M", 29, 56, 16, iq1m),
];
