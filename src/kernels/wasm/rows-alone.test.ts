/** A row of activations has the same results, bit for bit, alone and among any number of others, on any number of threads. */
import { describe, expect, it } from "vitest";
import { type Bench, heap, run } from "../../../test/support/conformance.ts";
import { Random, randomFloatWeights, randomWeights, weightVariants } from "../../../test/support/random.ts";
import { expectSame } from "../../../test/support/same.ts";
import type { Cpu, CpuFeature, Kernel } from "../contract.ts";
import { layoutNamed, openPacked, packWeights } from "../layout/packed.ts";
import { packedQuery, selectKernel } from "../select.ts";
import * as table from "../table.ts";
import { wasmFeatures } from "./features.ts";

const counts = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 64];
const most = Math.max(...counts);
const benchOf = (threads: number): Bench => ({ memory: heap, threads });

const own = new Set<CpuFeature>(wasmFeatures());
const relaxed16: readonly CpuFeature[] = ["simd128", "relaxed_dot16", "split_dot"];
const cpus: readonly Cpu[] = [
  { name: "plain SIMD", features: new Set<CpuFeature>(["simd128"]) },
  { name: "32-bit dot products", features: new Set<CpuFeature>(["simd128", "relaxed_dot", "relaxed_dot16"]) },
  { name: "16-bit dot products", features: new Set(relaxed16) },
];
/** `split_dot` says which of two right ways is faster. */
const isUsable = ({ features }: Cpu) => [...features].every((name) => name === "split_dot" || own.has(name));

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
  const rowsOf = (x: Float32Array, k: number, first: number, m: number) => x.slice(first * k, (first + m) * k);
  const n = 40;

  for (const [family, kernels] of [
    ["8-bit activations", table.linearA8],
    ["weights only", table.linearWeightOnly],
  ] as const)
    for (const layout of ["panel16", "panel32"])
      it.skipIf(skipped).each([1, 2, 3, 4, 5, 6, 7, 8])(`linear layers, ${family}, ${layout}, %i bits`, (bits) => {
        const random = new Random(bits);
        for (const [index, variant] of weightVariants.entries()) {
          if (index % 2 !== bits % 2 && bits !== 8) continue;
          const weights = randomWeights(random, { n, k: 160, bits, groupSize: 32, ...variant });
          if (layoutNamed(layout).refusal(weights) !== null) continue;
          const opened = openPacked(packWeights(weights, random.floats(n, 2), layoutNamed(layout)), weights);
          const x = random.floats(most * 160, 3);
          expectRows(
            n,
            (m, first, threads) => {
              const kernel = selectKernel(kernels as typeof table.linearA8, packedQuery(opened, m), cpu);
              const args = { m, x: rowsOf(x, 160, first, m), weights: opened, y: new Float32Array(m * n) };
              run(kernel, args, benchOf(threads));
              return { kernel: kernel.name, y: args.y };
            },
            JSON.stringify(variant),
          );
        }
      });

  it.skipIf(skipped).each(["f32", "f16", "bf16"] as const)("linear layers, %s weights", (dtype) => {
    const random = new Random(9);
    for (const k of [5, 64, 75])
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

  it.skipIf(skipped)("norms, gates and softmax", () => {
    const random = new Random(10);
    const dim = 37;
    const [x, b, weight] = [random.floats(2 * most * dim, 3), random.floats(most * dim, 3), random.floats(dim, 2)];
    const part = (first: number, m: number) => ({ x: rowsOf(x, dim, first, m), y: new Float32Array(m * dim) });
    const calls: readonly (readonly [Kernel<never>, (first: number, m: number) => { readonly y: Float32Array }])[] = [
      [pick(table.rmsNorm), (first, m) => ({ ...part(first, m), dim, weight, eps: 1e-5 })],
      [
        pick(table.addRmsNorm),
        (first, m) => ({ ...part(first, m), addend: rowsOf(b, dim, first, m), alpha: 0.5, dim, weight, eps: 1e-5 }),
      ],
      [pick(table.softmax), (first, m) => ({ ...part(first, m), dim })],
      [pick(table.swigluHalves), (first, m) => ({ ...part(first, m), x: rowsOf(x, 2 * dim, first, m), dim })],
      [pick(table.gegluHalves), (first, m) => ({ ...part(first, m), x: rowsOf(x, 2 * dim, first, m), dim })],
      ...[table.swiglu, table.geglu, table.erfGeglu, table.quickGeglu, table.add].map((family) => {
        const args = (first: number, m: number) => ({
          ...{ a: rowsOf(x, dim, first, m), b: rowsOf(b, dim, first, m), alpha: 0.5, y: new Float32Array(m * dim) },
        });
        return [pick(family), args] as const;
      }),
    ];
    for (const [kernel, args] of calls)
      expectRows(
        dim,
        (m, first, threads) => {
          const call = args(first, m);
          run(kernel, call as never, benchOf(threads));
          return { kernel: kernel.name, y: call.y };
        },
        kernel.name,
      );
  });

  function pick<A>(family: readonly Kernel<A>[]): Kernel<never> {
    return selectKernel(family, { layout: null, bits: null, m: 1 }, cpu) as Kernel<never>;
  }
});
