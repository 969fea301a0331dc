import { describe, expect, it } from "vitest";
import { Random } from "../../../test/support/random.ts";
import { hostCpu } from "../../kernels/cpu.ts";
import { gptqRound } from "../../kernels/families/packing/kernels.ts";
import { canRunBlocksNatively } from "../../kernels/families/packing/quantizer.ts";
import { type Matrix, matrix } from "../../matrix.ts";
import { type GptqRows, plainBlocks } from "../../quantize/gptq-blocks.ts";
import { GroupFit } from "../../quantize/group-fit.ts";
import { emptyWeights } from "../../quantize/mse.ts";
import type { GroupSize, Scheme } from "../../quantize/scheme.ts";
import { nativeBlocks } from "./corrected-rows.ts";

/** Positive on the diagonal. */
function square(random: Random, k: number): Matrix {
  const result = matrix(k, k, random.floats(k * k, 0.2));
  for (let i = 0; i < k; i++) result.data[i * k + i] = 1 + random.floats(1)[0]! ** 2;
  return result;
}

function rowsOf(random: Random, n: number, k: number, scheme: Scheme, levels: Int8Array | null): GptqRows {
  const original = random.floats(n * k);
  // Rows of zeros, whose scales are 0 or the least there is.
  original.fill(0, 0, k);
  const result = emptyWeights(new GroupFit(n, k, scheme, levels));
  return { scheme, result, original, current: original.slice(), changes: new Float32Array(n * k) };
}

const schemes: readonly (Partial<Scheme> & { readonly levels?: Int8Array })[] = [
  { bits: 1 },
  { bits: 1, mappingType: "asymmetric", groupSize: 37 },
  { bits: 2, mappingType: "codebook" },
  { bits: 2, mappingType: "kmeans", groupSize: 16, scaleDType: "i8", levels: Int8Array.of(-63, -20, 8, 40) },
  { bits: 3, mappingType: "codebook", groupSize: "axis" },
  { bits: 3, mappingType: "asymmetric", groupSize: 128 },
  { bits: 4, mappingType: "codebook", scaleDType: "f16" },
  { bits: 4, scaleDType: "i8" },
  { bits: 5, groupSize: 100, scaleDType: "f16" },
  { bits: 8, groupSize: 1 },
];

describe.skipIf(!canRunBlocksNatively())("GPTQ's blocks in native code", () => {
  const cpus = gptqRound
    .filter(({ needs }) => needs.every((need) => hostCpu().features.has(need)))
    .map(({ name, needs }) => [name, { name: "invented", features: new Set(needs) }] as const);

  it.each(cpus)("are what plain loops compute, in every bit: %s", async (_, cpu) => {
    const random = new Random(5);
    for (const { levels = null, ...changes } of schemes)
      for (const [n, k, first, end] of [
        [1, 70, 0, 70],
        [17, 300, 0, 128],
        [18, 300, 256, 300],
      ] as const) {
        const groupSize: GroupSize = changes.groupSize ?? 32;
        const scheme: Scheme = {
          ...{ bits: 4, mappingType: "symmetric", algorithm: "gptq" },
          ...changes,
          groupSize,
          scaleDType: changes.scaleDType ?? "f32",
        };
        const [plain, native] = [1, 2].map(() => rowsOf(new Random(n + k), n, k, scheme, levels)) as [
          GptqRows,
          GptqRows,
        ];
        const importance = random.floats(k).map((value) => value * value);
        const gradient = random.floats(n * k);
        const [factor, hessian] = [square(random, k), square(random, k)];
        for (const [rows, tools] of [
          [plain, plainBlocks],
          [native, nativeBlocks(cpu)],
        ] as const) {
          await tools.roundBlock(rows, { first, end }, factor, importance);
          rows.current.set(gradient);
          await tools.sweepBlock(rows, { first, end }, hessian);
        }
        const label = `${JSON.stringify(scheme)} [${n}, ${k}] ${first}..${end}`;
        for (const name of ["qvals", "scales", "superScales", "zeros"] as const)
          expect(
            native.result[name]?.findIndex((value, i) => value !== plain.result[name]![i]) ?? -1,
            `${label} ${name}`,
          ).toBe(-1);
        expect(
          native.changes.findIndex((value, i) => value !== plain.changes[i]),
          `${label} changes`,
        ).toBe(-1);
      }
  });

  it("refuse weights that are not finite as plain loops do", async () => {
    for (const tools of [plainBlocks, nativeBlocks()]) {
      const rows = rowsOf(
        new Random(1),
        3,
        64,
        { bits: 4, groupSize: 32, mappingType: "symmetric", algorithm: "gptq", scaleDType: "f32" },
        null,
      );
      rows.current[100] = Number.POSITIVE_INFINITY;
      const importance = new Float32Array(64).fill(1);
      await expect(
        tools.roundBlock(rows, { first: 0, end: 64 }, square(new Random(2), 64), importance),
      ).rejects.toThrow(/weights must be finite/);
    }
  });
});
