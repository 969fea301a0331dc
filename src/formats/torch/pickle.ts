/**
 * Reads pickles (protocols 2 to 5) as data. Nothing is executed: imports and calls are passed by name to a handler, which knows
 * a few names and refuses the others.
 */
import { InvalidFileError } from "../../errors.ts";

/** The name of an object that a pickle imports. */
export class PickleGlobal {
  readonly name: string;
  constructor(name: string) {
    this.name = name;
  }
}

export type PickleValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | PickleGlobal
  | PickleValue[]
  | Map<PickleValue, PickleValue>
  | object;

/** Resolves a pickle's calls and persistent ids to values. */
export interface PickleHandler {
  call(name: string, args: readonly PickleValue[]): PickleValue;
  persistent(id: PickleValue): PickleValue;
}

/** Most bytes of an integer. */
const LONG_MAX = 1 << 16;

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Decodes three bytes to a surrogate. RangeError for other bytes. */
function surrogate([, middle = 0, last = 0]: Uint8Array): string {
  if (middle > 0xbf || last < 0x80 || last > 0xbf) throw new RangeError("no surrogate");
  return String.fromCharCode(0xd000 | ((middle & 0x3f) << 6) | (last & 0x3f));
}

/** Marks the place of a MARK opcode on the stack. */
const mark = Symbol("mark");
type Item = PickleValue | typeof mark;

/** Reads a pickle's value. InvalidFileError for a malformed pickle, or an opcode that data does not need. */
export function readPickle(file: string, bytes: Uint8Array, handler: PickleHandler): PickleValue {
  return new PickleReader(file, bytes, handler).run();
}

class PickleReader {
  readonly #file: string;
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #handler: PickleHandler;
  readonly #stack: Item[] = [];
  readonly #memo = new Map<number, PickleValue>();
  #at = 0;

  constructor(file: string, bytes: Uint8Array, handler: PickleHandler) {
    this.#file = file;
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#handler = handler;
  }

  run(): PickleValue {
    for (;;) {
      const opcode = this.#u8();
      if (opcode === 0x2e) return this.#pop();
      const step = steps[opcode];
      if (!step) this.fail(`uses opcode 0x${opcode.toString(16)}, which data does not need`);
      step(this);
    }
  }

  fail(problem: string): never {
    throw new InvalidFileError(this.#file, `pickle ${problem} (at byte ${this.#at})`);
  }

  push(value: Item): void {
    this.#stack.push(value);
  }

  pop(): PickleValue {
    return this.#pop();
  }

  /** Pops the values since the last mark, and the mark. */
  popMark(): PickleValue[] {
    const at = this.#stack.lastIndexOf(mark);
    if (at < 0) this.fail("has no mark where one is needed");
    const values = this.#stack.splice(at);
    return values.slice(1) as PickleValue[];
  }

  popMany(count: number): PickleValue[] {
    const values = Array.from({ length: count }, () => this.#pop());
    return values.reverse();
  }

  top(): PickleValue {
    const value = this.#stack.at(-1);
    if (value === undefined || value === mark) this.fail("has an empty stack");
    return value;
  }

  setItems(values: readonly PickleValue[]): void {
    const target = this.top();
    if (!(target instanceof Map) || values.length % 2 !== 0) this.fail("sets items of what is no dictionary");
    for (let i = 0; i < values.length; i += 2) target.set(values[i]!, values[i + 1]!);
  }

  append(values: readonly PickleValue[]): void {
    const target = this.top();
    if (!Array.isArray(target)) this.fail("appends to what is no list");
    for (const value of values) target.push(value);
  }

  call(): void {
    const [callable, args] = this.popMany(2);
    if (!(callable instanceof PickleGlobal) || !Array.isArray(args)) this.fail("calls what is no name");
    this.push(this.#handler.call(callable.name, args));
  }

  global(names: readonly PickleValue[]): void {
    if (!names.every((name) => typeof name === "string")) this.fail("imports what is no name");
    this.push(new PickleGlobal(names.join(".")));
  }

  persistent(): void {
    this.push(this.#handler.persistent(this.#pop()));
  }

  memoize(index: number): void {
    this.#memo.set(index, this.top());
  }

  memoizeNext(): void {
    this.memoize(this.#memo.size);
  }

  recall(index: number): void {
    const value = this.#memo.get(index);
    if (value === undefined) this.fail(`recalls ${index}, which it has not stored`);
    this.push(value);
  }

  u8(): number {
    return this.#u8();
  }

  u16(): number {
    return this.#view.getUint16(this.#take(2), true);
  }

  u32(): number {
    return this.#view.getUint32(this.#take(4), true);
  }

  i32(): number {
    return this.#view.getInt32(this.#take(4), true);
  }

  u64(): number {
    const value = Number(this.#view.getBigUint64(this.#take(8), true));
    if (!Number.isSafeInteger(value)) this.fail(`has a length of ${value}`);
    return value;
  }

  /** Reads a double, the only big-endian number. */
  f64(): number {
    return this.#view.getFloat64(this.#take(8), false);
  }

  take(length: number): Uint8Array {
    const at = this.#take(length);
    return this.#bytes.subarray(at, at + length);
  }

  /** Decodes text, keeping a leading U+FEFF and lone surrogates, which Python strings may have ("surrogatepass"). */
  text(length: number): string {
    const bytes = this.take(length);
    const parts: string[] = [];
    let start = 0;
    try {
      for (let at = bytes.indexOf(0xed); at >= 0; at = bytes.indexOf(0xed, at + 1)) {
        if (!(bytes[at + 1]! >= 0xa0)) continue;
        parts.push(utf8.decode(bytes.subarray(start, at)), surrogate(bytes.subarray(at, at + 3)));
        start = at + 3;
      }
      return parts.join("") + utf8.decode(bytes.subarray(start));
    } catch {
      this.fail("has a string that is not UTF-8");
    }
  }

  line(): string {
    const end = this.#bytes.indexOf(0x0a, this.#at);
    if (end < 0) this.fail("is cut off");
    const text = this.text(end - this.#at);
    this.#take(1);
    return text;
  }

  /** Reads a little-endian two's complement integer; a bigint beyond 2^53. */
  long(length: number): number | bigint {
    if (length > LONG_MAX) this.fail(`has an integer of ${length} bytes`);
    const digits = Array.from(this.take(length), (byte) => byte.toString(16).padStart(2, "0")).reverse();
    const value = BigInt.asIntN(8 * length, BigInt(`0x0${digits.join("")}`));
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : value;
  }

  #pop(): PickleValue {
    const value = this.#stack.pop();
    if (value === undefined || value === mark) this.fail("has an empty stack");
    return value;
  }

  #u8(): number {
    return this.#bytes[this.#take(1)]!;
  }

  #take(length: number): number {
    const at = this.#at;
    if (at + length > this.#bytes.length) this.fail("is cut off");
    this.#at += length;
    return at;
  }
}

/** Opcodes that data needs, by their numbers in Python's pickletools. */
const steps: Readonly<Record<number, (reader: PickleReader) => void>> = {
  128: (r) => r.u8(), // protocol
  149: (r) => r.u64(), // frame
  40: (r) => r.push(mark),
  48: (r) => r.pop(),
  78: (r) => r.push(null),
  136: (r) => r.push(true),
  137: (r) => r.push(false),
  74: (r) => r.push(r.i32()),
  75: (r) => r.push(r.u8()),
  77: (r) => r.push(r.u16()),
  138: (r) => r.push(r.long(r.u8())),
  139: (r) => r.push(r.long(r.u32())),
  71: (r) => r.push(r.f64()),
  88: (r) => r.push(r.text(r.u32())),
  140: (r) => r.push(r.text(r.u8())),
  141: (r) => r.push(r.text(r.u64())),
  85: (r) => r.push(r.text(r.u8())),
  84: (r) => r.push(r.text(r.u32())),
  66: (r) => r.push(r.take(r.u32())),
  67: (r) => r.push(r.take(r.u8())),
  125: (r) => r.push(new Map()),
  93: (r) => r.push([]),
  41: (r) => r.push([]),
  116: (r) => r.push(r.popMark()),
  108: (r) => r.push(r.popMark()),
  133: (r) => r.push(r.popMany(1)),
  134: (r) => r.push(r.popMany(2)),
  135: (r) => r.push(r.popMany(3)),
  97: (r) => r.append([r.pop()]),
  101: (r) => r.append(r.popMark()),
  115: (r) => r.setItems(r.popMany(2)),
  117: (r) => r.setItems(r.popMark()),
  113: (r) => r.memoize(r.u8()),
  114: (r) => r.memoize(r.u32()),
  148: (r) => r.memoizeNext(),
  104: (r) => r.recall(r.u8()),
  106: (r) => r.recall(r.u32()),
  99: (r) => r.push(new PickleGlobal(`${r.line()}.${r.line()}`)),
  147: (r) => r.global(r.popMany(2)),
  82: (r) => r.call(),
  81: (r) => r.persistent(),
  // BUILD: an object's state; of a dictionary, it would be attributes, which are not data.
  98: (r) => r.pop(),
};
