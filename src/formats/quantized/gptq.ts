/**
 * GPTQ's layout, as AutoGPTQ and GPTQModel write it, for k inputs and n outputs: `qweight` [k * bits / 32, n] packs the
 * integers of an output down its column, `qzeros` [groups, n * bits / 32] packs zero points along its rows, `scales` is
 * [groups, n], and `g_idx` [k] has the group of each input. Version 1 stores zero points less one.
 */
import { UnsupportedError } from "../../errors.ts";
import { toFloat32 } from "../../tensor.ts";
import type { ComputedMatrix } from "../computed-tensors.ts";
import { integerAt, unpackColumns, wordsOf } from "./bit-stream.ts";
import { floatTypes, type QuantizedFiles, type QuantizedFormat } from "./files.ts";
import { groupedMatrix, type StoredRows, transposed } from "./grouped-integers.ts";

/** Settings from the config that apply to all modules. */
export interface GptqRules {
  /** Name of the method, for messages. */
  readonly method: string;
  readonly bits: number;
  /** Group size; null for one group per row. */
  readonly groupSize: number | null;
  /** Whether modules may have their own bits and group size, which then follow from their tensors' sizes. */
  readonly hasOverrides: boolean;
  /** Whether all zero points are 2^(bits-1). */
  readonly symmetric: boolean;
  /** Offset added to stored zero points, modulo 2^bits. */
  readonly zeroOffset: 0 | 1;
}

export const gptq: QuantizedFormat = {
  name: "GPTQ",
  methods: ["gptq"],
  async read(files) {
    const { settings } = files;
    const format = (files.text("checkpoint_format") ?? files.text("format") ?? "gptq").toLowerCase();
    const isMarlin = files.boolean("is_marlin_format", false);
    if ((format !== "gptq" && format !== "gptq_v2") || isMarlin)
      throw new UnsupportedError(
        `${files.configFile}: quantization_config.checkpoint_format: expected "gptq" or "gptq_v2" but found "${isMarlin ? "marlin" : format}"; use the same model in GPTQ's own format`,
      );
    const packed = files.text("pack_dtype") ?? "int32";
    if (packed !== "int32")
      throw new UnsupportedError(
        `${files.configFile}: quantization_config.pack_dtype: expected "int32" but found "${packed}"`,
      );
    const hasOverrides = settings.dynamic !== undefined && settings.dynamic !== null;
    return gptqMatrices(files, {
      method: "GPTQ",
      bits: bitsOf(files),
      groupSize: groupSizeOf(files),
      hasOverrides,
      symmetric: files.boolean("sym", true) && !hasOverrides,
      zeroOffset: format === "gptq" ? 1 : 0,
    });
  },
};

/** The required field `bits` of the config. */
export function bitsOf(files: QuantizedFiles, field = "bits", low = 2): number {
  const bits = files.whole(field, low, 8);
  if (bits !== null) return bits;
  throw files.settingError(field, `a whole number from ${low} to 8`, undefined);
}

/** The field `group_size` of the config; null for -1, which means one group per row. */
export function groupSizeOf(files: QuantizedFiles, field = "group_size"): number | null {
  const found = files.settings[field] ?? null;
  return found === null || found === -1 ? null : files.whole(field, 1, 2 ** 31 - 1);
}

/** Matrices of all modules with `qweight` in this layout. */
export async function gptqMatrices(files: QuantizedFiles, rules: GptqRules): Promise<ComputedMatrix[]> {
  const matrices: ComputedMatrix[] = [];
  for (const module of files.modules("qweight")) matrices.push(await gptqMatrix(files, module, rules));
  return matrices;
}

/** Sizes of a module. */
interface GptqSizes {
  readonly n: number;
  readonly k: number;
  readonly bits: number;
  readonly groupCount: number;
  readonly groupSize: number;
}

async function gptqMatrix(files: QuantizedFiles, module: string, rules: GptqRules): Promise<ComputedMatrix> {
  const part = (name: string) => `${module}.${name}`;
  const sizes = sizesOf(files, module, rules);
  const { n, k, bits, groupCount, groupSize } = sizes;
  const groups = await groupIndices(files, part("g_idx"), sizes);
  const words = (n * bits) / 32;
  const rows = async (first: number, count: number): Promise<StoredRows> => {
    const read = (name: string) => files.readWhole(module, name, first + count === n);
    const packed = wordsOf((await read("qweight")).data);
    const codes = unpackColumns(packed, { first, bits, stride: n }, [count, k]);
    const scales = toFloat32(await read("scales"));
    const storedZeros = wordsOf((await read("qzeros")).data);
    const zeros = new Uint8Array(count * groupCount);
    for (let row = 0, i = 0; row < count; row++)
      for (let group = 0; group < groupCount; group++, i++)
        zeros[i] = (integerAt(storedZeros, group * words, first + row, bits) + rules.zeroOffset) & ((1 << bits) - 1);
    const target = new Float32Array(count * groupCount);
    return { codes, scales: transposed(scales, n, first, count, target), zeros };
  };
  return groupedMatrix({
    folder: files.folder,
    name: part("weight"),
    shape: [n, k],
    ...{ bits, groupSize, groups, rows },
    scaleDType: files.tensors.info(part("scales")).dtype === "f16" ? "f16" : "f32",
    stored: `${rules.method} ${bits}-bit`,
    parts: files.partsOf(module, ["qweight", "qzeros", "scales", "g_idx"]),
    hasZeros: !rules.symmetric,
    zerosName: part("qzeros"),
    scalesName: part("scales"),
  });
}

function sizesOf(files: QuantizedFiles, module: string, rules: GptqRules): GptqSizes {
  const [weights, zeros, scales] = ["qweight", "qzeros", "scales"].map((name) => `${module}.${name}`) as [
    string,
    string,
    string,
  ];
  const [wordRows = 0, n = 0] = files.info(weights, ["i32", "u32"], 2).shape;
  const [groupCount = 0] = files.info(scales, floatTypes, 2).shape;
  files.expect(scales, floatTypes, [groupCount, n]);
  const zeroShape = files.info(zeros, ["i32", "u32"], 2).shape;
  const bits = rules.hasOverrides ? (32 * zeroShape[1]!) / n : rules.bits;
  const k = (32 * wordRows) / bits;
  if (!Number.isInteger(bits) || bits < 2 || bits > 8 || !Number.isInteger(k) || k === 0)
    throw files.shapeError(
      weights,
      `whole rows of 32-bit words with integers of ${rules.hasOverrides ? "2 to 8" : bits} bits`,
      [wordRows, n],
    );
  files.expect(zeros, ["i32", "u32"], [groupCount, (n * bits) / 32]);
  const groupSize = groupSizeFor(k, groupCount, rules);
  if (groupSize === null)
    throw files.shapeError(
      scales,
      `groups of ${rules.groupSize ?? "all"} of ${k} inputs, as quantization_config.group_size says,`,
      [groupCount, n],
    );
  return { n, k, bits, groupCount, groupSize };
}

/**
 * Group size of a module with this many groups: that of the config, or equal parts where modules may differ; null if neither
 * fits.
 */
export function groupSizeFor(
  k: number,
  groups: number,
  { groupSize, hasOverrides }: Pick<GptqRules, "groupSize" | "hasOverrides">,
): number | null {
  const said = Math.min(groupSize ?? k, k);
  if (Math.ceil(k / said) === groups) return said;
  return hasOverrides && groups > 0 && k % groups === 0 ? k / groups : null;
}

/**
 * The group of each input where groups are not consecutive inputs; null where they are, or where there is no `g_idx`, which
 * `desc_act` requires.
 */
async function groupIndices(
  files: QuantizedFiles,
  name: string,
  { k, groupCount, groupSize }: GptqSizes,
): Promise<Int32Array | null> {
  const isShuffled = groupCount > 1 && files.boolean("desc_act", false);
  if (!files.tensors.has(name) && !isShuffled) return null;
  files.expect(name, ["i32"], [k], ...(isShuffled ? [] : [[0]]));
  const groups = (await files.tensors.read(name)).data as Int32Array;
  if (groups.length === 0) return null;
  const bad = groups.findIndex((group) => group < 0 || group >= groupCount);
  if (bad >= 0) throw files.valueError(name, `groups from 0 to ${groupCount - 1}`, `${groups[bad]} at ${bad}`);
  return groups.every((group, column) => group === Math.floor(column / groupSize)) ? null : groups;
}
