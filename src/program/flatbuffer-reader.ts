/**
 * Bounds-checked reading of untrusted FlatBuffers: every offset and length is checked before it is used. Knows the
 * encoding, but no schema; writing is done by the npm `flatbuffers` Builder.
 */
import { InvalidFileError } from "../errors.ts";
import type { Field } from "./schema.ts";

/**
 * Budget for reading: an element or a byte of a string costs 1, a table 8. Honest files share little, but many vectors that
 * overlap, or point at one table, could otherwise make a small file large in memory.
 */
const COST_PER_BYTE = 16;
const COST_MAX = 1 << 24;
const TABLE_COST = 8;

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The bytes of one FlatBuffer, its name for messages, and the rest of its budget. */
class CheckedBytes {
  readonly file: string;
  readonly bytes: Uint8Array;
  readonly view: DataView;
  #budget: number;

  constructor(file: string, bytes: Uint8Array) {
    this.file = file;
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#budget = Math.min(bytes.length * COST_PER_BYTE, COST_MAX);
  }

  fail(place: Place, problem: string, options?: ErrorOptions): never {
    throw new InvalidFileError(this.file, `${place() || "root"}: ${problem}`, options);
  }

  check(place: Place, offset: number, length: number): void {
    if (offset < 0 || offset + length > this.bytes.length)
      this.fail(place, `points at bytes ${offset} to ${offset + length} of a program of ${this.bytes.length}`);
  }

  spend(place: Place, cost: number): void {
    this.#budget -= cost;
    if (this.#budget < 0) this.fail(place, "the program has too many parts, or they overlap");
  }

  /** Follows the unsigned offset stored at `position`. */
  follow(place: Place, position: number): number {
    const offset = this.view.getUint32(position, true);
    if (offset === 0) this.fail(place, "expected an offset but found 0");
    return position + offset;
  }
}

/** Gives the path of a value from the root, which is made for messages only; "" for the root. */
type Place = () => string;

const root: Place = () => "";

/**
 * One table. Accessors return the schema's default for an absent scalar and null for an absent string, table or vector.
 * They throw InvalidFileError, naming the file and the field path, for bytes that are not valid.
 */
export class FlatTable {
  readonly #place: Place;
  readonly #data: CheckedBytes;
  readonly #start: number;
  readonly #size: number;
  readonly #vtable: number;
  readonly #vtableSize: number;

  /** The table at the offset that is stored at `position`. */
  constructor(data: CheckedBytes, place: Place, position: number) {
    const start = data.follow(place, position);
    this.#place = place;
    this.#data = data;
    this.#start = start;
    data.spend(place, TABLE_COST);
    data.check(place, start, 4);
    this.#vtable = start - data.view.getInt32(start, true);
    data.check(place, this.#vtable, 4);
    this.#vtableSize = data.view.getUint16(this.#vtable, true);
    this.#size = data.view.getUint16(this.#vtable + 2, true);
    if (this.#vtableSize < 4 || this.#vtableSize % 2 !== 0 || this.#size < 4)
      data.fail(place, `its vtable claims ${this.#vtableSize} bytes for a table of ${this.#size}`);
    data.check(place, this.#vtable, this.#vtableSize);
    data.check(place, start, this.#size);
  }

  /** Field path from the root, for messages. */
  get path(): string {
    return this.#place();
  }

  fail(field: Field, problem: string): never {
    return this.#data.fail(this.#placeOf(field), problem);
  }

  bool(field: Field): boolean {
    return this.uint8(field) !== 0;
  }

  uint8(field: Field): number {
    const at = this.#locate(field, 1);
    return at === null ? 0 : this.#data.bytes[at]!;
  }

  int32(field: Field): number {
    const at = this.#locate(field, 4);
    return at === null ? 0 : this.#data.view.getInt32(at, true);
  }

  uint32(field: Field): number {
    const at = this.#locate(field, 4);
    return at === null ? 0 : this.#data.view.getUint32(at, true);
  }

  int64(field: Field): bigint {
    const at = this.#locate(field, 8);
    return at === null ? 0n : this.#data.view.getBigInt64(at, true);
  }

  /** Also fails on values above 2^53, which no offset or size of a file reaches. */
  uint64(field: Field): number {
    const at = this.#locate(field, 8);
    return at === null ? 0 : this.#safe(field, this.#data.view.getBigUint64(at, true));
  }

  float64(field: Field): number {
    const at = this.#locate(field, 8);
    return at === null ? 0 : this.#data.view.getFloat64(at, true);
  }

  string(field: Field): string | null {
    const vector = this.#vector(field, 1);
    if (!vector) return null;
    try {
      return utf8.decode(this.#data.bytes.subarray(vector.start, vector.start + vector.count));
    } catch (cause) {
      return this.#data.fail(this.#placeOf(field), "expected UTF-8", { cause });
    }
  }

  table(field: Field): FlatTable | null {
    const at = this.#locate(field, 4);
    return at === null ? null : new FlatTable(this.#data, this.#placeOf(field), at);
  }

  tables(field: Field): FlatTable[] | null {
    return this.#elements(field, 4, (at, index) => new FlatTable(this.#data, this.#placeOf(field, index), at));
  }

  uint8s(field: Field): number[] | null {
    return this.#elements(field, 1, (at) => this.#data.bytes[at]!);
  }

  int32s(field: Field): number[] | null {
    return this.#elements(field, 4, (at) => this.#data.view.getInt32(at, true));
  }

  /** Also fails on values beyond 2^53, for vectors of indices and sizes. */
  int64s(field: Field): number[] | null {
    return this.#elements(field, 8, (at) => this.#safe(field, this.#data.view.getBigInt64(at, true)));
  }

  float64s(field: Field): number[] | null {
    return this.#elements(field, 8, (at) => this.#data.view.getFloat64(at, true));
  }

  #placeOf(field: Field, index = -1): Place {
    return () => `${this.path && `${this.path}.`}${field.name}${index < 0 ? "" : `[${index}]`}`;
  }

  #safe(field: Field, value: bigint): number {
    const number = Number(value);
    if (!Number.isSafeInteger(number)) this.fail(field, `${value} is out of range`);
    return number;
  }

  /** Position of a field's `width` bytes, null when the field is absent. */
  #locate(field: Field, width: number): number | null {
    const entry = 4 + 2 * field.slot;
    if (entry + 2 > this.#vtableSize) return null;
    const offset = this.#data.view.getUint16(this.#vtable + entry, true);
    if (offset === 0) return null;
    if (offset < 4 || offset + width > this.#size)
      this.fail(field, `lies at byte ${offset} of a table of ${this.#size} bytes`);
    return this.#start + offset;
  }

  #vector(field: Field, width: number): { start: number; count: number } | null {
    const at = this.#locate(field, 4);
    if (at === null) return null;
    const place = this.#placeOf(field);
    const vector = this.#data.follow(place, at);
    this.#data.check(place, vector, 4);
    const count = this.#data.view.getUint32(vector, true);
    this.#data.check(place, vector + 4, count * width);
    this.#data.spend(place, count);
    return { start: vector + 4, count };
  }

  #elements<T>(field: Field, width: number, element: (position: number, index: number) => T): T[] | null {
    const vector = this.#vector(field, width);
    if (!vector) return null;
    const elements: T[] = [];
    for (let index = 0; index < vector.count; index++) elements.push(element(vector.start + index * width, index));
    return elements;
  }
}

/** The root table of a FlatBuffer; `file` names it in errors. */
export function rootTable(file: string, bytes: Uint8Array): FlatTable {
  const data = new CheckedBytes(file, bytes);
  data.check(root, 0, 4);
  return new FlatTable(data, root, 0);
}
