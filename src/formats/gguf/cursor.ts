/** Reads the fields of a GGUF header in order, from the part of the file that is in memory. */
import { InvalidFileError } from "../../errors.ts";
import { escapedUtf8 } from "../utf8.ts";

/** Thrown when the part of the file in memory ends before the header does. */
export class OutOfBytes extends Error {}

function exact(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

export class GgufCursor {
  readonly file: string;
  /** Number of array elements read so far, which the reader limits. */
  elements = 0;
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  /** Position that no header can pass. */
  readonly #limit: number;
  #position = 0;

  constructor(file: string, bytes: Uint8Array, limit: number) {
    this.file = file;
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#limit = limit;
  }

  get position(): number {
    return this.#position;
  }

  /** Reads a count of items of at least `leastBytes` each, which must fit the rest of the file. */
  count(what: string, leastBytes: number): number {
    const count = this.#view64();
    const rest = this.#limit - this.#position;
    if (count > BigInt(Math.floor(rest / leastBytes)))
      throw new InvalidFileError(this.file, `${what} ${count} does not fit the ${rest} bytes after it`);
    return Number(count);
  }

  u8(): number {
    return this.#view.getUint8(this.#take(1));
  }

  u16(): number {
    return this.#view.getUint16(this.#take(2), true);
  }

  u32(): number {
    return this.#view.getUint32(this.#take(4), true);
  }

  f32(): number {
    return this.#view.getFloat32(this.#take(4), true);
  }

  f64(): number {
    return this.#view.getFloat64(this.#take(8), true);
  }

  /** Reads an unsigned integer; InvalidFileError beyond 2^53, where numbers are no longer exact. */
  size(): number {
    const size = this.u64();
    if (typeof size === "bigint") throw new InvalidFileError(this.file, `integer ${size} is beyond 2^53`);
    return size;
  }

  /** Reads a 64-bit integer, as a bigint beyond 2^53. */
  u64(): number | bigint {
    return exact(this.#view64());
  }

  /** Reads a 64-bit integer, as a bigint beyond 2^53. */
  i64(): number | bigint {
    return exact(BigInt.asIntN(64, this.#view64()));
  }

  /** Reads a string; bytes that are not UTF-8 are kept as in `escapedUtf8`, since vocabularies may have parts of characters. */
  string(): string {
    const length = this.count("string length", 1);
    const start = this.#take(length);
    return escapedUtf8(this.#bytes.subarray(start, start + length));
  }

  #view64(): bigint {
    return this.#view.getBigUint64(this.#take(8), true);
  }

  /** Advances by `length` bytes; returns where they begin. */
  #take(length: number): number {
    const start = this.#position;
    if (start + length > this.#bytes.length) throw new OutOfBytes(`${this.file}: needs ${start + length} bytes`);
    this.#position += length;
    return start;
  }
}
