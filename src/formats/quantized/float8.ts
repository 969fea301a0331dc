/** Matrices of 8-bit floats with scales: weight = value * scale. */
import type { ComputedMatrix } from "../computed-tensors.ts";
import type { QuantizedFiles, QuantizedFormat } from "./files.ts";
import { blockSetting, readScales, type ScaleBlocks, scaleBlocks, scaleType } from "./scales.ts";
import { float8Values } from "./small-floats.ts";

/** Tensors about quantized activations, which are ignored: activations are floats here. */
export const activationParts = [
  "activation_scale",
  "input_scale",
  "input_zero_point",
  "input_global_scale",
  "output_scale",
  "output_zero_point",
  "weight_scale_inv",
  "input_scale_ub",
] as const;

/**
 * The methods "fp8" of transformers, as in DeepSeek and Ministral files, and "fbgemm_fp8": `weight_scale_inv` or `weight_scale`
 * multiplies, per tensor, row, or block of `weight_block_size`.
 */
export const float8: QuantizedFormat = {
  name: "FP8",
  methods: ["fp8", "fbgemm_fp8"],
  async read(files) {
    const block = blockSetting(files, "weight_block_size", files.settings.weight_block_size);
    return float8Modules(files).map((module) => float8Matrix(files, module, block));
  },
};

/** Names of the modules whose weight has an 8-bit float type. */
export function float8Modules(files: QuantizedFiles): readonly string[] {
  const { tensors } = files;
  const isFloat8 = (module: string) => float8Values(tensors.storedType?.(`${module}.weight`) ?? "") !== null;
  return files
    .modules("weight")
    .filter((module) => isFloat8(module) && tensors.info(`${module}.weight`).shape.length === 2);
}

export function float8Matrix(files: QuantizedFiles, module: string, block: ScaleBlocks | null): ComputedMatrix {
  const name = `${module}.weight`;
  const scale = files.tensors.has(`${module}.weight_scale_inv`)
    ? `${module}.weight_scale_inv`
    : `${module}.weight_scale`;
  const shape = files.tensors.info(name).shape as [number, number];
  const [n, k] = shape;
  const stored = files.tensors.storedType!(name);
  const values = float8Values(stored)!;
  scaleType(files, scale);
  const blocks = scaleBlocks(files, scale, shape, block);
  const across = Math.ceil(k / blocks.columns);
  return {
    ...{ name, shape, stored },
    parts: [name, ...files.partsOf(module, ["weight_scale", ...activationParts])],
    lowBit: null,
    async rows(first, count) {
      const codes = (await files.tensors.readRows(name, first, count)).data as Uint8Array;
      const scales = await readScales(files, scale);
      const result = new Float32Array(count * k);
      for (let row = 0, i = 0; row < count; row++) {
        const start = Math.floor((first + row) / blocks.rows) * across;
        for (let c = 0; c < k; c++, i++)
          result[i] = values[codes[i]!]! * scales[start + Math.floor(c / blocks.columns)]!;
      }
      const bad = result.findIndex((value) => Number.isNaN(value));
      if (bad >= 0) throw files.valueError(name, "numbers", `NaN in row ${first + Math.floor(bad / k)} of ${n}`);
      return result;
    },
  };
}
