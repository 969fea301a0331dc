/** Modules of quantized checkpoints against the values that the formats' own libraries give, and damage to them. */

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import {
  damage,
  type Entry,
  MODULE,
  storedModules,
  unpack,
  writeModule,
} from "../../../test/support/quantized-modules.ts";
import { Random } from "../../../test/support/random.ts";
import { expectSame } from "../../../test/support/same.ts";
import { LowbitError } from "../../errors.ts";
import { dequantize } from "../../quantized.ts";
import { toFloat32 } from "../../tensor.ts";
import { openCheckpoint } from "../checkpoint.ts";

const goldens = storedModules();
const WEIGHT = `${MODULE}.weight`;
const folder = await temporaryFolder();
let folders = 0;

/** Zero without a sign: codebooks have one zero, e2m1 two. */
const unsigned = (value: number) => value + 0;

async function open(tensors: Map<string, Entry>, settings: object) {
  const path = join(folder, String(++folders));
  await writeModule(path, tensors, settings);
  return openCheckpoint(path);
}

const golden = (name: string) => unpack(goldens[name]!);

/** Opens and reads the weight, in floats and in few bits. */
async function read(tensors: Map<string, Entry>, settings: object): Promise<Float32Array> {
  const checkpoint = await open(tensors, settings);
  try {
    const { tensors: source } = checkpoint;
    const values = toFloat32(await source.read(WEIGHT));
    const low = source.lowBit!(WEIGHT);
    if (low) await low.rows(0, low.spec.n);
    return values;
  } finally {
    await checkpoint.close();
  }
}

describe.each(Object.keys(goldens))("%s", (name) => {
  const { tensors, settings, row } = golden(name);

  it("has the values of the format's library, whole and by rows", async () => {
    const checkpoint = await open(tensors, settings);
    const { tensors: source } = checkpoint;
    const [n, k] = source.info(WEIGHT).shape as [number, number];
    const values = toFloat32(await source.read(WEIGHT));
    expectSame(values.slice(0, k).map(unsigned), row.map(unsigned));
    for (const [first, count] of [
      [0, 1],
      [5, 64],
      [n - 3, 3],
    ] as const)
      expectSame(toFloat32(await source.readRows(WEIGHT, first, count)), values.slice(first * k, (first + count) * k));
    expect(source.names).toEqual([WEIGHT]);
    await checkpoint.close();
  });

  it("has integers and scales of the same values, where they are kept as stored", async () => {
    const checkpoint = await open(tensors, settings);
    const { tensors: source } = checkpoint;
    const low = source.lowBit!(WEIGHT);
    expect(low === null).toBe(/fp8|bnb-[nf]|axis0|across-rows/.test(name));
    if (!low) return checkpoint.close();
    const { n, k, groupSize } = low.spec;
    const values = toFloat32(await source.read(WEIGHT));
    for (const [first, count] of [
      [0, n],
      [7, 40],
    ] as const) {
      const found = dequantize(await low.rows(first, count));
      const minima = low.minima && toFloat32(await low.minima.rows(first, count));
      const largest = Math.max(...values.map(Math.abs));
      for (let r = 0; r < count; r++)
        for (let c = 0; c < k; c++) {
          const added = minima ? minima[r * (k / groupSize) + Math.floor(c / groupSize)]! : 0;
          const expected = values[(first + r) * k + (low.order ? low.order[c]! : c)]!;
          // Two roundings where a minimum is added or the library rounds products in another order.
          if (!(Math.abs(found[r * k + c]! + added - expected) <= 2 ** -22 * largest))
            expect(found[r * k + c]! + added).toBe(expected);
        }
    }
    await checkpoint.close();
  });
});

/** Another value in a tensor of the golden. */
type Change = (tensors: Map<string, Entry>, settings: Record<string, unknown>) => void;
const words = (entry: Entry) => new Int32Array(entry.data.buffer, entry.data.byteOffset, entry.data.length / 4);
const without =
  (part: string): Change =>
  (tensors) =>
    void tensors.delete(part);
const shaped =
  (part: string, shape: number[]): Change =>
  (tensors) => {
    tensors.get(part)!.shape = shape;
  };
const setting =
  (field: string, value: unknown): Change =>
  (_, settings) => {
    settings[field] = value;
  };

describe("what does not fit together is refused by name", () => {
  it.each<[string, string, Change, RegExp]>([
    [
      "no scales",
      "gptq-w4-g128-sym",
      without("scales"),
      /expected tensor .*q_proj\.scales, which the checkpoint lacks/,
    ],
    ["no zero points", "gptq-w4-g128-sym", without("qzeros"), /q_proj\.qzeros, which the checkpoint lacks/],
    [
      "other bits",
      "gptq-w4-g128-sym",
      setting("bits", 8),
      /tensor .*q_proj\.qzeros: expected shape \[1,32\] but found/,
    ],
    [
      "17 bits",
      "gptq-w4-g128-sym",
      setting("bits", 17),
      /quantization_config\.bits: expected a whole number from 2 to 8/,
    ],
    [
      "other groups",
      "gptq-w4-g32-asym-actorder",
      setting("group_size", 64),
      /q_proj\.scales: expected groups of 64 of 128/,
    ],
    [
      "groups of -3",
      "gptq-w4-g128-sym",
      setting("group_size", -3),
      /quantization_config\.group_size: expected a whole/,
    ],
    [
      "scales of other shape",
      "gptq-w4-g128-sym",
      shaped("scales", [2, 64]),
      /q_proj\.scales: expected shape \[2,128\]/,
    ],
    ["marlin", "gptq-w4-g128-sym", setting("checkpoint_format", "marlin"), /checkpoint_format: expected "gptq" or/],
    ["words of 64 bits", "gptq-w4-g128-sym", setting("pack_dtype", "int64"), /pack_dtype: expected "int32"/],
    [
      "a group beyond the last",
      "gptq-w4-g32-asym-actorder",
      (tensors) => words(tensors.get("g_idx")!).fill(4, 7, 8),
      /tensor .*q_proj\.g_idx: expected groups from 0 to 3 but found 4 at 7/,
    ],
    [
      "a group before the first",
      "gptq-w4-g32-asym-actorder",
      (tensors) => words(tensors.get("g_idx")!).fill(-1, 9, 10),
      /q_proj\.g_idx: expected groups from 0 to 3 but found -1 at 9/,
    ],
    ["too few groups", "gptq-w4-g32-asym-actorder", shaped("g_idx", [64, 2]), /q_proj\.g_idx: expected shape \[128\]/],
    [
      "zero points of asymmetric weights",
      "gptq-w4-g128-sym",
      (tensors) => words(tensors.get("qzeros")!).fill(0x55555555),
      /q_proj\.qzeros: expected zero points of 8 by the config, .* but found 6/,
    ],
    [
      "infinite scales",
      "gptq-w4-g128-sym",
      (tensors) => void tensors.get("scales")!.data.fill(0x7c, 0, 2).fill(0, 0, 1),
      /q_proj\.scales: expected finite scales but found Infinity/,
    ],
    [
      "another version",
      "awq-w4-g64-gemm",
      setting("version", "gemv_fast"),
      /version: expected gemm, gemv but found "gemv_fast"/,
    ],
    [
      "other bits of AWQ",
      "awq-w4-g64-gemm",
      setting("bits", 3),
      /quantization_config\.bits: expected 4 or 8 but found 3/,
    ],
    ["no scales of AWQ", "awq-w4-g64-gemm", without("scales"), /q_proj\.scales, which the checkpoint lacks/],
    [
      "another packing",
      "autoround-w4-g128-sym",
      setting("packing_format", "auto_round:fp8"),
      /packing_format: expected/,
    ],
    ["floats", "autoround-w4-g128-sym", setting("data_type", "mx_fp"), /data_type: expected int but found "mx_fp"/],
    [
      "a format without name",
      "ct-pack-w4-g128-sym",
      setting("format", "marlin-24"),
      /quantization_config\.format: expected pack-quantized/,
    ],
    [
      "no scales of packed weights",
      "ct-pack-w4-g128-sym",
      without("weight_scale"),
      /weight_scale, which the checkpoint lacks/,
    ],
    ["no sizes", "ct-pack-w4-g128-sym", without("weight_shape"), /weight_shape, which the checkpoint lacks/],
    [
      "no scales of floats",
      "ct-fp8-channel",
      without("weight_scale"),
      /q_proj\.weight_scale, which the checkpoint lacks/,
    ],
    [
      "other blocks",
      "fp8-block64",
      setting("weight_block_size", [32, 64]),
      /weight_scale_inv: expected \[1\], \[128,1\] or \[4,2\]/,
    ],
    ["one size of blocks", "fp8-block64", setting("weight_block_size", [64]), /weight_block_size: expected two sizes/],
    ["another algorithm", "modelopt-nvfp4", setting("quant_algo", "W4A16_AWQ"), /quant_algo: expected NVFP4/],
    [
      "no scale of scales",
      "modelopt-nvfp4",
      without("weight_scale_2"),
      /q_proj\.weight_scale_2, which the checkpoint lacks/,
    ],
    [
      "no scales of NVFP4",
      "modelopt-nvfp4",
      without("weight_scale"),
      /q_proj\.weight_scale, which the checkpoint lacks/,
    ],
    ["no divisor", "ct-nvfp4", without("weight_global_scale"), /weight_global_scale, which the checkpoint lacks/],
    [
      "a divisor of 0",
      "ct-nvfp4",
      (tensors) => void tensors.get("weight_global_scale")!.data.fill(0),
      /weight_global_scale: expected a number that divides but found 0/,
    ],
    ["no exponents", "ct-mxfp4", without("weight_scale"), /q_proj\.weight_scale, which the checkpoint lacks/],
    [
      "no scales of bytes",
      "ct-int-w8-channel",
      without("weight_scale"),
      /q_proj\.weight_scale, which the checkpoint lacks/,
    ],
    [
      "no zero points of compressed-tensors",
      "ct-pack-w4-g32-asym",
      without("weight_zero_point"),
      /q_proj\.weight_zero_point, which the checkpoint lacks/,
    ],
    [
      "infinite scales of compressed-tensors",
      "ct-pack-w4-g32-asym",
      (tensors) => void tensors.get("weight_scale")!.data.fill(255),
      /q_proj\.weight_scale: expected finite scales but found NaN/,
    ],
    [
      "no indices of act-order",
      "gptq-w4-g32-asym-actorder",
      without("g_idx"),
      /q_proj\.g_idx, which the checkpoint lacks/,
    ],
    ["no magnitudes", "bnb-nf4", without("weight.absmax"), /weight\.absmax, which the checkpoint lacks/],
    ["few magnitudes", "bnb-nf4", shaped("weight.absmax", [128, 2]), /weight\.absmax: expected shape \[256\]/],
    ["no table", "bnb-nf4-double", without("weight.nested_quant_map"), /nested_quant_map, which the checkpoint lacks/],
    [
      "no JSON",
      "bnb-nf4",
      (tensors) => void tensors.get("weight.quant_state.bitsandbytes__nf4")!.data.fill(91, 0, 3),
      /quant_state.bitsandbytes__nf4 is not valid JSON/,
    ],
    ["row scales of another shape", "bnb-int8", shaped("SCB", [2, 64]), /q_proj\.SCB: expected shape \[128\]/],
    ["no row scales", "bnb-int8", without("SCB"), /q_proj\.SCB, which the checkpoint lacks/],
    [
      "no state",
      "bnb-fp4",
      without("weight.quant_state.bitsandbytes__fp4"),
      /q_proj\.weight\.quant_state\.bitsandbytes__nf4, which the checkpoint lacks/,
    ],
    [
      "another type",
      "bnb-nf4",
      (tensors) => {
        const state = "weight.quant_state.bitsandbytes__nf4";
        tensors.set(state.replace("nf4", "nf3"), tensors.get(state)!).delete(state);
      },
      /q_proj\.weight\.quant_state\.bitsandbytes__nf3: expected type nf4 or fp4 but found nf3/,
    ],
    ...["weight.nested_absmax", "weight.nested_quant_map", "weight.quant_map"].map(
      (part): [string, string, Change, RegExp] => [
        `no numbers in ${part}`,
        "bnb-nf4-double",
        (tensors) => void tensors.get(part)!.data.fill(255),
        new RegExp(`q_proj\\.${part}: expected finite numbers but found NaN at 0`),
      ],
    ),
    [
      "no numbers in absmax",
      "bnb-nf4",
      (tensors) => void tensors.get("weight.absmax")!.data.fill(255),
      /q_proj\.weight\.absmax: expected finite numbers but found NaN at 0/,
    ],
    [
      "another order",
      "bnb-int8",
      (tensors) => void tensors.get("weight_format")!.data.fill(1),
      /weight_format: expected 0, rows in order, but found 1/,
    ],
    [
      "no bits",
      "hqq-w4-g64",
      (tensors) => words(tensors.get("nbits")!).fill(0),
      /q_proj\.nbits: expected bits up to 8 but found 0/,
    ],
    [
      "more bits than are packed",
      "hqq-w4-g64",
      (tensors) => words(tensors.get("nbits")!).fill(5),
      /q_proj\.nbits: expected at most 4 bits, as packing says, but found 5/,
    ],
    [
      "fewer bits than integers have",
      "hqq-w4-g64",
      (tensors) => words(tensors.get("nbits")!).fill(2),
      /q_proj\.W_q: expected integers of 2 bits, as nbits says, but found \d+/,
    ],
    ["no sizes of HQQ", "hqq-w4-g64", without("shape"), /q_proj\.shape, which the checkpoint lacks/],
    [
      "scales that are quantized",
      "hqq-w4-g64",
      (tensors) => void tensors.get("quant_scale")!.data.fill(1),
      /quant_scale: scales and zero points that are quantized themselves are not supported/,
    ],
    [
      "a group size that does not divide",
      "hqq-w4-g64",
      (tensors) => void words(tensors.get("group_size")!).fill(7),
      /q_proj\.group_size: expected a divisor of 128 x 128 but found 7/,
    ],
    [
      "another class",
      "bitnet-bitlinear",
      setting("linear_class", "x"),
      /linear_class: expected bitlinear, autobitlinear/,
    ],
    [
      "another mode",
      "bitnet-bitlinear",
      setting("quantization_mode", "x"),
      /quantization_mode: expected offline, online/,
    ],
    [
      "no scale of BitNet",
      "bitnet-bitlinear",
      without("weight_scale"),
      /q_proj\.weight_scale, which the checkpoint lacks/,
    ],
    [
      "a scale of 0 that divides",
      "bitnet-bitlinear",
      (tensors) => void tensors.get("weight_scale")!.data.fill(0),
      /q_proj\.weight_scale: expected a number that divides but found 0/,
    ],
    [
      "a fourth value",
      "bitnet-bitlinear",
      (tensors) => void tensors.get("weight")!.data.fill(255, 0, 1),
      /q_proj\.weight: expected values of -1, 0 and 1 but found 2 in row 0/,
    ],
  ])("%s (%s)", async (_, name, change, message) => {
    const { tensors, settings } = golden(name);
    change(tensors, settings);
    const reading = read(tensors, settings);
    await expect(reading).rejects.toThrow(message);
    await expect(reading).rejects.toThrow(LowbitError);
  });
});

it("stacks of experts in MXFP4 are a matrix each", async () => {
  const random = new Random(4);
  const [experts, n, groups] = [3, 5, 2];
  const blocks = Uint8Array.from({ length: experts * n * groups * 16 }, () => random.integer(0, 255));
  const scales = Uint8Array.from({ length: experts * n * groups }, () => random.integer(118, 130));
  const path = join(folder, String(++folders));
  const tensors = new Map([
    ["up_blocks", { dtype: "U8", shape: [experts, n, groups, 16], data: blocks }],
    ["up_scales", { dtype: "U8", shape: [experts, n, groups], data: scales }],
  ]);
  await writeModule(path, tensors, { quant_method: "mxfp4" });
  const checkpoint = await openCheckpoint(path);
  const { tensors: source } = checkpoint;
  const name = (expert: number) => `${MODULE}.${expert}.up.weight`;
  expect(source.names).toEqual([0, 1, 2].map(name));
  const magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
  for (let expert = 0; expert < experts; expert++) {
    const expected = Float32Array.from({ length: n * groups * 32 }, (_, i) => {
      const group = expert * n * groups + Math.floor(i / 32);
      const byte = blocks[16 * group + ((i % 32) >> 1)]!;
      const code = i % 2 === 0 ? byte & 15 : byte >> 4;
      return (code & 8 ? -1 : 1) * magnitudes[code & 7]! * 2 ** (scales[group]! - 127) + 0;
    });
    expectSame(toFloat32(await source.read(name(expert))).map(unsigned), expected);
    expectSame(toFloat32(await source.readRows(name(expert), 2, 2)).map(unsigned), expected.slice(128, 256));
    expectSame(dequantize(await source.lowBit!(name(expert))!.rows(0, n)).map(unsigned), expected);
  }
  await checkpoint.close();
});

it.each([
  ["quantize_config.json", "gptq-w4-g128-sym", (settings: object) => settings],
  [
    "quant_config.json",
    "awq-w4-g64-gemm",
    ({ bits, group_size }: Record<string, unknown>) => ({ w_bit: bits, q_group_size: group_size, version: "GEMM" }),
  ],
  [
    "hf_quant_config.json",
    "modelopt-nvfp4",
    () => ({ producer: { name: "modelopt" }, quantization: { quant_algo: "NVFP4" } }),
  ],
] as const)("settings in %s are those of the config", async (file, name, change) => {
  const { tensors, settings, row } = golden(name);
  const { quant_method: _, ...fields } = settings;
  const path = join(folder, String(++folders));
  await writeModule(path, tensors, settings);
  await writeFile(join(path, "config.json"), "{}");
  await writeFile(join(path, file), JSON.stringify(change(fields)));
  const checkpoint = await openCheckpoint(path);
  expectSame(toFloat32(await checkpoint.tensors.readRows(WEIGHT, 0, 1)).map(unsigned), row.map(unsigned));
  await checkpoint.close();
});

it("damaged modules end in errors of lowbit's own, or are read", async () => {
  const random = new Random(39);
  let [refused, whole] = [0, 0];
  const names = Object.keys(goldens);
  for (let i = 0; i < 600; i++) {
    const { tensors, settings } = golden(names[i % names.length]!);
    for (let change = random.integer(1, 3); change > 0; change--) damage(tensors, settings, random);
    try {
      await read(tensors, settings);
      whole++;
    } catch (error) {
      if (!(error instanceof LowbitError)) throw error;
      refused++;
    }
  }
  expect(refused).toBeGreaterThan(150);
  expect(whole).toBeGreaterThan(50);
});
