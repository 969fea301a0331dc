/** Decompresses bodies of requests, up to a bounded size. */
import { promisify } from "node:util";
import { brotliDecompress, gunzip, inflate } from "node:zlib";
import { Decompress } from "fzstd";
import { ApiError } from "./errors.ts";

/** Decompresses to at most `most` bytes; an error with code `TOO_LARGE` for more. */
type Unpack = (bytes: Uint8Array, most: number) => Promise<Uint8Array>;

/** Code of zlib's error for output beyond the limit. */
const TOO_LARGE = "ERR_BUFFER_TOO_LARGE";

function tooLarge(message: string): Error {
  return Object.assign(new Error(message), { code: TOO_LARGE });
}

type Zlib = (bytes: Uint8Array, options: { maxOutputLength: number }) => Promise<Uint8Array>;

function zlib(unpack: Zlib): Unpack {
  return (bytes, most) => unpack(bytes, { maxOutputLength: most });
}

const gzip = zlib(promisify(gunzip) as Zlib);

const unpackers: Readonly<Record<string, Unpack>> = {
  gzip,
  "x-gzip": gzip,
  deflate: zlib(promisify(inflate) as Zlib),
  br: zlib(promisify(brotliDecompress) as Zlib),
  zstd: async (bytes, most) => unpackZstd(bytes, most),
};

const NAMES = "gzip, deflate, br or zstd";

/** Decompresses a body by its content-encoding. ApiError 400, 413 or 415 for what cannot be decompressed. */
export async function unpacked(bytes: Uint8Array, encodings: string, most: number): Promise<Uint8Array> {
  const names = encodings.split(",").map((name) => name.trim().toLowerCase());
  let found = bytes;
  // Encodings are listed in the order in which they were applied.
  for (const name of names.reverse())
    if (name !== "" && name !== "identity") found = await unpackOne(found, name, most);
  return found;
}

async function unpackOne(bytes: Uint8Array, name: string, most: number): Promise<Uint8Array> {
  const unpack = Object.hasOwn(unpackers, name) ? unpackers[name]! : null;
  if (!unpack)
    throw new ApiError(415, `content-encoding: expected ${NAMES} but found ${JSON.stringify(name.slice(0, 40))}`, {
      ...{ code: "unsupported_encoding" },
    });
  try {
    return await unpack(bytes, most);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === TOO_LARGE)
      throw new ApiError(413, `the body is larger than ${most} bytes`, { code: "body_too_large", cause });
    throw new ApiError(400, `body: expected ${name}, as content-encoding says`, { cause });
  }
}

function unpackZstd(bytes: Uint8Array, most: number): Uint8Array {
  const parts: Uint8Array[] = [];
  let size = 0;
  for (const frame of framesOf(bytes, most)) {
    const stream = new Decompress((part) => {
      size += part.length;
      if (size > most) throw tooLarge(`more than ${most} bytes`);
      parts.push(part);
    });
    stream.push(frame, true);
  }
  return Buffer.concat(parts);
}

const ZSTD = 0xfd2fb528;
const SKIPPED = 0x184d2a50;

/**
 * The frames of Zstandard data (RFC 8878) with content. An error with code `TOO_LARGE` for a frame whose window, which is
 * allocated first, is larger than `most`.
 */
function* framesOf(bytes: Uint8Array, most: number): Generator<Uint8Array> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < bytes.length; ) {
    const magic = view.getUint32(at, true);
    if ((magic & 0xfffffff0) === SKIPPED) {
      at += 8 + view.getUint32(at + 4, true);
      continue;
    }
    if (magic !== ZSTD) throw new SyntaxError("no frame");
    const { window, headerEnd, checksum } = frameHeader(view, at);
    if (window > most) throw tooLarge(`a window of more than ${most} bytes`);
    let end = headerEnd;
    for (let isLast = false; !isLast; ) {
      const header = view.getUint16(end, true) + (view.getUint8(end + 2) << 16);
      isLast = (header & 1) === 1;
      const isRun = ((header >> 1) & 3) === 1;
      end += 3 + (isRun ? 1 : header >> 3);
    }
    yield bytes.subarray(at, end + checksum);
    at = end + checksum;
  }
}

function frameHeader(view: DataView, at: number) {
  const flags = view.getUint8(at + 4);
  const isSingle = (flags & 0x20) !== 0;
  const checksum = (flags & 4) === 0 ? 0 : 4;
  const dictionary = [0, 1, 2, 4][flags & 3]!;
  const sizeBytes = [isSingle ? 1 : 0, 2, 4, 8][flags >> 6]!;
  const sizeAt = at + 5 + (isSingle ? 0 : 1) + dictionary;
  const headerEnd = sizeAt + sizeBytes;
  if (!isSingle) {
    const descriptor = view.getUint8(at + 5);
    const base = 2 ** (10 + (descriptor >> 3));
    return { window: base + (base / 8) * (descriptor & 7), headerEnd, checksum };
  }
  if (sizeBytes === 1) return { window: view.getUint8(sizeAt), headerEnd, checksum };
  if (sizeBytes === 2) return { window: view.getUint16(sizeAt, true) + 256, headerEnd, checksum };
  const low = view.getUint32(sizeAt, true);
  return { window: sizeBytes === 8 ? low + 2 ** 32 * view.getUint32(sizeAt + 4, true) : low, headerEnd, checksum };
}
