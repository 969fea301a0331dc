/** Which ranges of a memory are free. Knows numbers only. */

const ALIGNMENT = 64;

interface Range {
  readonly start: number;
  readonly end: number;
}

/** First-fit allocation of ranges that begin at multiples of 64; freed neighbours become one. */
export class Allocator {
  readonly #used = new Map<number, number>();
  #free: Range[];
  #end: number;

  constructor(start: number, end: number) {
    this.#free = [{ start, end }];
    this.#end = end;
  }

  /** The start of a free range; null when there is none so long: `missing` says how much more would do. */
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

  /** The memory has grown to `end`. */
  extend(end: number): void {
    this.#insert({ start: this.#end, end });
    this.#end = end;
  }

  /** Frees a range that `take` gave; others are left alone. */
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
