/** Random access to the bytes of a file, a blob or a buffer, and a sequential sink; the same in Node and the browser. */
import { shown } from "./arguments.ts";
import { InvalidFileError } from "./errors.ts";

export interface ByteSource {
  /** Path or URL, for messages. */
  readonly name: string;
  /** Number of bytes. */
  readonly size: number;
  /** Reads `length` bytes at `offset`, not to be written to; InvalidFileError when they reach past the end. */
  read(offset: number, length: number): Promise<Uint8Array>;
  /**
   * Fills `target`, which may be shared memory, with the bytes at `offset`; InvalidFileError when they reach past the
   * end. Absent where bytes are had by `read` only.
   */
  readInto?(offset: number, target: Uint8Array): Promise<void>;
  /** Closes what is read. */
  close(): Promise<void>;
}

/** Receives bytes in order. */
export interface ByteSink {
  /** Bytes written so far. */
  readonly position: number;
  /** Appends bytes. */
  write(bytes: Uint8Array): Promise<void>;
  /** Replaces bytes from `position` on that were written since the last mark. */
  rewrite(position: number, bytes: Uint8Array): Promise<void>;
  /** Notes that what was written until now need not be written again if the work is interrupted. */
  mark?(): Promise<void>;
}

/** Bytes in parts, of which the first ones, a head that says something of the others, are known last. */
export interface HeadedParts {
  /** How many bytes the head has. */
  readonly headBytes: number;
  /** What follows the head, in order. */
  readonly rest: AsyncIterable<Uint8Array>;
  /** The head, once the rest was taken. */
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
