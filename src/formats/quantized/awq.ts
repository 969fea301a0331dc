/**
 * AWQ's layouts, as AutoAWQ writes them, for k inputs and n outputs. "gemm": each word of `qweight` [k, n * bits / 32] holds
 * eight neighbouring outputs in the order 0 2 4 6 1 3 5 7; `qzeros` [groups, n * bits / 32] likewise; `scales` [groups, n].
 * "gemv": `qweight` [n, k * bits / 32], `qzeros` and `scales` are stored by rows, in order, padded with unused groups. Zero
 * points are stored without offset.
 */
import { toFloat32 } from "../../tensor.ts";
import type { ComputedMatrix } from "../computed-tensors.ts";
import { integerAt, unpackIntegers, wordsOf } from "./bit-stream.ts";
import { floatTypes, type QuantizedFiles, type QuantizedFormat } from "./files.ts";
import { bitsOf, groupSizeFor, groupSizeOf } from "./gptq.ts";
import { type GroupedIntegers, groupedMatrix, type StoredRows, transposed } from "./grouped-integers.ts";
import { unknownName } from "./scales.ts";

/** Settings from the config that apply to all modules. */
export interface AwqRules {
  readonly method: string;
  readonly bits: number;
  readonly groupSize: number | null;
  readonly hasOverrides: boolean;
}

export const awq: QuantizedFormat = {
  name: "AWQ",
  methods: ["awq"],
  async read(files) {
    const version = (
      files.text("version") ??
      files.text("checkpoint_format") ??
      files.text("format") ??
      "gemm"
    ).toLowerCase();
    if (!["gemm", "exllama", "gemv"].includes(version)) throw unknownName(files, "version", ["gemm", "gemv"], version);
    const field = files.settings.bits === undefined ? "w_bit" : "bits";
    const rules: AwqRules = {
      method: "AWQ",
      bits: bitsOf(files, field),
      groupSize: groupSizeOf(files, files.settings.group_size === undefined ? "q_group_size" : "group_size"),
      hasOverrides: false,
    };
    if (rules.bits !== 4 && rules.bits !== 8) throw files.settingError(field, "4 or 8", rules.bits);
    if (version !== "gemv") return gemmMatrices(files, rules);
    return files.modules("qweight").map((module) => gemvMatrix(files, module, rules));
  },
};

/** Position within a word of each of the `perWord` outputs that share it. */
function placesOf(perWord: number): readonly number[] {
  const half = perWord / 2;
  return Array.from({ length: perWord }, (_, i) => (i >> 1) + (i & 1) * half);
}

/** Matrices of all modules with `qweight` in the layout "gemm". */
export function gemmMatrices(files: QuantizedFiles, rules: AwqRules): readonly ComputedMatrix[] {
  return files.modules("qweight").map((module) => gemmMatrix(files, module, rules));
}

function gemmMatrix(files: QuantizedFiles, module: string, rules: AwqRules): ComputedMatrix {
  const [weights, zeros, scales] = partsOf(module);
  const [k = 0, words = 0] = files.info(weights, ["i32", "u32"], 2).shape;
  const [groups = 0, n = 0] = files.info(scales, floatTypes, 2).shape;
  const bits = rules.hasOverrides ? (32 * words) / n : rules.bits;
  if (32 * words !== n * bits || (bits !== 4 && bits !== 8))
    throw files.shapeError(weights, `words of ${n} integers of ${bits} bits a row, for scales [${groups},${n}],`, [
      k,
      words,
    ]);
  const perWord = 32 / bits;
  files.expect(zeros, ["i32", "u32"], [groups, words]);
  const groupSize = groupSizeIn(files, scales, k, groups, rules);
  const places = placesOf(perWord);
  const mask = (1 << bits) - 1;
  const at = (packed: Uint32Array, row: number, output: number) =>
    (packed[row * words + Math.floor(output / perWord)]! >>> (bits * places[output % perWord]!)) & mask;
  const rows = async (first: number, count: number): Promise<StoredRows> => {
    const read = (part: string) => files.readWhole(module, part, first + count === n);
    const packed = wordsOf((await read("qweight")).data);
    const codes = new Uint8Array(count * k);
    for (let row = 0; row < count; row++) {
      const output = first + row;
      const shift = bits * places[output % perWord]!;
      let from = Math.floor(output / perWord);
      for (let i = row * k, end = i + k; i < end; i++, from += words) codes[i] = (packed[from]! >>> shift) & mask;
    }
    const packedZeros = wordsOf((await read("qzeros")).data);
    const own = new Uint8Array(count * groups);
    for (let row = 0, i = 0; row < count; row++)
      for (let group = 0; group < groups; group++, i++) own[i] = at(packedZeros, group, first + row);
    const values = toFloat32(await read("scales"));
    return { codes, scales: transposed(values, n, first, count, new Float32Array(count * groups)), zeros: own };
  };
  return awqMatrix(files, module, { ...rules, bits }, { shape: [n, k], groupSize, rows });
}

function gemvMatrix(files: QuantizedFiles, module: string, rules: AwqRules): ComputedMatrix {
  const { bits } = rules;
  const [weights, zeros, scales] = partsOf(module);
  const [n = 0, words = 0] = files.info(weights, ["i32", "u32"], 2).shape;
  const k = (32 * words) / bits;
  const groupSize = Math.min(rules.groupSize ?? k, k);
  const groups = Math.ceil(k / groupSize);
  const width = files.info(scales, floatTypes, 2).shape[1]!;
  const zeroWords = files.info(zeros, ["i32", "u32"], 2).shape[1]!;
  files.expect(scales, floatTypes, [n, Math.max(width, groups)]);
  files.expect(zeros, ["i32", "u32"], [n, Math.max(zeroWords, Math.ceil((groups * bits) / 32))]);
  const rows = async (first: number, count: number): Promise<StoredRows> => {
    const read = (name: string) => files.tensors.readRows(name, first, count);
    const packed = wordsOf((await read(weights)).data);
    const packedZeros = wordsOf((await read(zeros)).data);
    const values = toFloat32(await read(scales));
    const codes = new Uint8Array(count * k);
    const own = new Uint8Array(count * groups);
    const result = new Float32Array(count * groups);
    for (let row = 0; row < count; row++) {
      unpackIntegers(packed, { start: row * words, bits }, codes, row * k, k);
      for (let group = 0; group < groups; group++) {
        own[row * groups + group] = integerAt(packedZeros, row * zeroWords, group, bits);
        result[row * groups + group] = values[row * width + group]!;
      }
    }
    return { codes, scales: result, zeros: own };
  };
  return awqMatrix(files, module, rules, { shape: [n, k], groupSize, rows });
}

const partsOf = (module: string) => [`${module}.qweight`, `${module}.qzeros`, `${module}.scales`] as const;

function groupSizeIn(files: QuantizedFiles, scales: string, k: number, groups: number, rules: AwqRules): number {
  const groupSize = groupSizeFor(k, groups, rules);
  if (groupSize !== null) return groupSize;
  const expected = `groups of ${rules.groupSize ?? "all"} of ${k} inputs, as quantization_config.group_size says,`;
  throw files.shapeError(scales, expected, files.tensors.info(scales).shape);
}

function awqMatrix(
  files: QuantizedFiles,
  module: string,
  { method, bits }: AwqRules,
  own: Pick<GroupedIntegers, "shape" | "groupSize" | "rows">,
): ComputedMatrix {
  const [weights, zeros, scales] = partsOf(module);
  return groupedMatrix({
    ...own,
    ...{ folder: files.folder, name: `${module}.weight`, bits, parts: [weights, zeros, scales] },
    scaleDType: files.tensors.info(scales).dtype === "f16" ? "f16" : "f32",
    stored: `${method} ${bits}-bit`,
    hasZeros: true,
    zerosName: zeros,
    scalesName: scales,
  });
}
