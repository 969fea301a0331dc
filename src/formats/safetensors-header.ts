/**
 * Parses the header of a safetensors file: an 8-byte little-endian length, a JSON object, then the data that it indexes. Checks
 * everything that the format promises before any size in it is used. Reads no tensor data.
 */
import { byteSize, type DType, dtypes } from "../dtype.ts";
import { InvalidFileError } from "../errors.ts";
import { decodeUtf8, describe, duplicateKey, isObject, parseObject, quote } from "./json.ts";

/** Largest header that the format allows. */
export const HEADER_MAX_BYTES = 100_000_000;
/** Bytes of the length before the header. */
export const PREFIX_BYTES = 8;
/** The header's key that is not a tensor but a map of strings, or null, as the format's own reader allows. */
export const METADATA_KEY = "__metadata__";

const dtypeOf: ReadonlyMap<string, DType> = new Map(dtypes.map((dtype) => [storedName(dtype), dtype]));

/** Bits of an element of types that have no typed array here. */
const foreignBits: ReadonlyMap<string, number> = new Map([
  ["F4", 4],
  ["F6_E2M3", 6],
  ["F6_E3M2", 6],
  ["F8_E4M3", 8],
  ["F8_E5M2", 8],
  ["F8_E8M0", 8],
  ["F8_E4M3FNUZ", 8],
  ["F8_E5M2FNUZ", 8],
  ["C64", 64],
]);

export interface StoredTensor {
  readonly name: string;
  /** Name of the type in the file. */
  readonly storedType: string;
  /** Element type; null for one that cannot be read. */
  readonly dtype: DType | null;
  readonly shape: readonly number[];
  /** Byte offset from the start of the data, not of the file. */
  readonly begin: number;
  readonly end: number;
}

export interface Header {
  /** Tensors in the order of their data. */
  readonly tensors: readonly StoredTensor[];
  readonly metadata: ReadonlyMap<string, string>;
}

/** Name of a dtype in the file, such as `F32` or `BOOL`. */
export function storedName(dtype: DType): string {
  return dtype.toUpperCase();
}

/** Reads the header's length from the first 8 bytes of a file of `fileSize` bytes. */
export function headerLength(file: string, prefix: Uint8Array, fileSize: number): number {
  const length = Number(new DataView(prefix.buffer, prefix.byteOffset, PREFIX_BYTES).getBigUint64(0, true));
  const expected = `its first ${PREFIX_BYTES} bytes promise a header of ${length} bytes`;
  if (length > HEADER_MAX_BYTES)
    throw new InvalidFileError(
      file,
      `${expected}, more than the ${HEADER_MAX_BYTES} that safetensors allows; is it another format?`,
    );
  if (length > fileSize - PREFIX_BYTES)
    throw new InvalidFileError(
      file,
      `${expected} but only ${fileSize - PREFIX_BYTES} follow; is the download complete?`,
    );
  return length;
}

/** Parses the header's bytes. `dataSize` is the number of bytes after it, each of which must belong to exactly one tensor. */
export function parseHeader(file: string, bytes: Uint8Array, dataSize: number): Header {
  const what = "the safetensors header";
  if (bytes[0] !== "{".charCodeAt(0)) throw new InvalidFileError(file, `${what} does not begin with "{"`);
  const text = decodeUtf8(file, what, bytes);
  const header = parseObject(file, what, text);
  const duplicate = duplicateKey(text, 2);
  if (duplicate !== null) throw new InvalidFileError(file, `${what} has ${quote(duplicate)} twice`);
  const { [METADATA_KEY]: metadata, ...entries } = header;
  const tensors = Object.entries(entries).map(([name, entry]) => parseEntry(file, name, entry));
  tensors.sort((a, b) => a.begin - b.begin || a.end - b.end);
  checkCoverage(file, tensors, dataSize);
  return { tensors, metadata: parseMetadata(file, metadata) };
}

function parseMetadata(file: string, metadata: unknown): Map<string, string> {
  if (metadata === undefined || metadata === null) return new Map();
  if (!isObject(metadata))
    throw new InvalidFileError(file, `${METADATA_KEY} should be an object but is ${describe(metadata)}`);
  return new Map(
    Object.entries(metadata).map(([key, value]) => {
      if (typeof value !== "string")
        throw new InvalidFileError(file, `${METADATA_KEY}: ${quote(key)} should be a string but is ${describe(value)}`);
      return [key, value];
    }),
  );
}

function parseEntry(file: string, name: string, entry: unknown): StoredTensor {
  const fail = (problem: string) => new InvalidFileError(file, `tensor ${quote(name)}: ${problem}`);
  if (!isObject(entry)) throw fail(`its header entry should be an object but is ${describe(entry)}`);
  const { dtype: storedType, shape, data_offsets: offsets } = entry;
  if (typeof storedType !== "string") throw fail(`dtype should be a string but is ${describe(storedType)}`);
  const dtype = dtypeOf.get(storedType) ?? null;
  const bits = dtype ? byteSize(dtype) * 8 : foreignBits.get(storedType);
  if (bits === undefined) throw fail(`dtype ${quote(storedType)} is none of safetensors'`);
  if (!Array.isArray(shape)) throw fail(`shape should be an array but is ${describe(shape)}`);
  for (const size of shape)
    if (!isSize(size)) throw fail(`shape should hold integers from 0 to 2^53 but has ${describe(size)}`);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize))
    throw fail("data_offsets should be two integers from 0 to 2^53");
  const [begin, end] = offsets as [number, number];
  if (end < begin) throw fail(`its data ends at ${end}, before it begins at ${begin}`);
  const byteLength = byteLengthOf(shape as number[], bits);
  if (byteLength === null)
    throw fail(`shape of ${shape.length} sizes and dtype ${storedType} give no whole size in bytes`);
  if (end - begin !== byteLength)
    throw fail(`dtype ${storedType} and its shape need ${byteLength} bytes but data_offsets give ${end - begin}`);
  return { name, storedType, dtype, shape: shape as number[], begin, end };
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Bytes of a tensor; null when its bits exceed 2^53 or are no whole bytes. */
function byteLengthOf(shape: readonly number[], bits: number): number | null {
  let total = bits;
  for (const size of shape) {
    total *= size;
    if (!Number.isSafeInteger(total)) return null;
  }
  return total % 8 === 0 ? total / 8 : null;
}

/** Checks that the tensors cover the data exactly once, from the first to the last byte. */
function checkCoverage(file: string, tensors: readonly StoredTensor[], dataSize: number): void {
  let covered = 0;
  let previous = "the header";
  for (const { name, begin, end } of tensors) {
    const tensor = `tensor ${quote(name)}`;
    if (begin < covered)
      throw new InvalidFileError(file, `${tensor} begins at ${begin}, inside ${previous} that ends at ${covered}`);
    if (begin > covered)
      throw new InvalidFileError(
        file,
        `${begin - covered} bytes between ${previous} and ${tensor} belong to no tensor`,
      );
    if (end > dataSize)
      throw new InvalidFileError(
        file,
        `${tensor} ends at ${end} but the data has ${dataSize} bytes; is the download complete?`,
      );
    covered = end;
    previous = tensor;
  }
  if (covered !== dataSize)
    throw new InvalidFileError(file, `${dataSize - covered} bytes after ${previous} belong to no tensor`);
}
