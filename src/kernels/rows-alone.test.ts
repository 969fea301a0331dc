/** A row of activations has the same results, bit for bit, alone and among any number of others, on any number of threads. */
import { describe, expect, it } from "vitest";
import { type Bench, heap, isEmulated, machine, run, testedElsewhere } from "../../test/support/conformance.ts";
import { exactRows } from "../../test/support/exact-rows.ts";
import { Random, randomFloatWeights, randomWeights, weightVariants } from "../../test/support/random.ts";
import { expectSame } from "../../test/support/same.ts";
import { SUPER_GROUP } from "../quantized.ts";
import type { Cpu, CpuFeature, Kernel } from "./contract.ts";
import { cpuWith } from "./cpu.ts";
import * as table from "./families/index.ts";
import { knownCpus } from "./known-cpus.ts";
import { layoutNamed, openPacked, packWeights } from "./layout/packed.ts";
import { nativeFeatures } from "./native/rows.ts";
import { packedQuery, selectKernel } from "./select.ts";
import { wasmFeatures } from "./wasm/features.ts";

const counts = isEmulated ? [3, 6, 9, 17] : [2, 3, 4, 5, 7, 8, 9, 16, 17, 34];
const most = Math.max(...counts);
const benchOf = (threads: number): Bench => ({ memory: heap, threads });

const own = new Set<CpuFeature>(isEmulated ? machine().features : [...nativeFeatures(), ...wasmFeatures()]);
/** `split_dot` says which of two right ways is faster. */
const isUsable = ({ features }: Cpu) => [...features].every((name) => name === "split_dot" || own.has(name));

/** CPUs whose rows differ, of those that this one can stand for, without what docs/sequences.md has as exceptions. */
function nativeCpus(): Cpu[] {
  const kinds = new Map<string, Cpu>();
  for (const name of ["sse2", "neon", ...Object.keys(knownCpus)]) {
    const cpu = { ...exactRows(cpuWith(name)), name };
    if (isUsable(cpu)) kinds.set([...cpu.features].sort().join(), cpu);
  }
  return [...kinds.values()];
}

/** Names of rows that were tested on a CPU before: some serve several. */
const tested = new Set<string>();

/** Whether the rows were tested on the emulated CPU before this one. */
const isTestedElsewhere = (rows: readonly Kernel<never>[]) =>
  testedElsewhere !== null && rows.every(({ needs }) => needs.every((name) => testedElsewhere!.features.has(name)));

const cpus: readonly Cpu[] = [
  ...nativeCpus(),
  { name: "WebAssembly, plain SIMD", features: new Set<CpuFeature>(["simd128"]) },
  {
    name: "WebAssembly, 32-bit dot products",
    features: new Set<CpuFeature>(["simd128", "relaxed_dot", "relaxed_dot16"]),
  },
  {
    name: "WebAssembly, 16-bit dot products",
    features: new Set<CpuFeature>(["simd128", "relaxed_dot16", "split_dot"]),
  },
];

/** n, k and group size: groups within and across the columns that kernels unpack at once, some with padding. */
const shapes: readonly (readonly [number, number, number])[] = isEmulated
  ? [
      [33, 98, 64],
      [20, 1056, 1056],
      [36, 272, 16],
    ]
  : [
      [40, 160, 32],
      [33, 98, 64],
      [32, 1248, 96],
      [20, 2112, 2112],
      [36, 1296, 16],
    ];

/** Compares rows of calls of `m` rows with those of calls of one. */
function expectRows(
  width: number,
  y: (m: number, first: number, threads: number) => { readonly kernel: string; readonly y: Float32Array },
  name: string,
): void {
  const alone = Array.from({ length: most }, (_, row) => y(1, row, 1).y);
  expect(alone.some((row) => row.some((value) => value !== 0))).toBe(true);
  for (const m of counts) {
    const found = y(m, 0, 1 + (m % 3));
    for (let row = 0; row < m; row++)
      expectSame(
        found.y.subarray(row * width, (row + 1) * width),
        alone[row]!,
        `${name}, row ${row} of ${m}, ${found.kernel}`,
      );
  }
}

describe.each(cpus)("$name", (cpu) => {
  const skipped = !isUsable(cpu);
  const isCompiled = ({ target, needs }: Kernel<never>) =>
    target !== "reference" && needs.every((feature) => cpu.features.has(feature));
  const rowsOf = (x: Float32Array, k: number, first: number, m: number) => x.slice(first * k, (first + m) * k);
  for (const [family, kernels, halves] of [
    ["8-bit activations", table.linearA8, 1],
    ["8-bit activations in blocks", table.linearA8Blocks, 1],
    ["8-bit activations and a gate", table.linearA8Swiglu, 2],
    ["weights only", table.linearWeightOnly, 1],
  ] as const)
    for (const layout of ["panel16", "panel32", "torchao_universal"]) {
      const own = kernels.filter((kernel) => kernel.layouts?.includes(layout) && isCompiled(kernel));
      const names = own.map(({ name }) => name).join();
      if (own.length === 0 || tested.has(names) || isTestedElsewhere(own)) continue;
      if (!skipped) tested.add(names);
      it.skipIf(skipped).each([1, 2, 3, 4, 5, 6, 7, 8])(`linear layers, ${family}, ${layout}, %i bits`, (bits) => {
        const random = new Random(bits);
        for (const [shape, [columns, k, groupSize]] of shapes.entries())
          for (const [index, variant] of weightVariants.entries()) {
            // Each variant in two or three widths, with every second shape; integer scales whose factors change along k in all.
            const isOwn = (variant.scaleDType === "i8" || variant.scaleDType === "e4m3") && k > SUPER_GROUP;
            if ((index % 3 !== bits % 3 || (shape + bits) % 2 !== 0) && !isOwn) continue;
            const n = halves === 2 ? 64 : columns;
            const weights = randomWeights(random, { n, k, bits, groupSize, ...variant });
            if (layoutNamed(layout).refusal(weights) !== null) continue;
            const opened = openPacked(packWeights(weights, random.floats(n, 2), layoutNamed(layout)), weights);
            const kernelFor = (m: number) =>
              selectKernel(kernels as typeof table.linearA8, packedQuery(opened, m), cpu);
            const x = random.floats(most * k, 3);
            expectRows(
              n / halves,
              (m, first, threads) => {
                const args = { m, x: rowsOf(x, k, first, m), weights: opened, y: new Float32Array((m * n) / halves) };
                run(kernelFor(m), args, benchOf(threads));
                return { kernel: kernelFor(m).name, y: args.y };
              },
              `[${n}, ${k}] in groups of ${groupSize}, ${JSON.stringify(variant)}`,
            );
          }
      });
    }

  it.skipIf(skipped).each(["f32", "f16", "bf16"] as const)("linear layers, %s weights", (dtype) => {
    const random = new Random(9);
    const n = 40;
    for (const k of [5, 64, 75, 1100])
      for (const hasBias of [false, true]) {
        const weights = randomFloatWeights(random, n * k).find(({ stored }) => stored.dtype === dtype)!.stored;
        const bias = hasBias ? random.floats(n, 2) : null;
        const x = random.floats(most * k, 3);
        expectRows(
          n,
          (m, first, threads) => {
            const kernel = selectKernel(table.linearFloat, { layout: null, bits: null, m }, cpu);
            const args = { m, n, k, x: rowsOf(x, k, first, m), weights, bias, y: new Float32Array(m * n) };
            run(kernel, args, benchOf(threads));
            return { kernel: kernel.name, y: args.y };
          },
          `k ${k}, ${hasBias ? "bias" : "no bias"}`,
        );
      }
  });
});
