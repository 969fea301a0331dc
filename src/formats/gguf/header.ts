/** Reads the header of a GGUF file: metadata and the list of tensors. Every value is checked before it is used. */
import type { ByteSource } from "../../byte-source.ts";
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import { quote } from "../json.ts";
import { GgufCursor, OutOfBytes } from "./cursor.ts";

/** A metadata value; 64-bit integers beyond 2^53 are bigints, so that numbers are exact. */
export type GgufValue = number | bigint | boolean | string | readonly GgufValue[];

export interface GgufTensor {
  readonly name: string;
  /** Type number of ggml. */
  readonly type: number;
  /** Sizes, outermost first. */
  readonly shape: readonly number[];
  /** Byte offset from the start of the tensor data. */
  readonly offset: number;
}

export interface GgufHeader {
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: readonly GgufTensor[];
  /** Byte offset of the tensor data in the file. */
  readonly dataStart: number;
}

const MAGIC = 0x46554747;
const FIRST_READ = 1 << 20;
/** Largest header: large vocabularies take some 10 MB. */
const HEADER_MAX = 1 << 28;
const DIMENSIONS_MAX = 4;
const DEPTH_MAX = 4;
/** Most array elements: far more than any vocabulary needs. */
const ELEMENTS_MAX = 1 << 24;
const ALIGNMENT_DEFAULT = 32;
const ALIGNMENT_MAX = 1 << 20;
/** Least bytes of a metadata entry (key length, type, value), and of an entry of the tensor list. */
const ENTRY_MIN = 13;
const TENSOR_MIN = 24;

/** Reads as much of the file as its header needs. InvalidFileError for a violation of the format. */
export async function readGgufHeader(source: ByteSource): Promise<GgufHeader> {
  const { name: file, size } = source;
  for (let length = Math.min(size, FIRST_READ); ; length = Math.min(size, 4 * length)) {
    try {
      return parseHeader(file, await source.read(0, length), size);
    } catch (error) {
      if (!(error instanceof OutOfBytes)) throw error;
      if (length === size) throw new InvalidFileError(file, `header is cut off after ${size} bytes`, { cause: error });
      if (length >= HEADER_MAX) throw new InvalidFileError(file, `header has more than ${HEADER_MAX} bytes`);
    }
  }
}

function parseHeader(file: string, bytes: Uint8Array, fileSize: number): GgufHeader {
  const cursor = new GgufCursor(file, bytes, Math.min(fileSize, HEADER_MAX));
  if (cursor.u32() !== MAGIC) {
    const found = quote(String.fromCharCode(...bytes.subarray(0, 4)));
    throw new InvalidFileError(file, `does not begin with GGUF, as GGUF files do, but with ${found}`);
  }
  const version = cursor.u32();
  if (version !== 2 && version !== 3)
    throw new UnsupportedError(`${file}: GGUF version ${version} is not supported, only little-endian 2 and 3`);
  const tensorCount = cursor.count("tensor count", TENSOR_MIN);
  const entryCount = cursor.count("metadata count", ENTRY_MIN);
  const metadata = new Map<string, GgufValue>();
  for (let i = 0; i < entryCount; i++) {
    const key = cursor.string();
    if (metadata.has(key)) throw new InvalidFileError(file, `metadata has ${quote(key)} twice`);
    metadata.set(key, readValue(cursor, cursor.u32(), 0));
  }
  const tensors = Array.from({ length: tensorCount }, () => readTensor(file, cursor));
  const twice = new Set<string>();
  for (const { name } of tensors) {
    if (twice.has(name)) throw new InvalidFileError(file, `lists tensor ${quote(name)} twice`);
    twice.add(name);
  }
  const alignment = alignmentOf(file, metadata);
  return { metadata, tensors, dataStart: Math.ceil(cursor.position / alignment) * alignment };
}

function alignmentOf(file: string, metadata: ReadonlyMap<string, GgufValue>): number {
  const alignment = metadata.get("general.alignment") ?? ALIGNMENT_DEFAULT;
  const isPower = typeof alignment === "number" && Number.isInteger(Math.log2(alignment));
  if (!isPower || alignment < 1 || alignment > ALIGNMENT_MAX)
    throw new InvalidFileError(file, `general.alignment: expected a power of two up to ${ALIGNMENT_MAX}`);
  return alignment;
}

function readTensor(file: string, cursor: GgufCursor): GgufTensor {
  const name = cursor.string();
  const dimensions = cursor.u32();
  if (dimensions > DIMENSIONS_MAX)
    throw new InvalidFileError(file, `tensor ${quote(name)} has ${dimensions} dimensions, at most ${DIMENSIONS_MAX}`);
  const shape = Array.from({ length: dimensions }, () => cursor.size()).reverse();
  const count = shape.reduce((product, size) => product * size, 1);
  if (!Number.isSafeInteger(count)) throw new InvalidFileError(file, `tensor ${quote(name)}: sizes [${shape}]`);
  return { name, shape, type: cursor.u32(), offset: cursor.size() };
}

/** Least bytes of an array element, by value type. */
const leastBytes = [1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8] as const;
const STRING = 8;
const ARRAY = 9;

function readValue(cursor: GgufCursor, type: number, depth: number): GgufValue {
  switch (type) {
    case 0:
      return cursor.u8();
    case 1:
      return (cursor.u8() << 24) >> 24;
    case 2:
      return cursor.u16();
    case 3:
      return (cursor.u16() << 16) >> 16;
    case 4:
      return cursor.u32();
    case 5:
      return cursor.u32() | 0;
    case 6:
      return cursor.f32();
    case 7:
      return cursor.u8() !== 0;
    case STRING:
      return cursor.string();
    case ARRAY:
      return readArray(cursor, depth + 1);
    case 10:
      return cursor.u64();
    case 11:
      return cursor.i64();
    case 12:
      return cursor.f64();
    default:
      throw new InvalidFileError(cursor.file, `metadata value of unknown type ${type}`);
  }
}

function readArray(cursor: GgufCursor, depth: number): GgufValue {
  const type = cursor.u32();
  const least = leastBytes[type];
  if (least === undefined || depth > DEPTH_MAX)
    throw new InvalidFileError(cursor.file, `metadata array of unknown type ${type}, or ${depth} deep`);
  const length = cursor.count("array length", least);
  cursor.elements += length;
  if (cursor.elements > ELEMENTS_MAX)
    throw new InvalidFileError(cursor.file, `metadata arrays have more than ${ELEMENTS_MAX} elements`);
  return Array.from({ length }, () => readValue(cursor, type, depth));
}
