/** Which rows serve weights with minima, or scales with factors, on each known CPU. */
import { expect, it } from "vitest";
import type { WeightSpec } from "../../../quantized.ts";
import type { KernelQuery } from "../../contract.ts";
import { cpuWith } from "../../cpu.ts";
import { knownCpus } from "../../known-cpus.ts";
import { packedQuery, selectKernel, selectLayout } from "../../select.ts";
import { linearA8 } from "../index.ts";

const sizes = { bits: 4, n: 64, k: 256, groupSize: 32, hasZeros: false, hasLevels: false } as const;
const specs: readonly WeightSpec[] = [
  { ...sizes, scaleDType: "i8", hasMinima: true },
  { ...sizes, scaleDType: "f16", hasMinima: true },
  { ...sizes, scaleDType: "f16", hasMinima: true, groupSize: 64 },
  { ...sizes, scaleDType: "f16", hasMinima: true, groupSize: 256 },
  { ...sizes, bits: 6, groupSize: 16, scaleDType: "i8" },
  { ...sizes, scaleDType: "i8", hasLevels: true },
  { ...sizes, bits: 3, groupSize: 16, scaleDType: "i8", hasLevels: true },
  { ...sizes, groupSize: 16, hasLevels: true, scaleDType: "e4m3" },
];

it.each(Object.keys(knownCpus))("%s has rows of its own for few and for many rows of activations", (name) => {
  const cpu = cpuWith(name);
  for (const spec of specs)
    for (const m of [1, 7, 16, 31, 64, 512]) {
      const query: KernelQuery = packedQuery({ layout: selectLayout(spec, cpu), spec }, m);
      expect(query.hasMinima ?? query.hasFactors).toBe(true);
      const kernel = selectKernel(linearA8, query, cpu);
      expect(kernel.readsMinima, `${kernel.name}, m ${m}`).toBe(true);
      // Weights without minima have rows for many rows of activations there; these must not fall to rows for few.
      const plain = selectKernel(linearA8, { ...query, hasMinima: false, hasFactors: false }, cpu);
      expect(kernel.mStep > 1, `${kernel.name}, m ${m}`).toBe(plain.mStep > 1);
      // Neither the reference nor the rows of every CPU of an architecture.
      expect(kernel.name, `m ${m}`).toMatch(/_(avx2|avx_vnni|avx512_vnni|amx_int8|neon|neon_dotprod|neon_i8mm|sme2)$/);
      expect(kernel.name, `m ${m}`).not.toMatch(/x1_(neon|sse2)$/);
    }
});
