/**
 * What 8-bit activations cost models of 2026 is what their rounding costs: models with float kernels, whose linear layers get
 * inputs that were rounded as TorchAO rounds them, or in blocks, give the same logits as the kernels of 8-bit activations.
 */
import { afterEach, describe, expect, it, vi } from "vitest";
import {
  EagerModel,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  loadCheckpoint,
  type QuantizationConfig,
  quantize,
} from "../src/index.ts";
import { EagerBuilder } from "../src/ops/eager.ts";
import type { Tensor } from "../src/tensor.ts";
import { distance } from "./support/distance.ts";
import { goldenOf, hasModels2026, modelFolder, models2026 } from "./support/models-2026.ts";

/** Rows as 8-bit integers and back: a scale and a zero point a row, of its range with 0. */
function rounded({ shape, data }: Tensor): Tensor {
  const columns = shape.at(-1)!;
  const values = Float32Array.from(data as Float32Array);
  for (let start = 0; start < values.length; start += columns) {
    const row = values.subarray(start, start + columns);
    const [low, high] = [Math.min(0, ...row), Math.max(0, ...row)];
    const scale = Math.fround(Math.max((high - low) / 255, 2 ** -23));
    const inverse = Math.fround(1 / scale);
    const zero = -128 - roundHalfEven(Math.fround(low / scale));
    for (const [i, value] of row.entries())
      row[i] = (Math.max(-128, Math.min(127, roundHalfEven(Math.fround(value * inverse)) + zero)) - zero) * scale;
  }
  return { dtype: "f32", shape, data: values };
}

/** The same with a scale for each block of 32, the size of the groups. */
function roundedBlocks({ shape, data }: Tensor): Tensor {
  const columns = shape.at(-1)!;
  const values = Float32Array.from(data as Float32Array);
  const starts = Array.from({ length: values.length / columns }, (_, row) => row * columns).flatMap((row) =>
    Array.from({ length: Math.ceil(columns / 32) }, (_, block) => [
      row + 32 * block,
      row + Math.min(32 * block + 32, columns),
    ]),
  );
  for (const [start, end] of starts) {
    const block = values.subarray(start, end);
    const scale = Math.fround(Math.max(Math.fround(Math.max(...block.map(Math.abs)) / 127), 2 ** -126));
    const inverse = Math.fround(1 / scale);
    for (const [i, value] of block.entries()) block[i] = roundHalfEven(Math.fround(value * inverse)) * scale;
  }
  return { dtype: "f32", shape, data: values };
}

function roundHalfEven(value: number): number {
  const whole = Math.round(value);
  return Math.abs(value - Math.trunc(value)) === 0.5 && whole % 2 !== 0 ? whole - 1 : whole;
}

/** Linear layers of weights in few bits and float activations. */
const LINEAR = /^lowbit::(expert_)?linear_weight_only\.out$/;

/** Rounds what goes into such layers, of eager models, from now on. */
function roundInputs(round: typeof rounded): void {
  const { call } = EagerBuilder.prototype;
  vi.spyOn(EagerBuilder.prototype, "call").mockImplementation(function (this: EagerBuilder, name, x, ...others) {
    return call.call(this, name, LINEAR.test(name) ? round(x as Tensor) : x, ...others);
  });
}

async function logitsOf(name: string, config: QuantizationConfig): Promise<Float32Array> {
  const model = await loadCheckpoint(modelFolder(name));
  model.activations = "float";
  quantize(model, [config]);
  const eager = await EagerModel.load(model, { logits: "all" });
  const logits = eager.forward(goldenOf(name).input_ids, 0).data as Float32Array;
  await model.close();
  return logits;
}

describe.skipIf(!hasModels2026)("models of ../shared (skipped without it)", () => {
  afterEach(() => vi.restoreAllMocks());

  const ways = [
    ["per_token", rounded],
    ["per_block", roundedBlocks],
  ] as const;
  it.each(Object.keys(models2026).flatMap((name, i) => [[name, ...ways[i % 2]!] as const]))(
    "%s in 4 bits: activations in 8 bits, %s, are float ones of rounded inputs",
    async (name, activationGranularity, round) => {
      const options = { bits: 4, groupSize: 32 } as const;
      const found = await logitsOf(name, int8DynamicActivationIntxWeight({ ...options, activationGranularity }));
      const exact = await logitsOf(name, intxWeightOnly(options));
      roundInputs(round);
      const expected = await logitsOf(name, intxWeightOnly(options));
      // The hook is there: rounded inputs change what comes of them.
      expect(distance(expected, exact).relative).toBeGreaterThan(0.001);
      // Equal to the last bits, but where sums in another order move a value across the middle between two integers.
      expect(distance(found, expected).relative).toBeLessThan(0.004);
    },
  );
});
