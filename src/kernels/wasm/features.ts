/**
 * Detects WebAssembly features by validation, and the relaxed dot products also by their results: some engines compute them
 * wrong, so each is run once on extreme values.
 */
import { nodeBuiltin } from "../../node-builtin.ts";
import type { CpuFeature } from "../contract.ts";
import type { FunctionCode } from "./assembler/expression.ts";
import { type Expr, type Local, shuffle4 } from "./assembler/expression.ts";
import { i16x8, i32x4, size, v128 } from "./assembler/instructions.ts";
import { defineFunction, Module } from "./assembler/module.ts";
import { makeMemory, moduleMemory } from "./engine/engine-memory.ts";
import { webAssembly } from "./engine/web-assembly.ts";

/** Names of all WebAssembly features. */
export const wasmFeatureNames = [
  "simd128",
  "relaxed_dot",
  "relaxed_dot16",
  "split_dot",
] as const satisfies readonly CpuFeature[];

let found: readonly CpuFeature[] | undefined;

/** Features of this JavaScript engine, in the order of the table. */
export function wasmFeatures(): readonly CpuFeature[] {
  found ??= detect();
  return found;
}

function detect(): CpuFeature[] {
  if (!webAssembly || !runs(plainProbe())) return [];
  const features: CpuFeature[] = ["simd128"];
  allowRelaxed();
  const isRight = relaxedProbes(sevenBits).every(runs);
  if (isRight) features.push("relaxed_dot");
  if (!runs(relaxed16Probe())) return features;
  features.push("relaxed_dot16");
  if (!isRight || relaxedProbes(eightBits).every(runs)) features.push("split_dot");
  return features;
}

/** Enables relaxed SIMD, which Node 20 has behind a flag that can be set at run time. */
function allowRelaxed(): void {
  const v8 = nodeBuiltin<{ setFlagsFromString(flag: string): void }>("node:v8");
  if (v8 && !webAssembly!.validate(encode(relaxed16Probe().code)))
    v8.setFlagsFromString("--experimental-wasm-relaxed-simd");
}

interface Probe {
  readonly code: FunctionCode;
  readonly weights: Uint8Array;
  /** The four int32 that it must store at address 48, computed from the inputs at 0, 16 and 32. */
  readonly expected: readonly number[];
}

/** Activations with both extremes of int8, weights with both extremes of 7 bits, and sums of both signs. */
const activations = Int8Array.of(-128, -128, -128, -128, 127, 127, 127, 127, -128, 127, -1, 1, 0, -77, 64, -3);
const sevenBits: Uint8Array = Uint8Array.of(127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127, 5, 99, 0, 126);
const seeds = Int32Array.of(-100_000, 7, 1 << 20, -1);

/**
 * 8-bit weights that reveal whether the dot product is one instruction or several, in whichever tier an engine compiles the
 * probe. On x86 with AVX-VNNI, vpdpbusd adds four products in 32 bits; without, pmaddubsw adds two in 16 bits, with saturation,
 * and pmaddwd adds those. Arm and AVX-VNNI-INT8 treat such weights as negative.
 */
const eightBits = sevenBits.map((weight) => weight | 128);

/** Expected sums, with pairs of products saturated to 16 bits; 7-bit weights never saturate. */
function dots(weights: Uint8Array): number[] {
  const product = (i: number) => activations[i]! * weights[i]!;
  const pair = (i: number) => Math.max(-(2 ** 15), Math.min(2 ** 15 - 1, product(i) + product(i + 1)));
  return Array.from(seeds, (seed, lane) => seed + pair(4 * lane) + pair(4 * lane + 2));
}

/** A probe: a function that loads the three inputs and stores a result. */
function probe(
  compute: (a: Expr<"v128">, w: Expr<"v128">, seed: Local<"v128">) => Expr<"v128">,
  weights = sevenBits,
): Probe {
  const code = defineFunction("probe", {}, (_, scope) => {
    const sum = scope.local("v128", "sum");
    const at = (address: number) => v128.load(size(address));
    return [sum.set(at(32)), sum.set(compute(at(0), at(16), sum)), v128.store(size(48), sum)];
  });
  return { code, weights, expected: dots(weights) };
}

function plainProbe(): Probe {
  return probe((a, w, seed) => {
    const low = i32x4.dot_i16x8_s(i16x8.extend_low_i8x16_s(a), i16x8.extend_low_i8x16_s(w));
    const high = i32x4.dot_i16x8_s(i16x8.extend_high_i8x16_s(a), i16x8.extend_high_i8x16_s(w));
    return i32x4.add(seed, pairSums(low, high));
  });
}

/** Pairwise sums: lanes 0 + 1 and 2 + 3 of both vectors. */
function pairSums(low: Expr<"v128">, high: Expr<"v128">): Expr<"v128"> {
  return i32x4.add(shuffle4(low, high, [0, 2, 4, 6]), shuffle4(low, high, [1, 3, 5, 7]));
}

/**
 * Probes with the sum in a local that is used afterwards, and with one that is not: compilers assign their registers
 * differently.
 */
function relaxedProbes(weights: Uint8Array): Probe[] {
  const dot = i32x4.relaxed_dot_i8x16_i7x16_add_s;
  const sum = () => v128.load(size(32));
  return [probe((a, w, seed) => dot(a, w, seed), weights), probe((a, w) => dot(a, w, sum()), weights)];
}

function relaxed16Probe(): Probe {
  return probe((a, w, seed) => i32x4.add(seed, i32x4.extadd_pairwise_i16x8_s(i16x8.relaxed_dot_i8x16_i7x16_s(a, w))));
}

function encode(code: FunctionCode): Uint8Array {
  const memory = moduleMemory({ isWide: false, isShared: false });
  return new Module({ isWide: false, memory, imports: [], hasTable: false }, [code]).encode();
}

function runs({ code, weights, expected }: Probe): boolean {
  const bytes = encode(code);
  if (!webAssembly!.validate(bytes)) return false;
  // Even the smallest memory reserves gigabytes of address space, which a limited process may not have.
  const memory = makeMemory(1, 1, { isWide: false, isShared: false });
  if (!memory) return false;
  const instance = new webAssembly!.Instance(new webAssembly!.Module(bytes), { env: { memory } });
  const all = new Uint8Array(memory.buffer);
  all.set(new Uint8Array(activations.buffer), 0);
  all.set(weights, 16);
  all.set(new Uint8Array(seeds.buffer), 32);
  instance.exports.probe!();
  return new Int32Array(memory.buffer, 48, 4).join() === expected.join();
}
