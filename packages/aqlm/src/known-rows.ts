// biome-ignore-all format: one row a line
/** The rows of the libraries of all architectures, best first, as native/kernel.h declares them. Written by `npm run rows`. */
import type { NativeRow } from "lowbit/extension";

/** name, family, layout, bits, needs, mStep, nStep and, for kernels with limits of groups, those: m, longest */
type Fields = readonly [string, string, string | null, number, number, number, number, (readonly [number, number][])?];

const fields: Readonly<Record<string, readonly Fields[]>> = {
  x64: [
    ["aqlm_bf16_c8_64x32x32_amx_bf16", "aqlm", "aqlm_tiles8", 0x0, 0xa5, 64, 32],
    ["aqlm_bf16_cx_128x32x32_amx_bf16", "aqlm", "aqlm_tiles", 0x0, 0xa5, 128, 32],
    ["aqlm_i16_c8_13x32x64_amx_int8", "aqlm", "aqlm_tiles8", 0x0, 0x4d, 13, 32],
    ["aqlm_i16_cx_4x32x64_amx_int8", "aqlm", "aqlm_tiles", 0x0, 0x4d, 4, 32],
    ["aqlm_lut16_c8_16x64x48_avx512_vnni", "aqlm", "aqlm_tiles8", 0x0, 0xd, 16, 64],
    ["aqlm_lut16_c8_1x256x128_avx512_vbmi", "aqlm", "aqlm_tiles8", 0x0, 0x5d, 1, 256],
    ["aqlm_lut16_c8_1x192x128_avx512_vbmi", "aqlm", "aqlm_tiles8", 0x0, 0x1d, 1, 192],
    ["aqlm_f32_cx_64x32x1_avx512", "aqlm", "aqlm_tiles", 0x0, 0x5, 64, 32],
    ["aqlm_f32_cx_1x64x128_avx512", "aqlm", "aqlm_tiles", 0x0, 0x5, 1, 64],
    ["aqlm_lut16_c8_4x64x48_avx2", "aqlm", "aqlm_tiles8", 0x0, 0x1, 4, 64],
    ["aqlm_lut12_c8_1x64x128_avx2", "aqlm", "aqlm_tiles8", 0x0, 0x1, 1, 64],
    ["aqlm_f32_cx_64x16x1_avx2", "aqlm", "aqlm_tiles", 0x0, 0x1, 64, 16],
    ["aqlm_f32_cx_1x64x128_avx2", "aqlm", "aqlm_tiles", 0x0, 0x1, 1, 64],
  ],
  arm64: [
    ["aqlm_bf16_c8_64x32x8_neon_bf16", "aqlm", "aqlm_tiles8", 0x0, 0x900, 64, 32],
    ["aqlm_bf16_cx_64x32x8_neon_bf16", "aqlm", "aqlm_tiles", 0x0, 0x900, 64, 32],
    ["aqlm_f32_cx_5x32x8_neon_bf16", "aqlm", "aqlm_tiles", 0x0, 0x900, 5, 32],
    ["aqlm_lut16_c8_3x64x48_neon", "aqlm", "aqlm_tiles8", 0x0, 0x100, 3, 64],
    ["aqlm_f32_c8_1x64x128_neon_bf16", "aqlm", "aqlm_tiles8", 0x0, 0x900, 1, 64],
    ["aqlm_lut12_c8_1x64x128_neon", "aqlm", "aqlm_tiles8", 0x0, 0x100, 1, 64],
    ["aqlm_f32_cx_16x8x1_neon", "aqlm", "aqlm_tiles", 0x0, 0x100, 16, 8],
    ["aqlm_f32_cx_1x64x128_neon", "aqlm", "aqlm_tiles", 0x0, 0x100, 1, 64],
  ],
};

/** Rows by architecture, as process.arch names it. */
export const knownRows: Readonly<Record<string, readonly NativeRow[]>> = Object.fromEntries(
  Object.entries(fields).map(([architecture, rows]) => [
    architecture,
    rows.map(([name, family, layout, bits, needs, mStep, nStep, limits]) => {
      const groups = limits?.map(([m, longest]) => ({ m, longest })) ?? null;
      return { name, family, layout, bits, needs, mStep, nStep, groups };
    }),
  ]),
);
