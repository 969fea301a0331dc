/** Checks immediates, the numbers within instructions: the encoder would silently truncate those that do not fit. */
import { InvalidArgumentError } from "../../../errors.ts";
import type { Opcode, ValueType } from "./opcodes.ts";

const VECTOR_BYTES = 16;

/** Range of integer constants by type, signed or unsigned. Sizes are limited to safe integers. */
const ranges = {
  i32: [-(2 ** 31), 2 ** 32 - 1],
  i64: [-(2n ** 63n), 2n ** 64n - 1n],
  ptr: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
} as const;

/** InvalidArgumentError for a value that is no integer of a range. */
function check(name: string, what: string, value: number | bigint, low: number | bigint, high: number | bigint): void {
  const isInteger = typeof value === "bigint" || Number.isInteger(value);
  if (isInteger && value >= low && value <= high) return;
  throw new InvalidArgumentError(`${name}: expected ${what} from ${low} to ${high} but found ${value}`);
}

/** Checks each of `count` values as `check` does. */
function checkAll(name: string, what: string, values: readonly number[], count: number, range: [number, number]): void {
  if (values.length !== count)
    throw new InvalidArgumentError(`${name}: expected ${count} ${what}s but found ${values.length}`);
  for (const value of values) check(name, `a ${what}`, value, ...range);
}

/** Checks the immediates of an instruction: lane and offset. */
export function checkImmediates(name: string, opcode: Opcode, immediates: readonly number[]): void {
  const { immediate } = opcode;
  if (immediate === "lane" || immediate === "memoryLane")
    check(name, "a lane", immediates[0] ?? Number.NaN, 0, lanesOf(name, opcode) - 1);
  if (immediate === "memory") check(name, "an offset", immediates[0] ?? 0, 0, Number.MAX_SAFE_INTEGER);
  if (immediate === "memoryLane") check(name, "an offset", immediates[1] ?? 0, 0, Number.MAX_SAFE_INTEGER);
}

/** Number of lanes: given by the name, as in `i32x4.extract_lane`, or for loads and stores by the alignment. */
function lanesOf(name: string, { immediate, align }: Opcode): number {
  return immediate === "memoryLane" ? VECTOR_BYTES / 2 ** align : Number(name.match(/x(\d+)\./)![1]);
}

export function checkConstant(type: Exclude<ValueType, "v128">, value: number | bigint): void {
  if (type !== "f32" && type !== "f64") check(`${type}.const`, "a number", value, ranges[type][0], ranges[type][1]);
}

/** Checks an address or offset of a module with 32-bit addresses. */
export function checkNarrow(what: string, value: number): void {
  if (value < ranges.i32[0] || value > ranges.i32[1])
    throw new InvalidArgumentError(`${what}: ${value} needs a module of 64-bit addresses`);
}

export function checkPages({ initialPages, maximumPages }: { initialPages: number; maximumPages: number }): void {
  const isInOrder = Number.isInteger(initialPages) && initialPages >= 0 && initialPages <= maximumPages;
  if (isInOrder && Number.isSafeInteger(maximumPages)) return;
  throw new InvalidArgumentError(`memory: expected pages but found ${initialPages} to ${maximumPages}`);
}

/** Checks bytes of a vector constant. */
export function checkBytes(bytes: readonly number[], count = VECTOR_BYTES): void {
  checkAll("v128.const", "byte", bytes, count, [-128, 255]);
}

/** Checks lane indices into two vectors of `count` lanes each. */
export function checkLanes(lanes: readonly number[], count = VECTOR_BYTES): void {
  checkAll("i8x16.shuffle", "lane", lanes, count, [0, 2 * count - 1]);
}
