/** The tiny checkpoint with its linear layers stored as random AQLM codes. */
import { readFileSync, writeFileSync } from "node:fs";
import { type TensorEntry, writeSafetensors } from "../../src/formats/safetensors-writer.ts";
import { f32ToF16 } from "../../src/half.ts";
import { Random } from "./random.ts";
import { type TinyConfig, tinyShapes, writeTinyCheckpoint } from "./tiny-checkpoint.ts";

export interface TinyAqlm {
  readonly codebooks: number;
  readonly bits: number;
  readonly inGroup: number;
  readonly outGroup: number;
  readonly config?: TinyConfig;
  /** Modules that stay float; the head always does. */
  readonly plain?: readonly string[];
  /** Changes the entries before they are written. */
  readonly edit?: (entries: TensorEntry[]) => TensorEntry[];
  /** Field of config.json for the numbers. Default "quantization_config". */
  readonly field?: string;
  /** `quant_method` there. Default "aqlm". */
  readonly method?: string;
}

const linear = /^model\.layers\..*_proj\.weight$/;

/** Writes the folder. */
export async function writeAqlmCheckpoint(folder: string, options: TinyAqlm): Promise<void> {
  const { codebooks, bits, inGroup, outGroup, config = {}, plain = [], edit } = options;
  const { field = "quantization_config", method = "aqlm" } = options;
  await writeTinyCheckpoint(folder, { config });
  const random = new Random(3);
  const halves = (length: number, size: number) => Uint16Array.from(random.floats(length, size), f32ToF16);
  const entry = (
    name: string,
    dtype: TensorEntry["dtype"],
    shape: number[],
    data: Int8Array | Int16Array | Uint16Array,
  ) => ({ name, dtype, shape, data: async () => data });
  const entries = [...tinyShapes(config)].flatMap(([name, shape]): TensorEntry[] => {
    const count = shape.reduce((product, size) => product * size, 1);
    const module = name.replace(/\.weight$/, "");
    if (!linear.test(name) || plain.includes(module)) return [entry(name, "f16", [...shape], halves(count, 0.4))];
    const [outputs, inputs] = [shape[0]! / outGroup, shape[1]! / inGroup];
    const half = 2 ** (bits - 1);
    const codes = Array.from({ length: outputs * inputs * codebooks }, () => random.integer(-half, half - 1));
    const vectors = halves(codebooks * 2 ** bits * outGroup * inGroup, 0.4);
    return [
      entry(
        `${module}.codes`,
        bits <= 8 ? "i8" : "i16",
        [outputs, inputs, codebooks],
        bits <= 8 ? Int8Array.from(codes) : Int16Array.from(codes),
      ),
      entry(`${module}.codebooks`, "f16", [codebooks, 2 ** bits, outGroup, inGroup], vectors),
      entry(
        `${module}.scales`,
        "f16",
        [outputs, 1, 1, 1],
        halves(outputs, 0.5).map((v) => v & 0x7fff),
      ),
    ];
  });
  await writeSafetensors(`${folder}/model.safetensors`, edit ? edit(entries) : entries);
  const path = `${folder}/config.json`;
  const numbers = {
    quant_method: method,
    num_codebooks: codebooks,
    nbits_per_codebook: bits,
    in_group_size: inGroup,
    out_group_size: outGroup,
    linear_weights_not_to_quantize: ["lm_head.weight"],
  };
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), [field]: numbers }));
}
