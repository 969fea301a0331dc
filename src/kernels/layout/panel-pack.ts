/** Fills the groups of panel layouts, four weights (a 32-bit word) at a time. */
import { type FieldTable, fieldTables } from "./fields.ts";

/** Four consecutive k of a row are four bytes of a vector. */
const KR = 4;
const BYTES = 0x01010101;

/** Where the words of one lane go, from a group's first vector: one piece after the other, step by step. */
interface LanePlan {
  /** Pieces of step s are those from `first[s]` to before `first[s + 1]`. */
  readonly first: Int32Array;
  /** Words from the group's first vector. */
  readonly word: Int32Array;
  /** Bits `at` and up of each byte, masked, are moved up by `shift`. */
  readonly at: Int32Array;
  readonly mask: Int32Array;
  readonly shift: Int32Array;
}

/** How a layout places words; `PanelOptions` says what the functions mean. */
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

/** Stores groups of one panel layout, for weights of one spec. */
export class GroupPacker {
  readonly #bits: number;
  readonly #places: WordPlaces;
  readonly #steps: number;
  readonly #lanes: LanePlan[] = [];
  readonly #target: Int32Array;
  /** Whether every field of the layout is one piece. */
  readonly #isSimple: boolean;
  #qvals: Int8Array = new Int8Array(0);
  /** The integers by fours; null where they lie across words. */
  #words: Int32Array | null = null;

  /** `target` begins at a multiple of four bytes; `groupLength` is of the longest group. */
  constructor(places: WordPlaces, bits: number, groupLength: number, target: Uint8Array) {
    this.#bits = bits;
    this.#places = places;
    this.#steps = Math.ceil(groupLength / KR);
    this.#target = new Int32Array(target.buffer, target.byteOffset, target.length >> 2);
    this.#isSimple = fieldTables[bits]!.fields.every((pieces) => pieces.length === 1);
  }

  /** The integers that the next calls of `pack` take. */
  from(qvals: Int8Array): void {
    this.#qvals = qvals;
    const aligned = qvals.byteOffset % KR === 0;
    this.#words = aligned ? new Int32Array(qvals.buffer, qvals.byteOffset, qvals.length >> 2) : null;
  }

  /**
   * Stores `count` weights from `first` on in lane `lane` of the group whose vectors begin at byte `at`, which are zero,
   * behind `before` others, a multiple of four, and returns the sum of their integers.
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

  /** `count` integers as a little-endian word. */
  #wordAt(from: number, count: number): number {
    let word = 0;
    for (let j = 0; j < count; j++) word |= (this.#qvals[from + j]! & 255) << (8 * j);
    return word;
  }
}
