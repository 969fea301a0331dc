/** Reads compressed-tensors' integers: rows packed in 32-bit words, or one integer a byte, with scales and zero points. */
import { elementCount, toFloat32 } from "../../tensor.ts";
import type { ComputedMatrix } from "../computed-tensors.ts";
import { integerAt, wordsOf } from "./bit-stream.ts";
import { floatTypes, type QuantizedFiles } from "./files.ts";
import { activationParts } from "./float8.ts";
import { type GroupedIntegers, groupedMatrix } from "./grouped-integers.ts";
import type { ScaleBlocks } from "./scales.ts";

/** Weight settings of one config group. */
export interface WeightRules {
  readonly bits: number | null;
  readonly groupSize: number | null;
  readonly block: ScaleBlocks | null;
  /** Whether weights have no zero points. */
  readonly symmetric: boolean;
}

const parts = ["weight_packed", "weight_shape", "weight", "weight_scale", "weight_zero_point", "weight_g_idx"];

/**
 * Bits of an integer, and integers per word: null for a bit stream across words, else whole integers per word (older files).
 */
interface Packing {
  readonly bits: number;
  readonly perWord: number | null;
}

const wordsFor = ({ bits, perWord }: Packing, count: number) =>
  Math.ceil(perWord ? count / perWord : (count * bits) / 32);

function codeAt(words: Uint32Array, start: number, index: number, { bits, perWord }: Packing, stride: number): number {
  if (perWord === null) return integerAt(words, start, index, bits, stride);
  return (words[start + Math.floor(index / perWord) * stride]! >>> (bits * (index % perWord))) & ((1 << bits) - 1);
}

/** Reads a module with `weight_packed` [n, words] and its shape in `weight_shape`. */
export async function packedMatrix(
  files: QuantizedFiles,
  module: string,
  groups: readonly WeightRules[],
): Promise<ComputedMatrix> {
  const name = `${module}.weight_packed`;
  const [rows = 0, words = 0] = files.info(name, ["i32"], 2).shape;
  const [n, k] = await shapeOf(files, `${module}.weight_shape`);
  const packing = packingOf(k, words, groups);
  if (rows !== n || !packing)
    throw files.shapeError(name, `${n} rows of words for ${k} integers of ${bitsIn(groups).join(" or ")} bits`, [
      rows,
      words,
    ]);
  const zeros = `${module}.weight_zero_point`;
  const { bits } = packing;
  const scales = await scalesOf(files, module, [n, k], groups);
  const zeroAt = hasZeroPoints(files, zeros, bits, groups)
    ? files.info(zeros, ["i8", "i32"]).dtype === "i8"
      ? byteZeros(files, zeros, { module, bits, scales })
      : packedZeros(files, zeros, { n, groups: scales.count, packing })
    : null;
  return groupedMatrix({
    ...moduleSource(files, module, [n, k], scales),
    ...{ bits, hasZeros: zeroAt !== null, stored: `compressed-tensors int${bits}` },
    async rows(first, count) {
      const packed = wordsOf((await files.tensors.readRows(name, first, count)).data);
      const codes = new Uint8Array(count * k);
      for (let row = 0, i = 0; row < count; row++)
        for (let c = 0; c < k; c++, i++) codes[i] = codeAt(packed, row * words, c, packing, 1);
      return { codes, scales: await scales.rows(first, count), zeros: zeroAt && (await zeroAt(first, count)) };
    },
  });
}

/** Reads a module with `weight` [n, k], a signed integer in each byte. */
export async function bytesMatrix(
  files: QuantizedFiles,
  module: string,
  groups: readonly WeightRules[],
): Promise<ComputedMatrix> {
  const name = `${module}.weight`;
  const [n = 0, k = 0] = files.info(name, ["i8"], 2).shape;
  const said = bitsIn(groups).filter((bits) => bits <= 8);
  const bits = said.length === 0 ? 8 : Math.max(...said);
  const scales = await scalesOf(files, module, [n, k], groups);
  const zeros = `${module}.weight_zero_point`;
  const hasZeros = hasZeroPoints(files, zeros, bits, groups);
  const zeroAt = hasZeros ? byteZeros(files, zeros, { module, bits, scales }) : null;
  return groupedMatrix({
    ...moduleSource(files, module, [n, k], scales),
    ...{ bits, hasZeros, stored: `compressed-tensors int${bits}` },
    async rows(first, count) {
      const integers = (await files.tensors.readRows(name, first, count)).data as Int8Array;
      const codes = unsigned(files, name, bits, integers);
      return { codes, scales: await scales.rows(first, count), zeros: zeroAt && (await zeroAt(first, count)) };
    },
  });
}

/** Converts signed integers of `bits` bits to unsigned by adding 2^(bits-1), checking their range. */
function unsigned(files: QuantizedFiles, name: string, bits: number, values: Int8Array): Uint8Array {
  const middle = 1 << (bits - 1);
  const bad = bits === 8 ? -1 : values.findIndex((value) => value < -middle || value >= middle);
  if (bad >= 0) throw files.valueError(name, `integers of ${bits} bits, as quantization_config says,`, values[bad]!);
  return Uint8Array.from(values, (value) => value + middle);
}

const bitsIn = (groups: readonly WeightRules[]) => [...new Set(groups.flatMap(({ bits }) => bits ?? []))];

/** The packing, among the bits of the config, with which k integers take `words` words; null if none does. */
function packingOf(k: number, words: number, groups: readonly WeightRules[]): Packing | null {
  const said = bitsIn(groups).filter((bits) => bits <= 8);
  const packings = [
    ...said.map((bits): Packing => ({ bits, perWord: null })),
    ...said.map((bits): Packing => ({ bits, perWord: Math.floor(32 / bits) })),
  ];
  return packings.find((packing) => wordsFor(packing, k) === words) ?? null;
}

async function shapeOf(files: QuantizedFiles, name: string): Promise<readonly [number, number]> {
  files.expect(name, ["i64", "i32"], [2]);
  const sizes = Array.from((await files.tensors.read(name)).data as BigInt64Array | Int32Array, Number);
  const bad = sizes.find((size) => !Number.isSafeInteger(size) || size < 1 || size >= 2 ** 31);
  if (bad !== undefined) throw files.valueError(name, "two sizes", bad);
  return sizes as unknown as readonly [number, number];
}

/** Scales of a module, by row and group. */
interface Scales {
  readonly groupSize: number;
  /** Number of groups in a row. */
  readonly count: number;
  readonly groups: Int32Array | null;
  rows(first: number, count: number): Promise<Float32Array>;
  /** Selects the values of rows from an array with the shape of the scales. */
  pick<A extends Int8Array | Float32Array>(values: A, first: number, count: number): A;
}

async function scalesOf(
  files: QuantizedFiles,
  module: string,
  [n, k]: readonly [number, number],
  rules: readonly WeightRules[],
): Promise<Scales> {
  const name = `${module}.weight_scale`;
  const { shape } = files.info(name, floatTypes);
  const isWhole = elementCount(shape) === 1;
  const [rows = 0, count = 1] = isWhole ? [n, 1] : shape;
  const said = rules.map(({ groupSize }) => groupSize ?? k).find((size) => Math.ceil(k / size) === count);
  const groupSize = count === 1 ? k : said;
  if (rows !== n || shape.length > 2 || groupSize === undefined)
    throw files.shapeError(name, `[1], [${n},1] or [${n},groups] by quantization_config.config_groups`, shape);
  const pick = <A extends Int8Array | Float32Array>(values: A, first: number, own: number): A =>
    (isWhole
      ? values.slice(0, 1).constructor === Int8Array
        ? new Int8Array(own).fill(values[0]!)
        : new Float32Array(own).fill(values[0]!)
      : values.slice(first * count, (first + own) * count)) as A;
  const groups = await groupsOf(files, `${module}.weight_g_idx`, { k, count, groupSize });
  return {
    ...{ groupSize, count, groups, pick },
    rows: async (first, own) => pick(toFloat32(await files.tensors.read(name)), first, own),
  };
}

/** The group of each column where groups are not consecutive; null where they are. */
async function groupsOf(
  files: QuantizedFiles,
  name: string,
  { k, count, groupSize }: { readonly k: number; readonly count: number; readonly groupSize: number },
): Promise<Int32Array | null> {
  if (!files.tensors.has(name)) return null;
  files.expect(name, ["i32"], [k]);
  const groups = (await files.tensors.read(name)).data as Int32Array;
  if (groups.every((group) => group === -1)) return null;
  const bad = groups.findIndex((group) => group < 0 || group >= count);
  if (bad >= 0) throw files.valueError(name, `groups from 0 to ${count - 1}`, `${groups[bad]} at ${bad}`);
  return groups.every((group, column) => group === Math.floor(column / groupSize)) ? null : groups;
}

/** Whether a module has zero points: by its tensor, which is required unless a config group with these bits is symmetric. */
function hasZeroPoints(files: QuantizedFiles, name: string, bits: number, groups: readonly WeightRules[]): boolean {
  const own = groups.filter((rules) => rules.bits === bits);
  return files.tensors.has(name) || (own.length > 0 && own.every(({ symmetric }) => !symmetric));
}

/** Zero points [count, groups] of rows, a signed one in each byte; packed weights store them so where all rows share one. */
function byteZeros(
  files: QuantizedFiles,
  name: string,
  { module, bits, scales }: { readonly module: string; readonly bits: number; readonly scales: Scales },
): (first: number, count: number) => Promise<Uint8Array> {
  files.expect(name, ["i8"], files.tensors.info(`${module}.weight_scale`).shape);
  return async (first, count) =>
    unsigned(files, name, bits, scales.pick((await files.tensors.read(name)).data as Int8Array, first, count));
}

/** Zero points [count, groups] of rows, packed down the columns of a tensor [words, groups]. */
function packedZeros(
  files: QuantizedFiles,
  name: string,
  { n, groups, packing }: { readonly n: number; readonly groups: number; readonly packing: Packing },
): (first: number, count: number) => Promise<Uint8Array> {
  files.expect(name, ["i32"], [wordsFor(packing, n), groups]);
  return async (first, count) => {
    const packed = wordsOf((await files.tensors.read(name)).data);
    const zeros = new Uint8Array(count * groups);
    for (let row = 0, i = 0; row < count; row++)
      for (let group = 0; group < groups; group++, i++) zeros[i] = codeAt(packed, group, first + row, packing, groups);
    return zeros;
  };
}

function moduleSource(
  files: QuantizedFiles,
  module: string,
  shape: readonly [number, number],
  { groupSize, groups }: Scales,
): Pick<
  GroupedIntegers,
  "folder" | "name" | "shape" | "groupSize" | "groups" | "scaleDType" | "parts" | "zerosName" | "scalesName"
> {
  const scale = `${module}.weight_scale`;
  return {
    ...{ folder: files.folder, name: `${module}.weight`, shape, groupSize, groups },
    scaleDType: files.tensors.info(scale).dtype === "f16" ? "f16" : "f32",
    parts: files.partsOf(module, [...parts, ...activationParts]),
    zerosName: `${module}.weight_zero_point`,
    scalesName: scale,
  };
}
