/**
 * TorchAO's packing of 1..8-bit integers in chunks of 128, 64 and 32 values, byte for byte
 * (torchao/csrc/cpu/torch_free_kernels/fallback/bitpacking). Values are unsigned, q + 2^(bits-1); 8-bit ones are raw.
 */

export type ChunkSize = 128 | 64 | 32;

/**
 * A chunk is `fields` runs of `lanes` values; the j-th values of all runs are combined into `bits * fields / 8` bytes that are
 * stored `lanes` apart. With `lanes` 1, consecutive values are combined.
 */
interface Combination {
  readonly fields: number;
  pack(v: readonly number[]): number[];
  unpack(b: readonly number[]): number[];
}

const bit = (value: number, index: number): number => (value >> index) & 1;

const combinations: Readonly<Record<number, Combination>> = {
  1: {
    fields: 8,
    pack: (v) => [v.reduce((byte, value, i) => byte | (value << (7 - i)), 0)],
    unpack: ([b]) => Array.from({ length: 8 }, (_, i) => bit(b!, 7 - i)),
  },
  2: {
    fields: 4,
    pack: (v) => [(v[0]! << 6) | (v[1]! << 4) | (v[2]! << 2) | v[3]!],
    unpack: ([b]) => [b! >> 6, (b! >> 4) & 3, (b! >> 2) & 3, b! & 3],
  },
  3: {
    fields: 8,
    pack: (v) => [
      ((v[6]! & 3) << 6) | (v[0]! << 3) | v[1]!,
      ((v[7]! & 3) << 6) | (v[2]! << 3) | v[3]!,
      ((v[6]! & 4) << 5) | ((v[7]! & 4) << 4) | (v[4]! << 3) | v[5]!,
    ],
    unpack: ([b0, b1, b2]) => [
      ...[b0!, b1!, b2!].flatMap((b) => [(b >> 3) & 7, b & 7]),
      (b0! >> 6) | ((b2! >> 5) & 4),
      (b1! >> 6) | ((b2! >> 4) & 4),
    ],
  },
  4: {
    fields: 2,
    pack: (v) => [v[0]! | (v[1]! << 4)],
    unpack: ([b]) => [b! & 15, b! >> 4],
  },
  5: {
    fields: 8,
    pack: (v) => [
      ...[0, 2, 4, 6].map((i) => (v[i]! | (v[i + 1]! << 5)) & 255),
      (v[1]! >> 3) | ((v[3]! >> 3) << 2) | ((v[5]! >> 3) << 4) | ((v[7]! >> 3) << 6),
    ],
    unpack: (b) => [0, 1, 2, 3].flatMap((i) => [b[i]! & 31, (b[i]! >> 5) | (((b[4]! >> (2 * i)) & 3) << 3)]),
  },
  6: {
    fields: 4,
    pack: (v) => [v[0]! | ((v[3]! & 3) << 6), v[1]! | ((v[3]! & 12) << 4), v[2]! | ((v[3]! & 48) << 2)],
    unpack: ([b0, b1, b2]) => [b0! & 63, b1! & 63, b2! & 63, (b0! >> 6) | ((b1! >> 6) << 2) | ((b2! >> 6) << 4)],
  },
  7: {
    fields: 8,
    pack: (v) => Array.from({ length: 7 }, (_, i) => v[i]! | (bit(v[7]!, i) << 7)),
    unpack: (b) => [...b.map((byte) => byte & 127), b.reduce((sum, byte, i) => sum | ((byte >> 7) << i), 0)],
  },
  8: { fields: 1, pack: (v) => [...v], unpack: (b) => [...b] },
};

/**
 * The 64-value chunks of 1 and 5 bits do not follow the rule: their eight fields are half vectors of four vectors of 16 lanes.
 */
const halved: Readonly<Record<number, Combination>> = {
  1: {
    fields: 8,
    // v[2i], v[2i+1]: lanes 0..7 and 8..15 of vector i.
    pack: (v) => [[0, 1, 2, 3].reduce((b, i) => b | (v[2 * i]! << (3 - i)) | (v[2 * i + 1]! << (7 - i)), 0)],
    unpack: ([b]) => [0, 1, 2, 3].flatMap((i) => [bit(b!, 3 - i), bit(b!, 7 - i)]),
  },
  5: {
    fields: 8,
    // Bytes: v0|v1<<5 (low, high lanes), v2|v3<<5 (low, high lanes), then the top bits of v1 and v3.
    pack: (v) => [
      (v[0]! | (v[2]! << 5)) & 255,
      (v[1]! | (v[3]! << 5)) & 255,
      (v[4]! | (v[6]! << 5)) & 255,
      (v[5]! | (v[7]! << 5)) & 255,
      (v[2]! >> 3) | ((v[3]! >> 3) << 2) | ((v[6]! >> 3) << 4) | ((v[7]! >> 3) << 6),
    ],
    unpack: (b) => {
      const top = (i: number) => ((b[4]! >> (2 * i)) & 3) << 3;
      const low = [0, 1, 2, 3].map((i) => b[i]! & 31);
      const high = [0, 1, 2, 3].map((i) => (b[i]! >> 5) | top(i));
      return [low[0]!, low[1]!, high[0]!, high[1]!, low[2]!, low[3]!, high[2]!, high[3]!];
    },
  },
};

function rule(bits: number, size: ChunkSize): { combination: Combination; lanes: number } {
  if (size === 64 && halved[bits]) return { combination: halved[bits], lanes: 8 };
  const combination = combinations[bits]!;
  const lanesMax = bits === 2 || bits === 4 || bits === 6 ? 16 : size / combination.fields;
  const lanes = size === 32 && combination.fields === 8 ? 1 : Math.min(lanesMax, size / combination.fields);
  return { combination, lanes };
}

/** Packs `size` unsigned values starting at `values[from]` into `size * bits / 8` bytes at `target[at]`. */
export function packChunk(
  bits: number,
  size: ChunkSize,
  source: { values: Uint8Array; from: number },
  target: Uint8Array,
  at: number,
): void {
  const { combination, lanes } = rule(bits, size);
  const { fields } = combination;
  const block = fields * lanes;
  for (let base = 0; base < size; base += block) {
    for (let j = 0; j < lanes; j++) {
      const v = Array.from({ length: fields }, (_, i) => source.values[source.from + base + i * lanes + j]!);
      const bytes = combination.pack(v);
      for (let t = 0; t < bytes.length; t++) target[at + (base * bits) / 8 + t * lanes + j] = bytes[t]!;
    }
  }
}

/** The inverse of `packChunk`, by the rules of the combinations. */
function unpackByRule(bits: number, size: ChunkSize, bytes: Uint8Array): Uint8Array {
  const values = new Uint8Array(size);
  const { combination, lanes } = rule(bits, size);
  const { fields } = combination;
  const block = fields * lanes;
  const byteCount = (fields * bits) / 8;
  for (let base = 0; base < size; base += block) {
    for (let j = 0; j < lanes; j++) {
      const from = (base * bits) / 8 + j;
      const v = combination.unpack(Array.from({ length: byteCount }, (_, t) => bytes[from + t * lanes]!));
      for (let i = 0; i < fields; i++) values[base + i * lanes + j] = v[i]!;
    }
  }
  return values;
}

/** Bits `[at, at + width)` of a value are bits `[shift, shift + width)` of byte `byte` of its chunk. */
interface ChunkPiece {
  readonly byte: number;
  readonly shift: number;
  readonly mask: number;
  readonly at: number;
}

type ChunkPieces = readonly (readonly ChunkPiece[])[];

/** Finds the pieces of each value by unpacking chunks with one bit set, so that reading a value takes a few shifts. */
function findPieces(bits: number, size: ChunkSize): ChunkPieces {
  const pieces = Array.from({ length: size }, (): { -readonly [K in keyof ChunkPiece]: number }[] => []);
  const bytes = new Uint8Array((size * bits) / 8);
  for (let byte = 0; byte < bytes.length; byte++)
    for (let shift = 0; shift < 8; shift++) {
      bytes[byte] = 1 << shift;
      const values = unpackByRule(bits, size, bytes);
      const index = values.findIndex((value) => value > 0);
      const at = Math.log2(values[index]!);
      const last = pieces[index]!.at(-1);
      const width = last ? Math.log2(last.mask + 1) : 0;
      if (last && last.byte === byte && last.shift + width === shift && last.at + width === at)
        last.mask = 2 * last.mask + 1;
      else pieces[index]!.push({ byte, shift, mask: 1, at });
      bytes[byte] = 0;
    }
  return pieces;
}

const knownPieces = new Map<string, ChunkPieces>();

/** The bit ranges of each value in a chunk. */
export function chunkPieces(bits: number, size: ChunkSize): ChunkPieces {
  const key = `${bits} ${size}`;
  const pieces = knownPieces.get(key) ?? findPieces(bits, size);
  knownPieces.set(key, pieces);
  return pieces;
}

/** Makes a function that reads value `index` of the chunk of `size` values that begins at `bytes[from]`. */
export function chunkReader(bits: number, size: ChunkSize): (bytes: Uint8Array, from: number, index: number) => number {
  const all = chunkPieces(bits, size);
  return (bytes, from, index) => {
    const pieces = all[index]!;
    let value = 0;
    for (let p = 0; p < pieces.length; p++) {
      const { byte, shift, mask, at } = pieces[p]!;
      value |= ((bytes[from + byte]! >> shift) & mask) << at;
    }
    return value;
  };
}

/** The inverse of `packChunk`. */
export function unpackChunk(
  bits: number,
  size: ChunkSize,
  source: { bytes: Uint8Array; from: number },
  target: Uint8Array,
  at: number,
): void {
  const read = chunkReader(bits, size);
  for (let i = 0; i < size; i++) target[at + i] = read(source.bytes, source.from, i);
}
