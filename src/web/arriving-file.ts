/** A file that is read while its bytes arrive in order. */
import { type ByteSource, checkRange } from "../byte-source.ts";
import { InvalidFileError } from "../errors.ts";

/**
 * Reads wait for bytes that have not arrived. `readInto` drops the bytes that it has copied, so that memory holds them once; they
 * cannot be read again. All others are kept until the file is closed.
 */
export class ArrivingFile implements ByteSource {
  readonly name: string;
  readonly size: number;
  readonly #onClose: () => void;
  /** Kept bytes, by offset. */
  #parts: { readonly start: number; readonly bytes: Uint8Array }[] = [];
  #length = 0;
  #failure: unknown = null;
  #isClosed = false;
  #waiting = new Set<() => void>();
  #ask = () => {};

  /** `totalBytes`: size of the file, 0 if unknown. */
  constructor(name: string, totalBytes: number, onClose = () => {}) {
    this.name = name;
    this.#onClose = onClose;
    this.size = totalBytes || Number.MAX_SAFE_INTEGER;
  }

  /** Number of bytes in memory. */
  get bufferedBytes(): number {
    return this.#parts.reduce((sum, { bytes }) => sum + bytes.length, 0);
  }

  /** Appends bytes, whose buffer then belongs to the file. Resolves when a read waits for more bytes, or the file is closed. */
  append(bytes: Uint8Array): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    this.#parts.push({ start: this.#length, bytes });
    this.#length += bytes.length;
    return new Promise((resolve) => {
      this.#ask = resolve;
      this.#wake();
    });
  }

  /** Marks the end: all bytes have arrived, or `error` says why no more will. Waiting reads fail. */
  end(error?: unknown): void {
    this.#failure ??=
      error ?? new InvalidFileError(this.name, `ends at byte ${this.#length}; it is truncated or damaged`);
    this.#wake();
  }

  async read(offset: number, length: number): Promise<Uint8Array> {
    checkRange(this.name, this.size, offset, length);
    while (this.#length < offset + length) await this.#more();
    const result = new Uint8Array(length);
    let count = 0;
    for (const { start, bytes } of this.#parts) {
      const piece = bytes.subarray(Math.max(0, offset - start), Math.max(0, offset + length - start));
      if (piece.length === 0) continue;
      result.set(piece, Math.max(0, start - offset));
      count += piece.length;
    }
    if (count < length) throw this.#dropped(offset);
    return result;
  }

  async readInto(offset: number, target: Uint8Array): Promise<void> {
    checkRange(this.name, this.size, offset, target.length);
    for (let done = 0; done < target.length; ) {
      const piece = this.#takeOut(offset + done, target.length - done);
      if (piece) {
        target.set(piece, done);
        done += piece.length;
      } else if (offset + done < this.#length) throw this.#dropped(offset + done);
      else await this.#more();
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#parts = [];
    this.#ask();
    this.end();
    this.#onClose();
  }

  /** Removes up to `length` kept bytes at an offset and returns them; null if there are none. */
  #takeOut(offset: number, length: number): Uint8Array | null {
    // Searches from the end: reads usually want the latest parts, while the first ones are never read.
    const index = this.#parts.findLastIndex(({ start, bytes }) => start <= offset && offset < start + bytes.length);
    if (index < 0) return null;
    const { start, bytes } = this.#parts[index]!;
    const first = offset - start;
    const end = Math.min(first + length, bytes.length);
    const left = [];
    // A copy, since a short part would keep its whole buffer alive.
    if (first > 0) left.push({ start, bytes: bytes.slice(0, first) });
    if (end < bytes.length) left.push({ start: start + end, bytes: bytes.subarray(end) });
    this.#parts.splice(index, 1, ...left);
    return bytes.subarray(first, end);
  }

  #more(): Promise<void> {
    if (this.#failure) throw this.#failure;
    const woken = new Promise<void>((resolve) => this.#waiting.add(resolve));
    this.#ask();
    return woken;
  }

  #wake(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  #dropped(offset: number): InvalidFileError {
    return new InvalidFileError(this.name, `expected byte ${offset} to be read once but it is read again`);
  }
}
