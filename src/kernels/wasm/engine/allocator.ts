/** Allocates ranges of a memory. Works on numbers only. */

const ALIGNMENT = 64;

interface Range {
  readonly start: number;
  readonly end: number;
}

/** First-fit allocator of ranges aligned to 64; adjacent free ranges are merged. */
export class Allocator {
  readonly #used = new Map<number, number>();
  #free: Range[];
  #end: number;

  constructor(start: number, end: number) {
    this.#free = [{ start, end }];
    this.#end = end;
  }

  /** Allocates a range and returns its start. Null when none is long enough; `missing` gives the bytes to add then. */
  take(length: number): number | null {
    const size = Math.max(ALIGNMENT, Math.ceil(length / ALIGNMENT) * ALIGNMENT);
    const index = this.#free.findIndex(({ start, end }) => end - start >= size);
    if (index < 0) return null;
    const { start, end } = this.#free[index]!;
    this.#free.splice(index, 1, ...(end - start > size ? [{ start: start + size, end }] : []));
    this.#used.set(start, size);
    return start;
  }

  /** Bytes to add at the end so that `length` fits. */
  missing(length: number): number {
    const last = this.#free.at(-1);
    const free = last?.end === this.#end ? last.end - last.start : 0;
    return Math.max(0, Math.ceil(length / ALIGNMENT) * ALIGNMENT + ALIGNMENT - free);
  }

  /** Adds the memory up to `end`, to which it has grown. */
  extend(end: number): void {
    this.#insert({ start: this.#end, end });
    this.#end = end;
  }

  /** Frees a range allocated by `take`; other starts are ignored. */
  free(start: number): void {
    const size = this.#used.get(start);
    if (size === undefined) return;
    this.#used.delete(start);
    this.#insert({ start, end: start + size });
  }

  #insert(range: Range): void {
    const sorted = [...this.#free, range].sort((a, b) => a.start - b.start);
    this.#free = [];
    for (const next of sorted) {
      const last = this.#free.at(-1);
      if (last?.end === next.start) this.#free[this.#free.length - 1] = { start: last.start, end: next.end };
      else this.#free.push(next);
    }
  }
}
