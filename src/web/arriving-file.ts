/** A file whose bytes come in order while it is read. */
import { type ByteSource, checkRange } from "../byte-source.ts";
import { InvalidFileError } from "../errors.ts";

/**
 * Reads wait for bytes that are not there yet. What `readInto` has read is dropped, so that it is in memory once; it can
 * be read no more. Everything else is held until the file is closed.
 */
export class ArrivingFile implements ByteSource {
  readonly name: string;
  readonly size: number;
  readonly #onClose: () => void;
  /** What is held, by place. */
  #parts: { readonly start: number; readonly bytes: Uint8Array }[] = [];
  #length = 0;
  #failure: unknown = null;
  #isClosed = false;
  #waiting = new Set<() => void>();
  #ask = () => {};

  /** `totalBytes`: 0 where it is not known. */
  constructor(name: string, totalBytes: number, onClose = () => {}) {
    this.name = name;
    this.#onClose = onClose;
    this.size = totalBytes || Number.MAX_SAFE_INTEGER;
  }

  /** Bytes that are held. */
  get heldBytes(): number {
    return this.#parts.reduce((sum, { bytes }) => sum + bytes.length, 0);
  }

  /** Adds the next bytes, which are the file's from then on. Resolves when a read waits for more, or none will. */
  append(bytes: Uint8Array): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    this.#parts.push({ start: this.#length, bytes });
    this.#length += bytes.length;
    return new Promise((resolve) => {
      this.#ask = resolve;
      this.#wake();
    });
  }

  /** Says that all has come, or for what error no more will; reads that wait fail with it. */
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

  /** Takes bytes at an offset, at most `length`, out of what is held; null when they are not. */
  #takeOut(offset: number, length: number): Uint8Array | null {
    // The last parts are those that are wanted, the first what nobody asks for.
    const index = this.#parts.findLastIndex(({ start, bytes }) => start <= offset && offset < start + bytes.length);
    if (index < 0) return null;
    const { start, bytes } = this.#parts[index]!;
    const first = offset - start;
    const end = Math.min(first + length, bytes.length);
    const left = [];
    // A copy, since a part of a few bytes would keep the whole buffer that they came in.
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
