/** Runs kernel rows one by one on memory of the caller's choice; rows that this CPU cannot run are skipped by name. */
import { describe, expect } from "vitest";
import { type TypedArray, viewOf } from "../../src/dtype.ts";
import type { Cpu, Kernel } from "../../src/kernels/contract.ts";
import { cpuWith, hostCpu } from "../../src/kernels/cpu.ts";
import { wasmFeatures } from "../../src/kernels/wasm/features.ts";
import { bytesOf } from "../../src/tensor.ts";

/** Whether this runs on an emulated CPU, where tests take fewer sizes (scripts/arm/test.js says so). */
export const isEmulated = process.env.LOWBIT_EMULATED === "1";

/** Gives zeroed bytes that begin at a multiple of 64 of their buffer. */
export type Memory = (length: number) => Uint8Array;

/** Ordinary JavaScript buffers, which begin anywhere in memory. */
export const heap: Memory = (length) => {
  const bytes = new Uint8Array(length + 64);
  return bytes.subarray(-bytes.byteOffset & 63).subarray(0, length);
};

export interface Bench {
  readonly memory: Memory;
  readonly threads: number;
}

/** The benches that make a difference: kernels that are not native run on one thread here whatever they are told. */
export function benchesFor({ target }: Pick<Kernel<never>, "target">, benches: readonly Bench[]): readonly Bench[] {
  return target === "native" ? benches : benches.slice(0, 1);
}

/** This machine with all that its kernels may use, those that selection passes over included. */
export function machine(): Cpu {
  const { name, features } = hostCpu();
  return { name, features: new Set([...features, ...wasmFeatures()]) };
}

/** A copy of an array in a bench's memory. */
export function place<A extends TypedArray>({ memory }: Bench, source: A): A {
  const bytes = memory(source.byteLength);
  bytes.set(bytesOf(source));
  const dtype = {
    Float32Array: "f32",
    BigInt64Array: "i64",
    Int32Array: "i32",
    Int8Array: "i8",
    Uint8Array: "u8",
  } as const;
  const name = source[Symbol.toStringTag] as keyof typeof dtype;
  return viewOf(dtype[name], bytes.buffer, bytes.byteOffset, source.length) as unknown as A;
}

/** A zeroed float32 array in a bench's memory. */
export function floats(bench: Bench, length: number): Float32Array {
  const bytes = bench.memory(4 * length);
  return new Float32Array(bytes.buffer, bytes.byteOffset, length);
}

/** Words behind a kernel's scratch that it must leave alone, and what they hold. */
const guardWords = 4096;
const guard = 0xa5a5a5a5 | 0;

/** Runs so far: the scratch of each begins another step of 16 bytes after a multiple of 64 of its buffer. */
let runs = 0;

/** Binds a kernel and runs it once, within its scratch. */
export function run<A>(kernel: Kernel<A>, args: A, { memory, threads }: Bench): void {
  const bytes = kernel.scratchBytes?.(args, threads) ?? 0;
  const first = (runs++ % 4) * 16;
  const start = first + Math.ceil(bytes / 4) * 4;
  const scratch = memory(start + 4 * guardWords);
  const behind = new Int32Array(scratch.buffer, scratch.byteOffset + start, guardWords).fill(guard);
  kernel.bind(args, scratch.subarray(first, first + bytes), threads)();
  let kept = 0;
  while (kept < guardWords && behind[kept] === guard) kept++;
  if (kept < guardWords)
    expect(kept, `${kernel.name}: first word written behind ${bytes} bytes of scratch`).toBe(guardWords);
}

/**
 * A CPU whose rows are tested elsewhere and not here (scripts/arm/test.js says so).
 */
const elsewhere = globalThis.process?.env.LOWBIT_TESTED_ELSEWHERE;
export const testedElsewhere: Cpu | null = elsewhere ? cpuWith(elsewhere) : null;

/** A block of tests for every row of a family that `cpu` can run; the others are skipped with the reason. */
export function describeRows<A>(rows: readonly Kernel<A>[], cpu: Cpu, tests: (kernel: Kernel<A>) => void): void {
  for (const kernel of rows) {
    const missing = kernel.needs.filter((feature) => !cpu.features.has(feature));
    if (missing.length > 0) {
      describe.skip(`${kernel.name} (skipped: this CPU lacks ${missing.join(", ")})`, () => tests(kernel));
    } else if (testedElsewhere && kernel.needs.every((feature) => testedElsewhere?.features.has(feature))) {
      describe.skip(`${kernel.name} (skipped: tested on ${testedElsewhere.name})`, () => tests(kernel));
    } else describe(kernel.name, () => tests(kernel));
  }
}

/** Fails for the first number that is further from what is expected than its bound. */
export function expectNear(
  found: Float32Array,
  expected: (i: number) => number,
  bound: (i: number) => number,
  name = "",
): void {
  for (let i = 0; i < found.length; i++)
    if (!(Math.abs(found[i]! - expected(i)) <= bound(i))) expect(found[i], `${name} [${i}]`).toBe(expected(i));
}
