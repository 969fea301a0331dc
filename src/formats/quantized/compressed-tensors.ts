/**
 * Reads compressed-tensors, as llm-compressor writes it: integers in 32-bit words (pack-quantized) or bytes (int-quantized),
 * 8-bit floats (float-quantized, mxfp8) and 4-bit floats (nvfp4, mxfp4), with scales per tensor, row, group or block. The
 * format of a module follows from its tensors; `config_groups` gives sizes that the tensors leave open.
 */
import { UnsupportedError } from "../../errors.ts";
import type { ComputedMatrix } from "../computed-tensors.ts";
import { isObject, type JsonObject } from "../json.ts";
import type { QuantizedFiles, QuantizedFormat } from "./files.ts";
import { float4Matrix } from "./float4.ts";
import { activationParts, float8Matrix, float8Modules } from "./float8.ts";
import { bytesMatrix, packedMatrix, type WeightRules } from "./packed-rows.ts";
import { blockSetting, readDivisor, rowScales, scaleType, unknownName } from "./scales.ts";
import { float8Values } from "./small-floats.ts";

const known = [
  "pack-quantized",
  "int-quantized",
  "float-quantized",
  "naive-quantized",
  "nvfp4-pack-quantized",
  "mxfp4-pack-quantized",
  "mxfp8-quantized",
  "mixed-precision",
  "dense",
];

export const compressedTensors: QuantizedFormat = {
  name: "compressed-tensors",
  methods: ["compressed-tensors", "compressed_tensors"],
  async read(files) {
    const groups = weightRules(files);
    const { transform_config: transforms, sparsity_config: sparsity } = files.settings;
    if (isObject(transforms) && isObject(transforms.config_groups) && Object.keys(transforms.config_groups).length > 0)
      throw new UnsupportedError(
        `${files.configFile}: quantization_config.transform_config: rotations of activations are not supported; use a model without transforms`,
      );
    const sparse = isObject(sparsity) ? files.text("format", sparsity) : null;
    if (sparse !== null && sparse !== "dense") throw unknownName(files, "sparsity_config.format", ["dense"], sparse);
    const matrices: ComputedMatrix[] = [];
    for (const module of files.modules("weight_packed"))
      matrices.push(
        files.tensors.info(`${module}.weight_packed`).dtype === "u8"
          ? packedFloats(files, module)
          : await packedMatrix(files, module, groups),
      );
    const block = groups.find((rules) => rules.block !== null)?.block ?? null;
    for (const module of float8Modules(files)) matrices.push(float8Matrix(files, module, block));
    for (const module of files.modules("weight")) {
      const weight = `${module}.weight`;
      if (files.tensors.has(`${module}.weight_packed`)) continue;
      const { dtype } = files.tensors.info(weight);
      if (dtype === "i8") matrices.push(await bytesMatrix(files, module, groups));
      else if (dtype !== "u8" && files.tensors.has(`${module}.weight_scale`))
        throw new UnsupportedError(
          `${files.folder}, tensor ${weight}: float weights of ${dtype} beside weight_scale are not compressed; save the model compressed, or without quantization_config`,
        );
    }
    return matrices;
  },
};

function weightRules(files: QuantizedFiles): readonly WeightRules[] {
  const format = files.text("format");
  if (format !== null && !known.includes(format)) throw unknownName(files, "format", known, format);
  const { config_groups: groups } = files.settings;
  if (groups === undefined || groups === null) return [];
  if (!isObject(groups)) throw files.settingError("config_groups", "an object", groups);
  return Object.entries(groups).map(([name, group]) => {
    const field = `config_groups.${name}`;
    if (!isObject(group)) throw files.settingError(field, "an object", group);
    const own = files.text("format", group);
    if (own !== null && !known.includes(own)) throw unknownName(files, `${field}.format`, known, own);
    const { weights } = group;
    if (weights === undefined || weights === null) return { bits: null, groupSize: null, block: null, symmetric: true };
    if (!isObject(weights)) throw files.settingError(`${field}.weights`, "an object", weights);
    return rulesOf(files, `${field}.weights`, weights);
  });
}

function rulesOf(files: QuantizedFiles, field: string, weights: JsonObject): WeightRules {
  const type = files.text("type", weights) ?? "int";
  if (type !== "int" && type !== "float") throw unknownName(files, `${field}.type`, ["int", "float"], type);
  const strategies = ["tensor", "channel", "group", "block", "tensor_group"];
  const strategy = files.text("strategy", weights);
  if (strategy !== null && !strategies.includes(strategy))
    throw unknownName(files, `${field}.strategy`, strategies, strategy);
  const size = weights.group_size ?? null;
  return {
    bits: files.whole("num_bits", 1, 16, weights),
    groupSize: size === null || size === -1 ? null : files.whole("group_size", 1, 2 ** 31 - 1, weights),
    block: blockSetting(files, `${field}.block_structure`, weights.block_structure),
    symmetric: files.boolean("symmetric", true, weights),
  };
}

/** Reads 4-bit floats: NVFP4 if there is a `weight_global_scale`, which divides the e4m3 scales, else MXFP4. */
function packedFloats(files: QuantizedFiles, module: string): ComputedMatrix {
  const [packed, scale, whole] = ["weight_packed", "weight_scale", "weight_global_scale"].map(
    (part) => `${module}.${part}`,
  ) as [string, string, string];
  const [n = 0, bytes = 0] = files.info(packed, ["u8"], 2).shape;
  const values = scaleType(files, scale);
  const groups = files.info(scale, ["u8", "f32", "f16", "bf16"], 2).shape[1]!;
  files.expect(scale, ["u8", "f32", "f16", "bf16"], [n, groups]);
  const k = 2 * bytes;
  if (groups === 0 || k % groups !== 0) throw files.shapeError(scale, `equal groups of ${k} columns`, [n, groups]);
  const isNvidia = files.tensors.has(whole) || files.tensors.storedType?.(scale) === "F8_E4M3";
  if (isNvidia) files.expect(whole, ["f32", "f16", "bf16"], [1], []);
  return float4Matrix({
    ...{ name: `${module}.weight`, shape: [n, k], groupSize: k / groups },
    stored: isNvidia ? "NVFP4" : "MXFP4",
    parts: files.partsOf(module, [
      "weight_packed",
      "weight_scale",
      "weight_global_scale",
      "weight_shape",
      ...activationParts,
    ]),
    bytes: async (first, count) => (await files.tensors.readRows(packed, first, count)).data as Uint8Array,
    scales: (first, count) => rowScales(files, scale, values, first, count),
    hasE4m3Scales: values !== null && values === float8Values("F8_E4M3"),
    ...(isNvidia && { factor: { divides: true, read: () => readDivisor(files, whole) } }),
  });
}
