/**
 * Reads NVIDIA ModelOpt's unified checkpoints: NVFP4 (`weight` with two e2m1 codes in a byte, an e4m3 `weight_scale` for each
 * 16 weights, and `weight_scale_2` that multiplies them all) and FP8 (e4m3 `weight` with `weight_scale`). The tensors tell them
 * apart.
 */
import type { ComputedMatrix } from "../computed-tensors.ts";
import { floatTypes, type QuantizedFiles, type QuantizedFormat } from "./files.ts";
import { float4Matrix } from "./float4.ts";
import { activationParts, float8Matrix, float8Modules } from "./float8.ts";
import { readScales, rowScales, scaleType, unknownName } from "./scales.ts";
import { float8Values } from "./small-floats.ts";

const algorithms = [
  "NVFP4",
  "W4A16_NVFP4",
  "W4A8_NVFP4_FP8",
  "NVFP4_AWQ",
  "FP8",
  "FP8_PER_CHANNEL_PER_TOKEN",
  "FP8_PB_WO",
  "MIXED_PRECISION",
];
/** Block shape of FP8_PB_WO. */
const BLOCK = { rows: 128, columns: 128 };

export const modelOpt: QuantizedFormat = {
  name: "ModelOpt",
  methods: ["modelopt", "modelopt_fp4", "modelopt_mixed"],
  async read(files) {
    const algorithm = files.text("quant_algo");
    if (algorithm !== null && !algorithms.includes(algorithm.toUpperCase()))
      throw unknownName(files, "quant_algo", algorithms, algorithm);
    const packed = files
      .modules("weight")
      .filter((module) => isPacked(files, module))
      .map((module) => nvfp4(files, module));
    const done = new Set(packed.map(({ name }) => name));
    const others = float8Modules(files).filter((module) => !done.has(`${module}.weight`));
    const block = algorithm?.toUpperCase() === "FP8_PB_WO" ? BLOCK : null;
    return [...packed, ...others.map((module) => float8Matrix(files, module, block))];
  },
};

/** Whether a module is NVFP4: its weight has bytes that are no 8-bit floats. */
function isPacked({ tensors }: QuantizedFiles, module: string): boolean {
  const name = `${module}.weight`;
  return tensors.info(name).dtype === "u8" && float8Values(tensors.storedType?.(name) ?? "u8") === null;
}

function nvfp4(files: QuantizedFiles, module: string): ComputedMatrix {
  const [name, scale, whole] = [`${module}.weight`, `${module}.weight_scale`, `${module}.weight_scale_2`] as const;
  const [n = 0, bytes = 0] = files.info(name, ["u8"], 2).shape;
  const values = scaleType(files, scale);
  const types = [...floatTypes, "u8"] as const;
  const groups = files.info(scale, types, 2).shape[1]!;
  files.expect(scale, types, [n, groups]);
  files.expect(whole, floatTypes, [], [1]);
  const k = 2 * bytes;
  if (groups === 0 || k % groups !== 0) throw files.shapeError(scale, `equal groups of ${k} columns`, [n, groups]);
  return float4Matrix({
    ...{ name, shape: [n, k], groupSize: k / groups, stored: "NVFP4" },
    parts: files.partsOf(module, ["weight", "weight_scale", "weight_scale_2", "pre_quant_scale", ...activationParts]),
    bytes: async (first, count) => (await files.tensors.readRows(name, first, count)).data as Uint8Array,
    scales: (first, count) => rowScales(files, scale, values, first, count),
    hasE4m3Scales: values === float8Values("F8_E4M3"),
    factor: { divides: false, read: async () => (await readScales(files, whole))[0]! },
  });
}
