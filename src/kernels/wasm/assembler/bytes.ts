/** Writes the bytes of a module, in the format's number encodings. */

const FIRST_CAPACITY = 1 << 14;

/** Bytes that are not shared: `Uint8Array<ArrayBuffer>` since TypeScript 5.7, `Uint8Array` before. */
export type OwnBytes = ReturnType<Uint8Array["slice"]>;

export class ByteWriter {
  #bytes = new Uint8Array(FIRST_CAPACITY);
  #length = 0;

  byte(value: number): void {
    if (this.#length === this.#bytes.length) this.#reserve(1);
    this.#bytes[this.#length++] = value;
  }

  bytes(values: ArrayLike<number>): void {
    this.#reserve(values.length);
    this.#bytes.set(values, this.#length);
    this.#length += values.length;
  }

  /** Unsigned LEB128. */
  unsigned(value: number): void {
    let rest = value;
    for (; rest >= 128; rest = Math.floor(rest / 128)) this.byte((rest % 128) | 128);
    this.byte(rest);
  }

  /** Signed LEB128 of an int32. */
  signed(value: number): void {
    let rest = value;
    for (; rest < -64 || rest >= 64; rest >>= 7) this.byte((rest & 127) | 128);
    this.byte(rest & 127);
  }

  /** Signed LEB128 of an int64. */
  signed64(value: bigint): void {
    let rest = value;
    for (; rest < -64n || rest >= 64n; rest >>= 7n) this.byte(Number(rest & 127n) | 128);
    this.byte(Number(rest & 127n));
  }

  /** Writes a name: its length and its UTF-8. */
  text(value: string): void {
    const encoded = new TextEncoder().encode(value);
    this.unsigned(encoded.length);
    this.bytes(encoded);
  }

  /** Writes a vector: a count and the items. */
  vector<T>(items: readonly T[], write: (item: T, index: number) => void): void {
    this.unsigned(items.length);
    items.forEach(write);
  }

  /** Writes what `write` writes, preceded by its size. */
  sized(write: () => void): void {
    const start = this.#length;
    write();
    const end = this.#length;
    this.unsigned(end - start);
    const size = this.#bytes.slice(end, this.#length);
    this.#bytes.copyWithin(start + size.length, start, end);
    this.#bytes.set(size, start);
  }

  /** A copy of all bytes. */
  take(): OwnBytes {
    return this.#bytes.slice(0, this.#length);
  }

  #reserve(count: number): void {
    const needed = this.#length + count;
    if (needed <= this.#bytes.length) return;
    const longer = new Uint8Array(Math.max(needed, 2 * this.#bytes.length));
    longer.set(this.#bytes);
    this.#bytes = longer;
  }
}
