/**
 * The 64-byte header in front of packed weights. Little endian:
 *
 *     0 u32 magic "LBW1"    4 u16 version    6 u16 layout id
 *     8 u8 bits    9 u8 scale type (0 f32, 1 f16, 2 i8, 3 e4m3)    10 u16 flags (1 zeros, 2 bias, 4 levels, 8 minima,
 *    16 zeros of odd scales)
 *    12 u8 nr  13 u8 kr  14 u8 sr  15 u8 mark (panel layouts: 1 when no scale is negative)
 *    16 u32 n    20 u32 k    24 u32 group size    28 u32 checksum of the payload
 *    32 u64 byte length, header included    40 i8[16] levels    56 i8 zero point of odd scales  57 u8[3] 0
 *    60 u32 checksum of bytes 0..59
 */
import { ShapeError } from "../../errors.ts";
import type { WeightSpec } from "../../quantized.ts";
import type { PackedLayout } from "../contract.ts";

export const HEADER_BYTES = 64;
/**
 * Most columns whose products kernels may sum in 32 bits, in a group or all of k. The largest sums are those of activations of
 * -128 times weights of 255, and of such activations alone, which native/x86/linear_amx.cc computes as two sums of 16 bits.
 */
export const SUMMED_COLUMNS_MAX = 2 ** 16 - 32;
/** Largest size: headers and kernels use 32 bits, and round sizes up there. */
const SIZE_MAX = 2 ** 31 - 1;
export const MAGIC = 0x3157424c;
const VERSION = 1;
const FLAG_ZEROS = 1;
const FLAG_BIAS = 2;
const FLAG_LEVELS = 4;
const FLAG_MINIMA = 8;
const FLAG_ODD_ZERO = 16;
const FLAGS_MAX = 31;
/** Place of the zero point of odd scales. */
const ODD_ZERO = 56;
/** Scale types; headers contain their indices. */
const SCALE_TYPES = ["f32", "f16", "i8", "e4m3"] as const;
/** Most levels of a codebook, which is stored in the header. */
const LEVELS_MAX = 16;

/** Why no layout supports weights of this size; null if some does. */
export function sizeRefusal({ n, k, groupSize }: WeightSpec): string | null {
  const size = Math.max(n, k, groupSize);
  return size > SIZE_MAX ? `n, k and the group size may be ${SIZE_MAX} at most, not ${size}` : null;
}

export interface PackedHeader {
  readonly layoutId: number;
  readonly tile: Pick<PackedLayout, "nr" | "kr" | "sr">;
  readonly spec: WeightSpec;
  readonly hasBias: boolean;
  readonly levels: Int8Array | null;
  readonly byteLength: number;
  readonly payloadChecksum: number;
}

const FNV_START = 0x811c9dc5;

/** FNV-1a over 32-bit words, continuing from the checksum `before`; a trailing partial word is padded with zeros. */
export function checksum(bytes: Uint8Array, before = FNV_START): number {
  let hash = before;
  const words = bytes.length >> 2;
  if (bytes.byteOffset % 4 === 0) {
    const view = new Uint32Array(bytes.buffer, bytes.byteOffset, words);
    for (let i = 0; i < words; i++) hash = Math.imul(hash ^ view[i]!, 0x01000193);
  } else {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    for (let i = 0; i < words; i++) hash = Math.imul(hash ^ view.getUint32(4 * i, true), 0x01000193);
  }
  let tail = 0;
  for (let i = 4 * words; i < bytes.length; i++) tail |= bytes[i]! << (8 * (i - 4 * words));
  if (bytes.length > 4 * words) hash = Math.imul(hash ^ tail, 0x01000193);
  return hash >>> 0;
}

/** Writes the header of a filled buffer. Call it last, since it contains the payload's checksum. */
export function writeHeader(
  target: Uint8Array,
  layout: PackedLayout,
  content: { spec: WeightSpec; hasBias: boolean; levels: Int8Array | null; mark: number },
): void {
  const { spec, hasBias, levels, mark } = content;
  const view = new DataView(target.buffer, target.byteOffset, HEADER_BYTES);
  view.setUint32(0, MAGIC, true);
  view.setUint16(4, VERSION, true);
  view.setUint16(6, layout.id, true);
  view.setUint8(8, spec.bits);
  view.setUint8(9, SCALE_TYPES.indexOf(spec.scaleDType));
  const flags =
    (spec.hasZeros ? FLAG_ZEROS : 0) |
    (hasBias ? FLAG_BIAS : 0) |
    (spec.hasLevels ? FLAG_LEVELS : 0) |
    (spec.hasMinima ? FLAG_MINIMA : 0) |
    (spec.oddZero === undefined ? 0 : FLAG_ODD_ZERO);
  view.setUint16(10, flags, true);
  view.setUint8(12, layout.nr);
  view.setUint8(13, layout.kr);
  view.setUint8(14, layout.sr);
  view.setUint8(15, mark);
  view.setUint32(16, spec.n, true);
  view.setUint32(20, spec.k, true);
  view.setUint32(24, spec.groupSize, true);
  view.setUint32(28, checksum(target.subarray(HEADER_BYTES)), true);
  view.setBigUint64(32, BigInt(target.length), true);
  if (levels) target.set(new Uint8Array(levels.buffer, levels.byteOffset, levels.length), 40);
  view.setInt8(ODD_ZERO, spec.oddZero ?? 0);
  view.setUint32(60, checksum(target.subarray(0, 60)), true);
}

/** Why a codebook cannot be shifted by the zero point of odd scales; null if it can. */
export function shiftRefusal(levels: Int8Array | null, oddZero = 0): string | null {
  const bad = levels?.find((level) => level - oddZero < -128 || level - oddZero > 127);
  return bad === undefined ? null : `expected levels of -128..127 minus ${oddZero}, too, but found ${bad}`;
}

/** Builds the header of panels packed in parts, each of which is a buffer with its own header. */
export class HeaderOfParts {
  readonly #header = new Uint8Array(HEADER_BYTES);
  #hash = FNV_START;
  #mark = 1;

  /** Adds a part, whose panels follow those of the part before. */
  add(part: Uint8Array): void {
    this.#header.set(part.subarray(0, HEADER_BYTES));
    this.#mark &= part[15]!;
    this.#hash = checksum(part.subarray(HEADER_BYTES), this.#hash);
  }

  /** The header of all `n` rows; `byteLength` includes it. */
  finish(n: number, byteLength: number): Uint8Array {
    const view = new DataView(this.#header.buffer);
    view.setUint8(15, this.#mark);
    view.setUint32(16, n, true);
    view.setUint32(28, this.#hash, true);
    view.setBigUint64(32, BigInt(byteLength), true);
    view.setUint32(60, checksum(this.#header.subarray(0, 60)), true);
    return this.#header;
  }
}

/** Byte length in a header, which is not checked. */
export function storedByteLength(bytes: Uint8Array): number {
  return Number(new DataView(bytes.buffer, bytes.byteOffset, HEADER_BYTES).getBigUint64(32, true));
}

/** Byte length of the packed weights that begin here, if the header's checksum is right; null otherwise. */
export function packedLength(bytes: Uint8Array): number | null {
  if (bytes.length < HEADER_BYTES) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, HEADER_BYTES);
  if (view.getUint32(0, true) !== MAGIC || view.getUint32(60, true) !== checksum(bytes.subarray(0, 60))) return null;
  const length = storedByteLength(bytes);
  return length >= HEADER_BYTES && length <= bytes.length ? length : null;
}

/**
 * Reads and checks a header. ShapeError when the bytes are not packed weights of this version or are truncated. `length` is
 * that of the whole buffer; `bytes` may be only its start.
 */
export function readHeader(bytes: Uint8Array, length = bytes.length): PackedHeader {
  if (bytes.length < HEADER_BYTES)
    throw new ShapeError(`packed weights: expected at least ${HEADER_BYTES} bytes but found ${bytes.length}`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, HEADER_BYTES);
  const magic = view.getUint32(0, true);
  if (magic !== MAGIC)
    throw new ShapeError(`packed weights: expected magic 0x${MAGIC.toString(16)} but found 0x${magic.toString(16)}`);
  if (view.getUint32(60, true) !== checksum(bytes.subarray(0, 60)))
    throw new ShapeError("packed weights: the header's checksum does not match; the buffer is damaged");
  const version = view.getUint16(4, true);
  if (version !== VERSION)
    throw new ShapeError(`packed weights: expected version ${VERSION} but found ${version}; export the model again`);
  const byteLength = storedByteLength(bytes);
  if (byteLength !== length)
    throw new ShapeError(`packed weights: the header says ${byteLength} bytes but the buffer has ${length}`);
  const bits = view.getUint8(8);
  const scaleType = view.getUint8(9);
  const scaleDType = SCALE_TYPES[scaleType];
  const flags = view.getUint16(10, true);
  if (!scaleDType || flags > FLAGS_MAX)
    throw new ShapeError(`packed weights: scale type ${scaleType} with flags ${flags} is not known to this version`);
  const hasLevels = (flags & FLAG_LEVELS) !== 0;
  const spec: WeightSpec = {
    bits,
    n: view.getUint32(16, true),
    k: view.getUint32(20, true),
    groupSize: view.getUint32(24, true),
    hasZeros: (flags & FLAG_ZEROS) !== 0,
    hasLevels,
    ...((flags & FLAG_MINIMA) !== 0 && { hasMinima: true }),
    scaleDType,
    ...((flags & FLAG_ODD_ZERO) !== 0 && { oddZero: view.getInt8(ODD_ZERO) }),
  };
  if (bits < 1 || bits > 8 || spec.n === 0 || spec.k === 0 || spec.groupSize === 0)
    throw new ShapeError(
      `packed weights: expected 1..8 bits and positive n, k and group size but found ${bits} bits, n ${spec.n}, k ${spec.k}, group size ${spec.groupSize}`,
    );
  const levels = hasLevels ? new Int8Array(bytes.slice(40, 40 + Math.min(LEVELS_MAX, 1 << bits)).buffer) : null;
  const refusal = shiftRefusal(levels, spec.oddZero);
  if (refusal) throw new ShapeError(`packed weights: ${refusal}`);
  const hasBias = (flags & FLAG_BIAS) !== 0;
  const layoutId = view.getUint16(6, true);
  const tile = { nr: view.getUint8(12), kr: view.getUint8(13), sr: view.getUint8(14) };
  const payloadChecksum = view.getUint32(28, true);
  return { layoutId, tile, spec, hasBias, levels, byteLength, payloadChecksum };
}
