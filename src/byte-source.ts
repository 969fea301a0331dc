/** Random access to the bytes of a file, blob or buffer, and a sequential sink, in both Node and browsers. */
import { shown } from "./arguments.ts";
import { InvalidFileError } from "./errors.ts";

export interface ByteSource {
  /** Path or URL, for messages. */
  readonly name: string;
  /** Number of bytes. */
  readonly size: number;
  /** Reads `length` bytes at `offset`, which must not be written to. InvalidFileError when they reach past the end. */
  read(offset: number, length: number): Promise<Uint8Array>;
  /**
   * Fills `target`, which may be shared memory, with the bytes at `offset`. InvalidFileError when they reach past the end.
   * Absent where only `read` is possible.
   */
  readInto?(offset: number, target: Uint8Array): Promise<void>;
  /** Closes the source. */
  close(): Promise<void>;
}

/** Receives bytes in order. */
export interface ByteSink {
  /** Bytes written so far. */
  readonly position: number;
  /** Appends bytes. */
  write(bytes: Uint8Array): Promise<void>;
  /** Overwrites bytes from `position` on, which must have been written since the last mark. */
  rewrite(position: number, bytes: Uint8Array): Promise<void>;
  /** Marks all bytes so far as finished, so that they are kept if the work is interrupted. */
  mark?(): Promise<void>;
}

/** Bytes in parts where a header, the first bytes, is known only at the end. */
export interface HeadedParts {
  /** Bytes of the header. */
  readonly headBytes: number;
  /** The bytes after the header, in order. */
  readonly rest: AsyncIterable<Uint8Array>;
  /** The header, once the rest was read. */
  head(): Uint8Array;
}

/** A source over bytes in memory; `read` copies. */
export function memorySource(name: string, bytes: Uint8Array): ByteSource {
  return {
    name,
    size: bytes.length,
    async read(offset, length) {
      checkRange(name, bytes.length, offset, length);
      return new Uint8Array(bytes.subarray(offset, offset + length)); // not slice: of a Buffer, that is a view
    },
    async readInto(offset, target) {
      checkRange(name, bytes.length, offset, target.length);
      target.set(bytes.subarray(offset, offset + target.length));
    },
    async close() {},
  };
}

/** Throws InvalidFileError unless `offset .. offset + length` lies within `size` bytes. */
export function checkRange(name: string, size: number, offset: number, length: number): void {
  const whole = Number.isSafeInteger(offset) && Number.isSafeInteger(length) && offset >= 0 && length >= 0;
  if (!whole || offset + length > size)
    throw new InvalidFileError(
      name,
      `expected bytes ${shown(offset)} to ${whole ? offset + length : `${shown(length)} more`} but the file has ${size}`,
    );
}
