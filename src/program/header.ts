/**
 * The first bytes of a `.pte` file: FlatBuffer root offset, identifier, and the extended header that says where the
 * program ends and the segments begin. Files without segments may lack the extended header.
 *
 *     0 u32 root | 4 "ET12" | 8 "eh00" | 12 u32 length = 32
 *     16 u64 program bytes | 24 u64 segment base | 32 u64 segment bytes
 */
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { FILE_IDENTIFIER } from "./schema.ts";

const MAGIC = "eh00";
/** Where the extended header stands, after the root offset and the identifier. */
const START = 8;
/** Bytes of the extended header. */
export const HEADER_BYTES = 32;
/** Length before the field of segment bytes was added. */
const BYTES_MIN = 24;

/** Bytes of a file up to the end of the extended header. */
export const HEADER_END = START + HEADER_BYTES;

export interface FileHeader {
  /** Bytes of the FlatBuffer with the headers in it, from the start of the file. */
  readonly programBytes: number;
  /** Where offsets of segments count from; 0 in a file without segments. */
  readonly segmentBase: number;
  /** Bytes from the base to the end of the last segment; 0 also in files older than this field. */
  readonly segmentBytes: number;
}

/**
 * Inserts the extended header into a finished FlatBuffer, after its identifier. Later bytes move by 32, a multiple of every
 * alignment in the schema, and only the root offset counts across the gap.
 */
export function insertHeader(flatbuffer: Uint8Array, header: FileHeader): Uint8Array {
  const bytes = new Uint8Array(flatbuffer.length + HEADER_BYTES);
  bytes.set(flatbuffer.subarray(0, START));
  bytes.set(flatbuffer.subarray(START), START + HEADER_BYTES);
  bytes.set(new TextEncoder().encode(MAGIC), START);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, view.getUint32(0, true) + HEADER_BYTES, true);
  view.setUint32(12, HEADER_BYTES, true);
  view.setBigUint64(16, BigInt(header.programBytes), true);
  view.setBigUint64(24, BigInt(header.segmentBase), true);
  view.setBigUint64(32, BigInt(header.segmentBytes), true);
  return bytes;
}

/**
 * Reads the header from the first `HEADER_END` bytes (fewer if the file is shorter) of a file of `size` bytes. A file
 * without the extended header has no segments: ExecuTorch's exporter writes none then. InvalidFileError when it is no
 * program or shorter than its header says; UnsupportedError for other versions.
 */
export function parseHeader(file: string, start: Uint8Array, size: number): FileHeader {
  if (start.length < HEADER_END)
    throw new InvalidFileError(
      file,
      `expected a .pte program but found only ${size} bytes; it is truncated or no program`,
    );
  checkIdentifier(file, textAt(start, 4));
  if (textAt(start, START) !== MAGIC) return { programBytes: size, segmentBase: 0, segmentBytes: 0 };
  const view = new DataView(start.buffer, start.byteOffset, start.byteLength);
  const length = view.getUint32(12, true);
  if (length < BYTES_MIN)
    throw new InvalidFileError(file, `its extended header has ${length} bytes, expected ${HEADER_BYTES}`);
  const number = (offset: number, name: string): number => {
    const value = Number(view.getBigUint64(offset, true));
    if (!Number.isSafeInteger(value)) throw new InvalidFileError(file, `its header gives ${value} as ${name}`);
    return value;
  };
  const header = {
    programBytes: number(16, "size of the program"),
    segmentBase: number(24, "start of the segments"),
    segmentBytes: length < HEADER_BYTES ? 0 : number(32, "size of the segments"),
  };
  checkSizes(file, header, size);
  return header;
}

function checkSizes(file: string, { programBytes, segmentBase, segmentBytes }: FileHeader, size: number): void {
  if (programBytes < HEADER_END)
    throw new InvalidFileError(file, `its header gives ${programBytes} as size of the program`);
  if (segmentBase > 0 && segmentBase < programBytes)
    throw new InvalidFileError(
      file,
      `its segments start at byte ${segmentBase}, inside the program of ${programBytes}`,
    );
  const expected = Math.max(programBytes, segmentBase + segmentBytes);
  if (expected > size)
    throw new InvalidFileError(
      file,
      `expected ${expected} bytes but found ${size}: it is truncated; copy or export it again`,
    );
}

function checkIdentifier(file: string, found: string): void {
  if (found === FILE_IDENTIFIER) return;
  const expected = `expected an ExecuTorch program, which has the identifier "${FILE_IDENTIFIER}" at byte 4`;
  if (/^ET\d\d$/.test(found))
    throw new UnsupportedError(`${file}: ${expected}, but found "${found}", another version of the format`);
  const hint = found.startsWith("FT") ? ": a .ptd file of tensors, not the .pte it belongs to" : "";
  throw new InvalidFileError(file, `${expected}, but found ${JSON.stringify(found)}${hint}`);
}

function textAt(bytes: Uint8Array, offset: number): string {
  return String.fromCharCode(...bytes.subarray(offset, offset + 4));
}
