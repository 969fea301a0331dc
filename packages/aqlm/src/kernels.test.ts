/** Which of AQLM's rows serve how many rows of x, on CPUs that need not be here. */
import { describe, expect, it } from "vitest";
import { cpuWith } from "../../../src/kernels/cpu.ts";
import { nativeAddon } from "../../../src/kernels/native/addon.ts";
import { selectKernel } from "../../../src/kernels/select.ts";
import { neverChosen, passedOver } from "../../../test/support/passed-over.ts";
import { aqlmKernels } from "./kernels.ts";
import { knownRows } from "./known-rows.ts";

const bf16 = ["neoverse-n2", "neoverse-v1", "neoverse-v2", "apple-m2", "apple-m4"] as const;

describe.each([
  ["aqlm_tiles8", "neoverse-n1", ["lut12_c8_1x64x128_neon", "lut16_c8_3x64x48_neon", "lut16_c8_3x64x48_neon"]],
  ["aqlm_tiles", "neoverse-n1", ["f32_cx_1x64x128_neon", "f32_cx_1x64x128_neon", "f32_cx_16x8x1_neon"]],
  ...bf16.flatMap((cpu) => [
    ["aqlm_tiles8", cpu, ["f32_c8_1x64x128_neon_bf16", "lut16_c8_3x64x48_neon", "lut16_c8_3x64x48_neon"]] as const,
    ["aqlm_tiles", cpu, ["f32_cx_1x64x128_neon", "f32_cx_5x32x8_neon_bf16", "f32_cx_5x32x8_neon_bf16"]] as const,
  ]),
] as const)("%s on %s", (layout, name, [one, some, more]) => {
  const chosen = (m: number) => selectKernel(aqlmKernels, { layout, bits: null, m }, cpuWith(name)).name;

  it(`is served by ${one} for one row and two, ${some} from 5 and ${more} from 16 on`, () => {
    expect([1, 2].map(chosen)).toEqual([`aqlm_${one}`, `aqlm_${one}`]);
    expect(chosen(3)).toBe(`aqlm_${layout === "aqlm_tiles8" ? some : one}`);
    expect([5, 15].map(chosen)).toEqual([`aqlm_${some}`, `aqlm_${some}`]);
    expect([16, 63].map(chosen)).toEqual([`aqlm_${more}`, `aqlm_${more}`]);
  });

  it("is served by bf16 for 64 rows on, where a CPU has it", () => {
    const long = layout === "aqlm_tiles8" ? "aqlm_bf16_c8_64x32x8_neon_bf16" : "aqlm_bf16_cx_64x32x8_neon_bf16";
    const isBf16 = cpuWith(name).features.has("bf16");
    for (const m of [64, 512]) expect(chosen(m)).toBe(isBf16 ? long : `aqlm_${more}`);
  });
});

it("WebAssembly shares tables of words among eight rows of x, from 64 on", () => {
  const cpu = { name: "wasm", features: new Set(["simd128"] as const) };
  const chosen = (m: number) => selectKernel(aqlmKernels, { layout: "aqlm_tiles8", bits: null, m }, cpu).name;
  expect([1, 2, 63].map(chosen)).toEqual([1, 2, 2].map((rows) => `aqlm_f32_c8_${rows}x64x8_wasm_simd`));
  expect([64, 512].map(chosen)).toEqual(new Array(2).fill("aqlm_lut16_c8_64x64x32_wasm_simd"));
});

it.skipIf(nativeAddon() === null)(
  "the known rows are those of this machine's library (npm run rows writes them)",
  () => {
    const rows = nativeAddon()!
      .kernels()
      .filter(({ family }) => family === "aqlm");
    const built = rows.reduce((bits, { needs }) => bits | needs, 0);
    expect(rows.length).toBeGreaterThan(0);
    expect(knownRows[process.arch]!.filter(({ needs }) => (needs & ~built) === 0)).toEqual(rows);
  },
);

it.each([
  ["skylake-x", "avx512"],
  ["haswell", "avx2"],
])("vectors serve codes of 16 bits on %s up to 63 rows, panels from 64 on", (name, target) => {
  const chosen = (m: number) => selectKernel(aqlmKernels, { layout: "aqlm_tiles", bits: null, m }, cpuWith(name)).name;
  expect([1, 63].map(chosen)).toEqual(new Array(2).fill(`aqlm_f32_cx_1x64x128_${target}`));
  expect([64, 512].map(chosen)).toEqual(new Array(2).fill(`aqlm_f32_cx_64x${target === "avx2" ? 16 : 32}x1_${target}`));
});

it("every row is chosen for some call", () => {
  expect(neverChosen(aqlmKernels)).toEqual([]);
});

it("no row is passed over for one that needs less of a CPU, but where that is meant", () => {
  expect(passedOver(aqlmKernels)).toEqual(
    new Set([
      // A lookup of bytes serves one row, one of vectors of sums 16.
      "aqlm_lut16_c8_16x64x48_avx512_vnni for aqlm_lut16_c8_1x192x128_avx512_vbmi",
      // Lookups of bytes as they are fastest on CPUs with AMX, whose matrices serve many rows.
      "aqlm_i16_c8_13x32x64_amx_int8 for aqlm_lut16_c8_1x256x128_avx512_vbmi",
      // The same lookups for each row, or for eight.
      "aqlm_lut16_c8_3x64x48_neon for aqlm_f32_c8_1x64x128_neon_bf16",
    ]),
  );
});
