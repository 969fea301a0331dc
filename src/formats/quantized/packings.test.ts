/** Modules packed here bit by bit, as the formats are defined, in sizes and kinds that the golden modules do not have. */
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { type Entry, MODULE, writeModule } from "../../../test/support/quantized-modules.ts";
import { Random } from "../../../test/support/random.ts";
import { expectSame } from "../../../test/support/same.ts";
import { dequantize } from "../../quantized.ts";
import { toFloat32 } from "../../tensor.ts";
import { openCheckpoint } from "../checkpoint.ts";

const folder = await temporaryFolder();
let folders = 0;

/** Integers as a stream of bits, lowest first, in words. */
function stream(values: readonly number[], bits: number, words = Math.ceil((values.length * bits) / 32)): number[] {
  const result = new Array<number>(words).fill(0);
  for (const [i, value] of values.entries())
    for (let b = 0; b < bits; b++) {
      const bit = i * bits + b;
      if ((value >> b) & 1) result[bit >> 5]! |= 1 << (bit & 31);
    }
  return result;
}

/** Rows of a matrix as its columns. */
const transpose = <T>(rows: readonly (readonly T[])[]): T[][] => rows[0]!.map((_, i) => rows.map((row) => row[i]!));

const i32 = (shape: number[], values: readonly number[]): Entry => ({
  dtype: "I32",
  shape,
  data: new Uint8Array(Int32Array.from(values).buffer),
});
const f32 = (shape: number[], values: readonly number[]): Entry => ({
  dtype: "F32",
  shape,
  data: new Uint8Array(Float32Array.from(values).buffer),
});

/** Random integers, zero points and scales [n, groups], and the values that they mean. */
function grouped(random: Random, n: number, k: number, bits: number, groups: readonly number[], lowestZero = 0) {
  const count = Math.max(...groups) + 1;
  const matrix = (columns: number, value: () => number) =>
    Array.from({ length: n }, () => Array.from({ length: columns }, value));
  const codes = matrix(k, () => random.integer(0, 2 ** bits - 1));
  const zeros = matrix(count, () => random.integer(lowestZero, 2 ** bits - 1));
  const scales = matrix(count, () => Math.fround(random.next() - 0.3));
  const values = codes.flatMap((row, r) =>
    row.map((code, c) => Math.fround((code - zeros[r]![groups[c]!]!) * scales[r]![groups[c]!]!)),
  );
  return { codes, zeros, scales, values: Float32Array.from(values), count };
}

/** Compares a module's values with the expected ones, whole, by rows and as integers. */
async function check(
  tensors: Map<string, Entry>,
  settings: object,
  [n, k]: readonly [number, number],
  values: Float32Array,
) {
  const path = join(folder, String(++folders));
  await writeModule(path, tensors, settings);
  const checkpoint = await openCheckpoint(path);
  const { tensors: source } = checkpoint;
  const name = `${MODULE}.weight`;
  expect(source.info(name).shape).toEqual([n, k]);
  const unsigned = (value: number) => value + 0;
  expectSame(toFloat32(await source.read(name)).map(unsigned), values.map(unsigned));
  const [first, count] = [Math.floor(n / 3), Math.floor(n / 2)];
  const part = values.slice(first * k, (first + count) * k);
  expectSame(toFloat32(await source.readRows(name, first, count)).map(unsigned), part.map(unsigned));
  const low = source.lowBit!(name);
  if (low && !low.minima) {
    const found = dequantize(await low.rows(first, count));
    const ordered = part.map((_, i) => part[i - (i % k) + (low.order ? low.order[i % k]! : i % k)]!);
    expectSame(found.map(unsigned), ordered.map(unsigned));
  }
  await checkpoint.close();
  return low;
}

const inOrder = (k: number, size: number) => Array.from({ length: k }, (_, c) => Math.floor(c / size));

it.each(
  [2, 3, 4, 5, 6, 7, 8].flatMap((bits) =>
    [16, 64, 96, -1].flatMap((size) =>
      (["gptq", "gptq_v2"] as const).map((format) => [bits, size, format, (bits + size) % 3 === 0] as const),
    ),
  ),
)("GPTQ of %i bits in groups of %i, %s, act-order: %s", async (bits, size, format, isShuffled) => {
  const random = new Random(bits * 1000 + size);
  const [n, k] = [64, 160];
  const groups = inOrder(k, size === -1 ? k : size);
  if (isShuffled)
    for (let i = k - 1; i > 0; i--) {
      const j = random.integer(0, i);
      [groups[i], groups[j]] = [groups[j]!, groups[i]!];
    }
  const { codes, zeros, scales, values, count } = grouped(random, n, k, bits, groups);
  const offset = format === "gptq" ? 2 ** bits - 1 : 0;
  const stored = zeros.map((row) => row.map((zero) => (zero + offset) % 2 ** bits));
  const tensors = new Map([
    ["qweight", i32([(k * bits) / 32, n], transpose(codes.map((row) => stream(row, bits))).flat())],
    [
      "qzeros",
      i32(
        [count, (n * bits) / 32],
        transpose(stored).flatMap((row) => stream(row, bits)),
      ),
    ],
    ["scales", f32([count, n], transpose(scales).flat())],
    ["g_idx", i32([k], groups)],
  ]);
  const settings = { quant_method: "gptq", bits, group_size: size, sym: false, checkpoint_format: format };
  const low = await check(tensors, settings, [n, k], values);
  expect(low!.order === undefined).toBe(!isShuffled || count === 1);
});

it.each(
  [1, 2, 3, 4, 5, 6, 7, 8].flatMap((bits) =>
    (["group", "channel", "tensor"] as const).flatMap((strategy) =>
      [true, false].map((isDense) => [bits, strategy, isDense] as const),
    ),
  ),
)("compressed-tensors of %i bits by %s, across words: %s", async (bits, strategy, isDense) => {
  const random = new Random(bits);
  const [n, k] = [37, 96];
  const groups = inOrder(k, strategy === "group" ? 48 : k);
  const made = grouped(random, n, k, bits, groups);
  const isWhole = strategy === "tensor";
  const scales = isWhole ? made.scales.map(() => made.scales[0]!) : made.scales;
  const middle = 2 ** (bits - 1);
  const values = made.codes.flatMap((row, r) =>
    row.map((code, c) => {
      const group = groups[c]!;
      return Math.fround((code - (isWhole ? made.zeros[0]![0]! : made.zeros[r]![group]!)) * scales[r]![group]!);
    }),
  );
  const perWord = Math.floor(32 / bits);
  const pack = (row: readonly number[]) => {
    if (isDense) return stream(row, bits);
    const words = new Array<number>(Math.ceil(row.length / perWord)).fill(0);
    for (const [i, code] of row.entries()) words[Math.floor(i / perWord)]! |= code << (bits * (i % perWord));
    return words;
  };
  const packed = made.codes.map(pack);
  const zeros = transpose(made.zeros).map(pack);
  const shape = new Uint8Array(BigInt64Array.of(BigInt(n), BigInt(k)).buffer);
  // A zero point of all rows is not packed.
  const wholeZero: Entry = { dtype: "I8", shape: [1], data: Uint8Array.of(made.zeros[0]![0]! - middle) };
  const tensors = new Map<string, Entry>([
    ["weight_packed", i32([n, packed[0]!.length], packed.flat())],
    ["weight_scale", isWhole ? f32([1], [scales[0]![0]!]) : f32([n, made.count], scales.flat())],
    ["weight_shape", { dtype: "I64", shape: [2], data: shape }],
    ["weight_zero_point", isWhole ? wholeZero : i32([zeros[0]!.length, made.count], transpose(zeros).flat())],
  ]);
  const weights = { num_bits: bits, type: "int", strategy, group_size: strategy === "group" ? 48 : null };
  const settings = {
    quant_method: "compressed-tensors",
    format: "pack-quantized",
    config_groups: { group_0: { targets: ["Linear"], weights } },
  };
  await check(tensors, settings, [n, k], Float32Array.from(values));
});

it("compressed-tensors of 8 bits in a file that has 7 bits, too", async () => {
  const [n, k] = [8, 64];
  const { codes, scales } = grouped(new Random(8), n, k, 8, inOrder(k, k));
  const values = codes.flatMap((row, r) => row.map((code) => Math.fround((code - 128) * scales[r]![0]!)));
  const words = codes.flatMap((row) => stream(row, 8));
  const tensors = new Map<string, Entry>([
    ["weight_packed", i32([n, k / 4], words)],
    ["weight_scale", f32([n, 1], scales.flat())],
    ["weight_shape", { dtype: "I64", shape: [2], data: new Uint8Array(BigInt64Array.of(8n, 64n).buffer) }],
  ]);
  // As many words as older files had for so many integers of 7 bits.
  const groups = [7, 8].map((bits) => [`group_${bits}`, { weights: { num_bits: bits, strategy: "channel" } }]);
  const settings = { quant_method: "compressed-tensors", format: "pack-quantized" };
  await check(tensors, { ...settings, config_groups: Object.fromEntries(groups) }, [n, k], Float32Array.from(values));
});

it.each([32, 64, 128])("AWQ gemv in groups of %i, with unused groups at the end of rows", async (size) => {
  const random = new Random(size);
  const [n, k] = [24, 256];
  const { codes, zeros, scales, values, count } = grouped(random, n, k, 4, inOrder(k, size));
  const width = 8 * Math.ceil(count / 8);
  const padded = (row: readonly number[]) => [...row, ...new Array<number>(width - count).fill(0)];
  const tensors = new Map([
    [
      "qweight",
      i32(
        [n, k / 8],
        codes.flatMap((row) => stream(row, 4)),
      ),
    ],
    [
      "qzeros",
      i32(
        [n, width / 8],
        zeros.flatMap((row) => stream(padded(row), 4)),
      ),
    ],
    ["scales", f32([n, width], scales.flatMap(padded))],
  ]);
  await check(tensors, { quant_method: "awq", bits: 4, group_size: size, version: "gemv" }, [n, k], values);
});

it.each(
  (
    [
      [1, "1bit_u8"],
      [2, "2bit_u8"],
      [3, "3bit_32"],
      [4, "4bit_u8"],
      [8, "8bit_u8"],
    ] as const
  ).flatMap(([bits, packing]) => ([0, 1] as const).map((axis) => [bits, packing, axis] as const)),
)("HQQ of %i bits (%s), axis %i", async (bits, packing, axis) => {
  const random = new Random(bits + 10 * axis);
  const [n, k, size] = [48, 64, 32];
  const groups = (n * k) / size;
  const [rows, columns] = axis === 1 ? [groups, size] : [size, groups];
  const codes = Array.from({ length: rows }, () =>
    Array.from({ length: columns }, () => random.integer(0, 2 ** bits - 1)),
  );
  const scales = Array.from({ length: groups }, () => Math.fround(random.next()));
  const zeros = Array.from({ length: groups }, () => Math.fround(4 * random.next()));
  const values = codes.flatMap((row, r) =>
    row.map((code, c) => {
      const group = axis === 1 ? r : c;
      return Math.fround(Math.fround(code - zeros[group]!) * scales[group]!);
    }),
  );
  const perWord = bits === 3 ? 10 : 8 / bits;
  const step = Math.ceil(rows / perWord);
  const words = Array.from({ length: step * columns }, (_, i) => {
    let word = 0;
    for (let part = 0; part < perWord; part++) {
      const code = codes[part * step + Math.floor(i / columns)]?.[i % columns] ?? 0;
      word |= code << (bits * (perWord - 1 - part));
    }
    return word;
  });
  const u8 = (shape: number[], data: Iterable<number>): Entry => ({ dtype: "U8", shape, data: Uint8Array.from(data) });
  const shape = new Uint8Array(BigInt64Array.of(BigInt(n), BigInt(k)).buffer);
  const tensors = new Map<string, Entry>([
    ["W_q", bits === 3 ? i32([step, columns], words) : u8([step, columns], words)],
    ["scale", f32(axis === 1 ? [groups, 1] : [1, groups], scales)],
    ["zero", f32(axis === 1 ? [groups, 1] : [1, groups], zeros)],
    ["shape", { dtype: "I64", shape: [2], data: shape }],
    ["axis", i32([], [axis])],
    ["nbits", i32([], [bits])],
    ["group_size", i32([], [size])],
    ["packing", u8([packing.length], Buffer.from(packing))],
  ]);
  const low = await check(tensors, { quant_method: "hqq" }, [n, k], Float32Array.from(values));
  expect(low === null).toBe(axis === 0);
});
