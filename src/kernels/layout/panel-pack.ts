/** Packs the groups of panel layouts, four weights (a 32-bit word) at a time. */
import { type FieldTable, fieldTables } from "./fields.ts";

/** Consecutive k of a row that are four bytes of a vector. */
const KR = 4;
const BYTES = 0x01010101;

/** Destinations of a lane's words, relative to a group's first vector: a list of pieces, step by step. */
interface LanePlan {
  /** Step s has the pieces from `first[s]` up to but not including `first[s + 1]`. */
  readonly first: Int32Array;
  /** Word index from the group's first vector. */
  readonly word: Int32Array;
  /** The bits of each byte from `at` on, masked by `mask`, are shifted up by `shift`. */
  readonly at: Int32Array;
  readonly mask: Int32Array;
  readonly shift: Int32Array;
}

/** How a layout places words; `PanelOptions` explains the functions. */
export interface WordPlaces {
  readonly rows: number;
  readonly vectorBytes: number;
  byteOf(table: FieldTable, lane: number, step: number): number;
  fieldOf(table: FieldTable, lane: number, step: number): number;
}

function planLane(places: WordPlaces, bits: number, steps: number, lane: number): LanePlan {
  const table = fieldTables[bits]!;
  const first = new Int32Array(steps + 1);
  const pieces = Array.from({ length: steps }, (_, step) => {
    const start = places.byteOf(table, lane, step);
    return table.fields[places.fieldOf(table, lane, step)]!.map(({ vector, shift, width, at }) => {
      const word = (start + vector * places.vectorBytes) >> 2;
      return { word, at, shift, mask: ((1 << width) - 1) * BYTES };
    });
  });
  pieces.forEach((list, step) => {
    first[step + 1] = first[step]! + list.length;
  });
  const flat = pieces.flat();
  const column = (of: (piece: (typeof flat)[number]) => number) => Int32Array.from(flat, of);
  return {
    first,
    word: column(({ word }) => word),
    at: column(({ at }) => at),
    mask: column(({ mask }) => mask),
    shift: column(({ shift }) => shift),
  };
}

/** Sum of four bytes, each 0..255. */
function byteSum(word: number): number {
  const pairs = (word & 0x00ff00ff) + ((word >>> 8) & 0x00ff00ff);
  return (pairs & 0xffff) + (pairs >>> 16);
}

/** Packs groups in one panel layout, for weights of one spec. */
export class GroupPacker {
  readonly #bits: number;
  readonly #places: WordPlaces;
  readonly #steps: number;
  readonly #lanes: LanePlan[] = [];
  readonly #target: Int32Array;
  /** Whether every field is a single piece. */
  readonly #isSimple: boolean;
  #qvals: Int8Array = new Int8Array(0);
  /** The integers as words of four; null if they are not aligned. */
  #words: Int32Array | null = null;

  /** `target` is aligned to four bytes; `groupLength` is the length of the longest group. */
  constructor(places: WordPlaces, bits: number, groupLength: number, target: Uint8Array) {
    this.#bits = bits;
    this.#places = places;
    this.#steps = Math.ceil(groupLength / KR);
    this.#target = new Int32Array(target.buffer, target.byteOffset, target.length >> 2);
    this.#isSimple = fieldTables[bits]!.fields.every((pieces) => pieces.length === 1);
  }

  /** Sets the integers for the next calls of `pack`. */
  from(qvals: Int8Array): void {
    this.#qvals = qvals;
    const aligned = qvals.byteOffset % KR === 0;
    this.#words = aligned ? new Int32Array(qvals.buffer, qvals.byteOffset, qvals.length >> 2) : null;
  }

  /**
   * Packs `count` weights from `first` on into lane `lane` of the group whose vectors, which are zero, begin at byte `at`,
   * after `before` other weights, a multiple of four. Returns the sum of their integers.
   */
  pack(first: number, count: number, lane: number, at: number, before = 0): number {
    const plan = this.#lanePlan(lane);
    const flips = ((1 << (this.#bits - 1)) * BYTES) | 0;
    const keep = (((1 << this.#bits) - 1) * BYTES) | 0;
    const base = at >> 2;
    const steps = count >> 2;
    const start = before >> 2;
    const words = first % KR === 0 ? this.#words : null;
    let sum = 0;
    if (words && this.#isSimple) {
      const { word, shift } = plan;
      const target = this.#target;
      for (let step = 0, from = first >> 2; step < steps; step++) {
        const value = (words[from + step]! ^ flips) & keep;
        sum += byteSum(value);
        target[base + word[start + step]!]! |= value << shift[start + step]!;
      }
    } else
      for (let step = 0; step < steps; step++) {
        const value = ((words ? words[(first >> 2) + step]! : this.#wordAt(first + KR * step, KR)) ^ flips) & keep;
        sum += byteSum(value);
        this.#store(plan, start + step, value, base);
      }
    const rest = count % KR;
    if (rest > 0) {
      const value = (this.#wordAt(first + KR * steps, rest) ^ flips) & keep & ((1 << (8 * rest)) - 1);
      sum += byteSum(value);
      this.#store(plan, start + steps, value, base);
    }
    return sum - count * (1 << (this.#bits - 1));
  }

  #store(plan: LanePlan, step: number, value: number, base: number): void {
    const { first, word, at, mask, shift } = plan;
    const target = this.#target;
    for (let p = first[step]!; p < first[step + 1]!; p++)
      target[base + word[p]!]! |= ((value >>> at[p]!) & mask[p]!) << shift[p]!;
  }

  #lanePlan(lane: number): LanePlan {
    this.#lanes[lane] ??= planLane(this.#places, this.#bits, this.#steps, lane);
    return this.#lanes[lane]!;
  }

  /** Packs `count` integers into a little-endian word. */
  #wordAt(from: number, count: number): number {
    let word = 0;
    for (let j = 0; j < count; j++) word |= (this.#qvals[from + j]! & 255) << (8 * j);
    return word;
  }
}
