/**
 * Keys and values of a full page in 4 bits (KIVI, Liu et al. 2024): x = least + step * n with n in 0 .. 15, a scale (`step`)
 * and a minimum (`least`). Keys differ by column, so they have a pair for each column of each 32 positions; values have one for
 * each row. Bytes lie in the order in which vector instructions multiply four columns of keys, or four positions of values, at
 * once.
 */
import { f16Table, f32ToF16 } from "../../../half.ts";
import { roundHalfEven } from "../../../rounding.ts";
import { INT4_POSITIONS, INT4_SHARED, int4Columns } from "../../sequence-table.ts";

/** Largest integer of 4 bits. */
const MOST = 15;

/** Keys or values of one layer in a page, as they are stored. */
export interface Int4Part {
  /** 4 bits each, [kvHeads, INT4_POSITIONS, columns]. */
  readonly bytes: Uint8Array;
  /** f16 scales and minima: of keys [kvHeads, halves of the page, 2, columns], of values [kvHeads, 2, INT4_POSITIONS]. */
  readonly scales: Uint16Array;
}

/** Reads and quantizes rows [INT4_POSITIONS, kvHeads] of keys or values of one layer in a page. */
export class Int4Rows {
  readonly #part: Int4Part;
  readonly #isOfKeys: boolean;
  readonly #kvHeads: number;
  readonly #headDim: number;
  readonly #columns: number;
  #values: Float64Array | null = null;

  constructor(part: Int4Part, isOfKeys: boolean, kvHeads: number, headDim: number) {
    this.#part = part;
    this.#isOfKeys = isOfKeys;
    this.#kvHeads = kvHeads;
    this.#headDim = headDim;
    this.#columns = int4Columns(headDim);
  }

  /** All values, dequantized once: a page is read many times. */
  read(): Float64Array {
    const { bytes, scales } = this.#part;
    const table = f16Table();
    this.#values ??= Float64Array.from({ length: INT4_POSITIONS * this.#kvHeads * this.#headDim }, (_, i) => {
      const row = Math.floor(i / this.#headDim);
      const [head, position, d] = [row % this.#kvHeads, Math.floor(row / this.#kvHeads), i % this.#headDim];
      const { byte, shift } = this.#place(head, position, d);
      const { step, least } = this.#scalePlaces(head, position, d);
      return table[scales[least]!]! + table[scales[step]!]! * ((bytes[byte]! >> shift) & MOST);
    });
    return this.#values;
  }

  /** Quantizes all rows from f16 [INT4_POSITIONS, kvHeads, headDim]. */
  fill(halves: Uint16Array): void {
    this.#values = null;
    const { bytes, scales } = this.#part;
    bytes.fill(0);
    scales.fill(0);
    const [lines, length] = this.#isOfKeys
      ? [(INT4_POSITIONS / INT4_SHARED) * this.#headDim, INT4_SHARED]
      : [INT4_POSITIONS, this.#headDim];
    for (let head = 0; head < this.#kvHeads; head++)
      for (let line = 0; line < lines; line++) {
        const first = Math.floor(line / this.#headDim) * INT4_SHARED;
        const placeOf = (i: number): [number, number] =>
          this.#isOfKeys ? [first + i, line % this.#headDim] : [line, i];
        const values = Float32Array.from({ length }, (_, i) => {
          const [position, d] = placeOf(i);
          return f16Table()[halves[(position * this.#kvHeads + head) * this.#headDim + d]!]!;
        });
        const { integers, step, least } = quantized(values);
        const places = this.#scalePlaces(head, ...placeOf(0));
        scales[places.step] = step;
        scales[places.least] = least;
        for (const [i, integer] of integers.entries()) {
          const { byte, shift } = this.#place(head, ...placeOf(i));
          bytes[byte]! |= integer << shift;
        }
      }
  }

  /**
   * Where a value is. Keys: 128 bytes hold four columns of all positions; values: 64 bytes hold four positions of 32 columns.
   */
  #place(head: number, position: number, d: number): { readonly byte: number; readonly shift: number } {
    const start = (head * INT4_POSITIONS * this.#columns) / 2;
    if (this.#isOfKeys) {
      const byte = Math.floor(d / 4) * 128 + Math.floor(position / 32) * 64 + (position % 16) * 4 + (d % 4);
      return { byte: start + byte, shift: position & 16 ? 4 : 0 };
    }
    const byte = Math.floor(position / 4) * 2 * this.#columns + Math.floor(d / 32) * 64 + (d % 16) * 4 + (position % 4);
    return { byte: start + byte, shift: d & 16 ? 4 : 0 };
  }

  #scalePlaces(head: number, position: number, d: number): { readonly step: number; readonly least: number } {
    if (!this.#isOfKeys) {
      const step = 2 * head * INT4_POSITIONS + position;
      return { step, least: step + INT4_POSITIONS };
    }
    const half = (head * INT4_POSITIONS + position) / INT4_SHARED;
    const step = 2 * Math.floor(half) * this.#columns + d;
    return { step, least: step + this.#columns };
  }
}

/** Quantizes values; `step` and `least` are bits of f16. In float32, so that all kernels store the same. */
function quantized(values: Float32Array): {
  readonly integers: Uint8Array;
  readonly step: number;
  readonly least: number;
} {
  const integers = new Uint8Array(values.length);
  // + 0 turns -0 into 0: which zero is the minimum would depend on the order.
  const least = Math.min(...values) + 0;
  const range = Math.fround(Math.max(...values) - least);
  if (!Number.isFinite(range)) return { integers, step: f32ToF16(Number.NaN), least: f32ToF16(Number.NaN) };
  const step = f32ToF16(Math.fround(range / MOST));
  const inverse = step === 0 ? 0 : Math.fround(1 / f16Table()[step]!);
  for (const [i, value] of values.entries())
    integers[i] = Math.min(MOST, roundHalfEven(Math.fround(Math.fround(value - least) * inverse)));
  return { integers, step, least: f32ToF16(least) };
}
