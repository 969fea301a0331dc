/** TorchAO's bit packing against a bit-by-bit transcription of its published table, and vectors written by hand. */
import { describe, expect, it } from "vitest";
import { Random } from "../../../test/support/random.ts";
import { expectSame } from "../../../test/support/same.ts";
import { type ChunkSize, packChunk, unpackChunk } from "./torchao-bits.ts";

/** Where one bit of one value goes. */
interface Place {
  readonly byte: number;
  readonly bit: number;
}

/** Bit `b` of value `e` of a chunk, from the table of fields: `lane` runs over `lanes`, `field` over the values of a lane. */
type Rule = (e: number, b: number) => Place;

/** Splits a value's index into block, field and lane: blocks of `fields * lanes` values, a field is a run of `lanes`. */
function split(e: number, fields: number, lanes: number) {
  const inBlock = e % (fields * lanes);
  return { block: Math.floor(e / (fields * lanes)), field: Math.floor(inBlock / lanes), lane: inBlock % lanes };
}

/** The byte of row `t` in a block of `rows` rows of `lanes` bytes. */
const at = (block: number, rows: number, t: number, lane: number, lanes: number) => (block * rows + t) * lanes + lane;

function oneBit(size: ChunkSize): Rule {
  if (size === 64)
    return (e) => {
      const { field, lane } = split(e, 4, 16);
      return { byte: lane % 8, bit: 3 - field + (lane >= 8 ? 4 : 0) };
    };
  const lanes = size === 128 ? 16 : 1;
  return (e) => {
    const { block, field, lane } = split(e, 8, lanes);
    return { byte: at(block, 1, 0, lane, lanes), bit: 7 - field };
  };
}

function twoBits(lanes: number): Rule {
  return (e, b) => {
    const { block, field, lane } = split(e, 4, lanes);
    return { byte: at(block, 1, 0, lane, lanes), bit: [6, 4, 2, 0][field]! + b };
  };
}

function threeBits(lanes: number): Rule {
  return (e, b) => {
    const { block, field, lane } = split(e, 8, lanes);
    const place = (t: number, bit: number) => ({ byte: at(block, 3, t, lane, lanes), bit });
    if (field < 6) return place(field >> 1, (field % 2 === 0 ? 3 : 0) + b);
    // Values 6 and 7: low two bits on top of bytes 0 and 1, third bits on top of byte 2.
    if (b < 2) return place(field - 6, 6 + b);
    return place(2, field === 6 ? 7 : 6);
  };
}

const fourBits: Rule = (e, b) => {
  const { block, field, lane } = split(e, 2, 16);
  return { byte: at(block, 1, 0, lane, 16), bit: 4 * field + b };
};

function fiveBits(size: ChunkSize): Rule {
  if (size === 64)
    return (e, b) => {
      const { field, lane } = split(e, 4, 16);
      const isOdd = field % 2 === 1;
      if (!isOdd) return { byte: 16 * (field / 2) + lane, bit: b };
      if (b < 3) return { byte: 16 * ((field - 1) / 2) + lane, bit: 5 + b };
      const place = [1, 3].indexOf(field) * 2 + (lane >= 8 ? 1 : 0); // v1 low, v1 high, v3 low, v3 high
      return { byte: 32 + (lane % 8), bit: 2 * place + b - 3 };
    };
  const lanes = size === 128 ? 16 : 1;
  return (e, b) => {
    const { block, field, lane } = split(e, 8, lanes);
    const pair = field >> 1;
    const place = (t: number, bit: number) => ({ byte: at(block, 5, t, lane, lanes), bit });
    if (field % 2 === 0) return place(pair, b);
    return b < 3 ? place(pair, 5 + b) : place(4, 2 * pair + b - 3);
  };
}

function sixBits(lanes: number): Rule {
  return (e, b) => {
    const { block, field, lane } = split(e, 4, lanes);
    const [t, bit] = field < 3 ? [field, b] : [b >> 1, 6 + (b % 2)];
    return { byte: at(block, 3, t, lane, lanes), bit };
  };
}

function sevenBits(lanes: number): Rule {
  return (e, b) => {
    const { block, field, lane } = split(e, 8, lanes);
    const [t, bit] = field < 7 ? [field, b] : [b, 7];
    return { byte: at(block, 7, t, lane, lanes), bit };
  };
}

function ruleOf(bits: number, size: ChunkSize): Rule {
  const eighth = { 128: 16, 64: 8, 32: 1 }[size];
  const quarter = size === 32 ? 8 : 16;
  if (bits === 1) return oneBit(size);
  if (bits === 2) return twoBits(quarter);
  if (bits === 3) return threeBits(eighth);
  if (bits === 4) return fourBits;
  if (bits === 5) return fiveBits(size);
  if (bits === 6) return sixBits(quarter);
  if (bits === 7) return sevenBits(eighth);
  return (e, b) => ({ byte: e, bit: b });
}

function expectedBytes(values: Uint8Array, bits: number, size: ChunkSize): Uint8Array {
  const rule = ruleOf(bits, size);
  const bytes = new Uint8Array((size * bits) / 8);
  for (let e = 0; e < size; e++)
    for (let b = 0; b < bits; b++) {
      const { byte, bit } = rule(e, b);
      bytes[byte]! |= ((values[e]! >> b) & 1) << bit;
    }
  return bytes;
}

const sizes: readonly ChunkSize[] = [128, 64, 32];
const cases = [1, 2, 3, 4, 5, 6, 7, 8].flatMap((bits) => sizes.map((size) => [bits, size] as const));

describe.each(cases)("%i bits, chunk of %i", (bits, size) => {
  it("puts every bit where the table says", () => {
    const random = new Random(100 * bits + size);
    for (let trial = 0; trial < 10; trial++) {
      const values = Uint8Array.from({ length: size }, () => random.integer(0, 2 ** bits - 1));
      const packed = new Uint8Array((size * bits) / 8);
      packChunk(bits, size, { values, from: 0 }, packed, 0);
      expectSame(packed, expectedBytes(values, bits, size));
      const unpacked = new Uint8Array(size);
      unpackChunk(bits, size, { bytes: packed, from: 0 }, unpacked, 0);
      expectSame(unpacked, values);
    }
  });

  it("leaves what lies around a chunk alone", () => {
    const values = new Uint8Array(size + 2).fill(2 ** bits - 1);
    const packed = new Uint8Array((size * bits) / 8 + 2);
    packChunk(bits, size, { values, from: 1 }, packed, 1);
    expect(packed).toEqual(Uint8Array.from(packed, (_, i) => (i === 0 || i === packed.length - 1 ? 0 : 255)));
    const unpacked = new Uint8Array(size + 2);
    unpackChunk(bits, size, { bytes: packed, from: 1 }, unpacked, 1);
    expect([unpacked[0], unpacked[1], unpacked[size], unpacked[size + 1]]).toEqual([0, values[0], values[0], 0]);
  });
});

/** The bytes of a chunk in which value e is `value(e)`. */
function pack(bits: number, size: ChunkSize, value: (e: number) => number): number[] {
  const packed = new Uint8Array((size * bits) / 8);
  packChunk(bits, size, { values: Uint8Array.from({ length: size }, (_, e) => value(e)), from: 0 }, packed, 0);
  return [...packed];
}

const zeros = (count: number) => Array.from({ length: count }, () => 0);

describe("by hand", () => {
  it("4 bits, chunk of 32: value j below value j + 16", () => {
    const expected = [0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
    expect(pack(4, 32, (e) => e % 16)).toEqual(expected);
    expect(pack(4, 32, (e) => (e < 16 ? 1 : 2))).toEqual(expected.map(() => 0x21));
  });
  it("1 bit, chunk of 32: first value in the top bit", () => {
    expect(pack(1, 32, (e) => (e === 0 || e === 7 || e === 9 ? 1 : 0))).toEqual([0x81, 0x40, 0, 0]);
  });
  it("1 bit, chunk of 64: lanes 8 to 15 in the high nibble", () => {
    expect(pack(1, 64, (e) => (e === 0 ? 1 : 0))).toEqual([0x08, ...zeros(7)]);
    expect(pack(1, 64, (e) => (e === 48 + 9 ? 1 : 0))).toEqual([0, 0x10, ...zeros(6)]);
  });
  it("1 bit, chunk of 128: vector i in bit 7 - i", () => {
    expect(pack(1, 128, (e) => (e >= 112 || e < 16 ? 1 : 0))).toEqual(Array.from({ length: 16 }, () => 0x81));
  });
  it("2 bits, chunk of 32: 3, 2, 1, 0 from the top", () => {
    expect(pack(2, 32, (e) => 3 - Math.floor(e / 8))).toEqual(Array.from({ length: 8 }, () => 0b11100100));
  });
  it("3 bits, chunk of 32: eight values 0 to 7 in three bytes", () => {
    // b0 = (6&3)<<6 | 0<<3 | 1, b1 = (7&3)<<6 | 2<<3 | 3, b2 = (6&4)<<5 | (7&4)<<4 | 4<<3 | 5
    expect(pack(3, 32, (e) => e % 8).slice(0, 3)).toEqual([0x81, 0xd3, 0xe5]);
  });
  it("5 bits, chunk of 32: 1, 31, 2, 8, 3, 16, 4, 24", () => {
    const eight = [1, 31, 2, 8, 3, 16, 4, 24];
    // 1 | 31<<5, 2 | 8<<5, 3 | 16<<5, 4 | 24<<5 (each to a byte); then 31>>3 | (8>>3)<<2 | (16>>3)<<4 | (24>>3)<<6
    expect(pack(5, 32, (e) => eight[e % 8]!).slice(0, 5)).toEqual([0xe1, 0x02, 0x03, 0x04, 0b11100111]);
  });
  it("6 bits, chunk of 64: the fourth vector is spread over the top bits", () => {
    // 0b100111: bits 0,1 = 11, bits 2,3 = 01, bits 4,5 = 10
    const row = (value: number) => Array.from({ length: 16 }, () => value);
    expect(pack(6, 64, (e) => (e < 48 ? 0 : 0b100111))).toEqual([...row(0xc0), ...row(0x40), ...row(0x80)]);
  });
  it("7 bits, chunk of 32: bit i of value 7 on top of byte i", () => {
    expect(pack(7, 32, (e) => [1, 2, 3, 4, 5, 6, 7, 0b1010001][e % 8]!).slice(0, 7)).toEqual([
      0x81, 0x02, 0x03, 0x04, 0x85, 0x06, 0x87,
    ]);
  });
});
