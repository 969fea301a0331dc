/** Lists the files of an uncompressed zip archive, which is how PyTorch writes its files. */
import type { ByteSource } from "../../byte-source.ts";
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import { escapedUtf8 } from "../utf8.ts";

/** A file in the archive, and where its bytes are. */
export interface ZipEntry {
  readonly name: string;
  readonly offset: number;
  readonly byteLength: number;
}

const END = 0x06054b50;
const END64 = 0x06064b50;
const LOCATOR64 = 0x07064b50;
const CENTRAL = 0x02014b50;
const LOCAL = 0x04034b50;
const END_BYTES = 22;
const LOCATOR_BYTES = 20;
const END64_BYTES = 56;
const CENTRAL_BYTES = 46;
const LOCAL_BYTES = 30;
const COMMENT_MAX = 65535;
/** This value means that the size is in the ZIP64 extra field. */
const IN_EXTRA = 0xffffffff;
const DIRECTORY_MAX = 1 << 27;

interface Directory {
  readonly offset: number;
  readonly byteLength: number;
  readonly count: number;
}

/**
 * Reads the entries in the order of the directory. InvalidFileError for an invalid zip, UnsupportedError for compressed files.
 */
export async function readZip(source: ByteSource): Promise<ZipEntry[]> {
  const directory = await findDirectory(source);
  if (directory.byteLength > DIRECTORY_MAX || directory.count * CENTRAL_BYTES > directory.byteLength)
    throw new InvalidFileError(
      source.name,
      `zip directory of ${directory.count} files in ${directory.byteLength} bytes`,
    );
  const view = viewOf(await source.read(directory.offset, directory.byteLength));
  const entries: ZipEntry[] = [];
  let at = 0;
  for (let i = 0; i < directory.count; i++) {
    if (at + CENTRAL_BYTES > view.byteLength || view.getUint32(at, true) !== CENTRAL)
      throw new InvalidFileError(source.name, "zip directory is cut off");
    const { entry, length, localOffset } = readCentral(source.name, view, at);
    entries.push({ ...entry, offset: await dataOffset(source, localOffset) });
    at += length;
  }
  return entries;
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

async function findDirectory(source: ByteSource): Promise<Directory> {
  const tail = Math.min(source.size, END_BYTES + COMMENT_MAX + LOCATOR_BYTES);
  const start = source.size - tail;
  const view = viewOf(await source.read(start, tail));
  let at = tail - END_BYTES;
  while (at >= 0 && view.getUint32(at, true) !== END) at--;
  if (at < 0)
    throw new InvalidFileError(source.name, "expected a zip archive, as PyTorch writes, but found no directory");
  const locator = at - LOCATOR_BYTES;
  if (locator >= 0 && view.getUint32(locator, true) === LOCATOR64) {
    const end = viewOf(await source.read(number64(source.name, view, locator + 8), END64_BYTES));
    if (end.getUint32(0, true) !== END64)
      throw new InvalidFileError(source.name, "zip64 directory is not where it is said");
    const field = (offset: number) => number64(source.name, end, offset);
    return { count: field(32), byteLength: field(40), offset: field(48) };
  }
  return {
    count: view.getUint16(at + 10, true),
    byteLength: view.getUint32(at + 12, true),
    offset: view.getUint32(at + 16, true),
  };
}

function number64(file: string, view: DataView, at: number): number {
  const value = Number(view.getBigUint64(at, true));
  if (!Number.isSafeInteger(value)) throw new InvalidFileError(file, `zip offset ${value} is beyond the file`);
  return value;
}

function readCentral(file: string, view: DataView, at: number) {
  const [nameLength, extraLength, commentLength] = [28, 30, 32].map((offset) => view.getUint16(at + offset, true));
  const length = CENTRAL_BYTES + nameLength! + extraLength! + commentLength!;
  if (at + length > view.byteLength) throw new InvalidFileError(file, "zip directory is cut off");
  const bytes = new Uint8Array(view.buffer, view.byteOffset + at + CENTRAL_BYTES, nameLength!);
  const name = escapedUtf8(bytes);
  if (view.getUint16(at + 10, true) !== 0)
    throw new UnsupportedError(`${file}: ${name} is compressed; PyTorch stores its files uncompressed`);
  const large = largeFields(file, view, at + CENTRAL_BYTES + nameLength!, extraLength!);
  const field = (value: number) => (value === IN_EXTRA ? large() : value);
  // The extra field has the sizes in this order, each only if its own field refers to it.
  field(view.getUint32(at + 24, true));
  const byteLength = field(view.getUint32(at + 20, true));
  const localOffset = field(view.getUint32(at + 42, true));
  return { entry: { name, byteLength }, length, localOffset };
}

/** Returns a function that reads the next 64-bit size of the ZIP64 extra field. */
function largeFields(file: string, view: DataView, start: number, length: number): () => number {
  let at = start;
  const end = start + length;
  while (at + 4 <= end && view.getUint16(at, true) !== 1) at += 4 + view.getUint16(at + 2, true);
  const last = at + 4 <= end ? Math.min(end, at + 4 + view.getUint16(at + 2, true)) : at;
  let next = at + 4;
  return () => {
    if (next + 8 > last) throw new InvalidFileError(file, "zip directory has a large file without its size");
    next += 8;
    return number64(file, view, next - 8);
  };
}

/** Offset of a file's bytes, after its local header, whose lengths may differ from the directory's. */
async function dataOffset(source: ByteSource, at: number): Promise<number> {
  const view = viewOf(await source.read(at, LOCAL_BYTES));
  if (view.getUint32(0, true) !== LOCAL) throw new InvalidFileError(source.name, `zip has no file at ${at}`);
  return at + LOCAL_BYTES + view.getUint16(26, true) + view.getUint16(28, true);
}
