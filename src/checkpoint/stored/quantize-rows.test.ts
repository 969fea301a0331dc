/** Quantizing by parts: the same in every bit as the definition, whatever rounds it and however floats are stored. */
import { afterEach, describe, expect, it, vi } from "vitest";
import { Random } from "../../../test/support/random.ts";
import { expectSameFields } from "../../../test/support/same.ts";
import type { TensorSource } from "../../formats/tensor-source.ts";
import { decodeF16Array, f32ToBf16, f32ToF16 } from "../../half.ts";
import { hostCpu } from "../../kernels/cpu.ts";
import { quantizeAffine } from "../../kernels/families/packing/kernels.ts";
import { canRoundNatively, roundNatively } from "../../kernels/families/packing/quantizer.ts";
import { codebooks, PAIRED_BITS } from "../../quantize/codebooks.ts";
import { int8DynamicActivationIntxWeight, type QuantizationConfig } from "../../quantize/config.ts";
import { trialsOf } from "../../quantize/group-fit.ts";
import { quantizeWeights } from "../../quantize/mse.ts";
import { type GroupSize, hasCodebook, mappingTypes, scaleDTypes, weightSpec } from "../../quantize/scheme.ts";
import { bytesOf, type Tensor, toFloat32 } from "../../tensor.ts";
import { joinRows, quantizeRows } from "./quantize-rows.ts";

afterEach(() => vi.unstubAllEnvs());

/** Values of many sizes, with zeros, ties and the ends of float32 among them. */
function values(random: Random, length: number): Float32Array {
  const special = [0, -0, 0.5, -0.5, 1e-40, -3.3e38, 3.3e38, 1e-30, 7.5, -8];
  const wide = random.integer(0, 3) === 0;
  return random.floats(length).map((value, i) => {
    if (wide && i % 7 === 0) return random.pick(special);
    return wide ? value * 2 ** random.integer(-40, 30) : value;
  });
}

function stored(dtype: "f32" | "f16" | "bf16", shape: [number, number], data: Float32Array): Tensor {
  if (dtype === "f32") return { dtype, shape, data };
  return { dtype, shape, data: Uint16Array.from(data, dtype === "f16" ? (v) => f32ToF16(v % 60000) : f32ToBf16) };
}

function source(tensor: Tensor): TensorSource {
  const k = tensor.shape[1]!;
  return {
    names: ["w"],
    has: () => true,
    info: () => tensor,
    read: async () => tensor,
    readRows: async (_, first, count) => ({
      ...tensor,
      shape: [count, k],
      data: tensor.data.slice(first * k, (first + count) * k),
    }),
  };
}

const schemes = mappingTypes.flatMap((mappingType) =>
  (["affine", "hqq_scale_only", "mse"] as const)
    .filter((algorithm) => algorithm !== "hqq_scale_only" || mappingType !== "asymmetric")
    .filter((algorithm) => algorithm === "mse" || !hasCodebook(mappingType))
    .flatMap((algorithm) => scaleDTypes.map((scaleDType) => ({ mappingType, algorithm, scaleDType })))
    .filter(
      ({ algorithm, scaleDType }) => scaleDType !== "i8" || (algorithm === "mse" && mappingType !== "asymmetric"),
    ),
);

/** Whether a group size and bits have scales of a type. */
const hasScales = (groupSize: GroupSize, bits: number, scaleDType: string) =>
  scaleDType !== "i8" || groupSize === 32 || (groupSize === 16 && PAIRED_BITS.includes(bits));

/** Bits that a mapping has. */
const bitsOf = (mappingType: (typeof mappingTypes)[number]) =>
  [1, 2, 3, 4, 5, 6, 7, 8].filter((bits) => !hasCodebook(mappingType) || codebooks[bits] !== undefined);

async function quantized(tensor: Tensor, config: QuantizationConfig, columns: Float32Array | null = null) {
  const importance = async () => columns;
  return joinRows(tensor.shape[0]!, quantizeRows(source(tensor), "w", { config, importance }));
}

describe.skipIf(!canRoundNatively("f32"))("native rounding", () => {
  it.each(schemes)("$mappingType, $algorithm, $scaleDType scales", async (scheme) => {
    const random = new Random(mappingTypes.indexOf(scheme.mappingType) + 1);
    for (const bits of bitsOf(scheme.mappingType))
      for (const groupSize of ([1, 16, 32, 37, 128, "axis"] as const).filter((size) =>
        hasScales(size, bits, scheme.scaleDType),
      ))
        for (const dtype of ["f32", "f16", "bf16"] as const) {
          const [n, k] = [random.integer(1, 9), random.pick([1, 31, 64, 100, 257, 600])];
          const config = int8DynamicActivationIntxWeight({ bits, groupSize, ...scheme });
          const tensor = stored(dtype, [n, k], values(random, n * k));
          const columns = random.pick([null, random.floats(k).map((value) => value * value), new Float32Array(k)]);
          const expected = quantizeWeights(toFloat32(tensor), { ...config, n, k }, columns);
          const label = `${bits} bits, groups of ${groupSize}, ${dtype}, [${n}, ${k}]`;
          expectSameFields(await quantized(tensor, config, columns), expected, label);
        }
  });

  it("is the same on every instruction set of this CPU", async () => {
    const random = new Random(3);
    const [n, k] = [5, 203];
    const counts = { qvals: n * k, scales: n * 7 };
    for (const { needs } of quantizeAffine.filter((row) => row.needs.every((need) => hostCpu().features.has(need))))
      for (const { mappingType, algorithm, scaleDType } of schemes)
        for (const bits of bitsOf(mappingType)) {
          const tensor = stored("bf16", [n, k], values(random, n * k));
          const config = int8DynamicActivationIntxWeight({ bits, mappingType, algorithm, scaleDType });
          const found = { qvals: new Int8Array(counts.qvals), scales: new Float32Array(counts.scales) };
          const superScales = new Float32Array(scaleDType === "i8" ? n : 0);
          const zeros = new Int8Array(counts.scales);
          const { oddZero = 0 } = weightSpec(n, k, config);
          const { factors: trials, levels } = trialsOf(config);
          const importance = random.floats(k).map((value) => value * value);
          const form = {
            ...{ n, k, bits, groupSize: 32, dtype: "bf16" as const, mappingType, algorithm, oddZero },
            ...{ importance, trials, levels: levels ?? new Int8Array(0), scaleType: scaleDType },
          };
          const cpu = { name: "invented", features: new Set(needs) };
          expect(await roundNatively({ ...form, weights: tensor.data, ...found, superScales, zeros }, cpu)).toBe(true);
          const expected = quantizeWeights(toFloat32(tensor), { ...config, n, k }, importance);
          expectSameFields(
            { ...found, superScales, zeros },
            {
              qvals: expected.qvals,
              scales: expected.scales,
              superScales: expected.superScales ?? superScales,
              zeros: expected.zeros ?? new Int8Array(counts.scales),
            },
            `${needs} ${mappingType} ${algorithm} ${scaleDType} ${bits}`,
          );
        }
  });

  it("reads every binary16 number", async () => {
    const halves = Uint16Array.from({ length: 65536 }, (_, i) => i).filter((bits) => (bits & 0x7c00) !== 0x7c00);
    const floats = new Float32Array(halves.length);
    decodeF16Array(halves, floats);
    const config = int8DynamicActivationIntxWeight({ bits: 8, groupSize: 1 });
    const shape = [1, halves.length];
    expectSameFields(
      await quantized({ dtype: "f16", shape, data: halves }, config),
      await quantized({ dtype: "f32", shape, data: floats }, config),
    );
  });
});

it.each(["scalar", "neoverse-v2", "zen3"])("is the definition's where LOWBIT_CPU is %s", async (cpu) => {
  vi.stubEnv("LOWBIT_CPU", cpu);
  const tensor = stored("bf16", [3, 70], values(new Random(7), 210));
  const config = int8DynamicActivationIntxWeight({ bits: 4, mappingType: "asymmetric" });
  expectSameFields(await quantized(tensor, config), quantizeWeights(toFloat32(tensor), { ...config, n: 3, k: 70 }));
});

it("parts are whole panels, and together the matrix", async () => {
  const k = 1 << 15;
  const row = stored("bf16", [1, k], values(new Random(5), k));
  const data = new Uint16Array(133 * k).map((_, i) => (row.data as Uint16Array)[i % k]! + Math.floor(i / k));
  const tensor: Tensor = { dtype: "bf16", shape: [133, k], data };
  const config = int8DynamicActivationIntxWeight({ bits: 4, mappingType: "asymmetric" });
  const rows: number[] = [];
  for await (const { n } of quantizeRows(source(tensor), "w", { config })) rows.push(n);
  expect(rows).toEqual([32, 32, 32, 32, 5]);
  const [found, expected] = [
    await quantized(tensor, config),
    quantizeWeights(toFloat32(tensor), { ...config, n: 133, k }),
  ];
  for (const field of ["qvals", "scales", "zeros"] as const)
    expect(Buffer.compare(bytesOf(found[field]!), bytesOf(expected[field]!)), field).toBe(0);
});

it.each([Number.NaN, Number.POSITIVE_INFINITY])("says where a weight is %f", async (value) => {
  const tensor = stored("f32", [70, 1 << 15], new Float32Array(70 << 15));
  tensor.data[(65 << 15) + 17] = value;
  for (const bits of [1, 4])
    await expect(quantized(tensor, int8DynamicActivationIntxWeight({ bits }))).rejects.toThrow(
      `w, rows 64 to 70: quantizeAffine: weights must be finite, got ${value} in row 1, column 17`,
    );
});
