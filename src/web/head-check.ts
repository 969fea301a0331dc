/** A program's needs checked while its file is still coming, from the part that has come. */
import { checkProgramMemory } from "../api/language-model.ts";
import { type ByteSource, checkRange } from "../byte-source.ts";
import { UnsupportedError } from "../errors.ts";
import { readProgram } from "../program/read.ts";

/** Is given the bytes of a file in order. */
export class HeadCheck {
  readonly #source: HeadSource;

  /**
   * `totalBytes`: 0 where it is not known; `refuse` gets an UnsupportedError as soon as it is known that the program
   * cannot run here.
   */
  constructor(name: string, totalBytes: number, refuse: (error: UnsupportedError) => void) {
    this.#source = new HeadSource(name, totalBytes);
    readProgram(this.#source)
      .then(checkProgramMemory)
      .catch((error) => {
        // What else is wrong with the file is found again when it is loaded.
        if (error instanceof UnsupportedError) refuse(error);
      })
      .finally(() => void this.#source.close());
  }

  take(bytes: Uint8Array): void {
    this.#source.append(bytes);
  }
}

/** A file of which the first bytes are there; reads wait for those that are not yet. */
class HeadSource implements ByteSource {
  readonly name: string;
  readonly size: number;
  #parts: Uint8Array[] = [];
  #length = 0;
  #isClosed = false;
  readonly #waiting = new Set<() => void>();

  constructor(name: string, totalBytes: number) {
    this.name = name;
    this.size = totalBytes || Number.MAX_SAFE_INTEGER;
  }

  append(bytes: Uint8Array): void {
    if (this.#isClosed) return;
    this.#parts.push(bytes);
    this.#length += bytes.length;
    for (const wake of this.#waiting) wake();
  }

  async read(offset: number, length: number): Promise<Uint8Array> {
    checkRange(this.name, this.size, offset, length);
    while (this.#length < offset + length)
      await new Promise<void>((resolve) => {
        const wake = () => {
          this.#waiting.delete(wake);
          resolve();
        };
        this.#waiting.add(wake);
      });
    const result = new Uint8Array(length);
    let start = -offset;
    for (const part of this.#parts) {
      if (start + part.length > 0 && start < length) {
        const first = Math.max(0, -start);
        result.set(part.subarray(first, length - start), start + first);
      }
      start += part.length;
    }
    return result;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#parts = [];
  }
}
