// biome-ignore-all format: one row a line
/** The rows of the addons of all architectures, best first, as native/kernel.h declares them. Written by `npm run rows`. */
import type { NativeRow } from "./interface.ts";

/** name, family, layout, bits, needs, mStep, nStep */
type Fields = readonly [string, string, string | null, number, number, number, number];

const fields: Readonly<Record<string, readonly Fields[]>> = {
  x64: [
    ["linear_a8_wx_1x64x4_avx512_vnni", "linear_a8", "panel16", 0x1fe, 0xd, 1, 64],
    ["linear_a8_wx_1x64x4_avx_vnni", "linear_a8", "panel16", 0x1fe, 0x3, 1, 64],
    ["linear_a8_wx_1x64x4_avx2", "linear_a8", "panel16", 0x1fe, 0x1, 1, 64],
    ["attention_f32_128x1x32_amx", "attention", null, 0x0, 0xa5, 128, 1],
    ["attention_f32_1x1x16_avx512", "attention", null, 0x0, 0x5, 1, 1],
    ["rms_norm_f32_1x1x16_avx512", "rms_norm", null, 0x0, 0x5, 1, 1],
    ["rope_f32_1x1x16_avx512", "rope", null, 0x0, 0x5, 1, 1],
    ["swiglu_f32_1x1x16_avx512", "swiglu", null, 0x0, 0x5, 1, 1],
    ["add_f32_1x1x16_avx512", "add", null, 0x0, 0x5, 1, 1],
    ["softmax_f32_1x1x16_avx512", "softmax", null, 0x0, 0x5, 1, 1],
    ["argmax_f32_1x1x16_avx512", "argmax", null, 0x0, 0x5, 1, 1],
    ["embedding_f32_1x1x16_avx512", "embedding_float", null, 0x0, 0x5, 1, 1],
    ["attention_f32_1x1x8_avx2", "attention", null, 0x0, 0x1, 1, 1],
    ["rms_norm_f32_1x1x8_avx2", "rms_norm", null, 0x0, 0x1, 1, 1],
    ["rope_f32_1x1x8_avx2", "rope", null, 0x0, 0x1, 1, 1],
    ["swiglu_f32_1x1x8_avx2", "swiglu", null, 0x0, 0x1, 1, 1],
    ["add_f32_1x1x8_avx2", "add", null, 0x0, 0x1, 1, 1],
    ["softmax_f32_1x1x8_avx2", "softmax", null, 0x0, 0x1, 1, 1],
    ["argmax_f32_1x1x8_avx2", "argmax", null, 0x0, 0x1, 1, 1],
    ["embedding_f32_1x1x8_avx2", "embedding_float", null, 0x0, 0x1, 1, 1],
    ["attention_f32_1x1x4_sse2", "attention", null, 0x0, 0x1000, 1, 1],
    ["rms_norm_f32_1x1x4_sse2", "rms_norm", null, 0x0, 0x1000, 1, 1],
    ["rope_f32_1x1x4_sse2", "rope", null, 0x0, 0x1000, 1, 1],
    ["swiglu_f32_1x1x4_sse2", "swiglu", null, 0x0, 0x1000, 1, 1],
    ["add_f32_1x1x4_sse2", "add", null, 0x0, 0x1000, 1, 1],
    ["softmax_f32_1x1x4_sse2", "softmax", null, 0x0, 0x1000, 1, 1],
    ["argmax_f32_1x1x4_sse2", "argmax", null, 0x0, 0x1000, 1, 1],
    ["embedding_f32_1x1x4_sse2", "embedding_float", null, 0x0, 0x1000, 1, 1],
    ["shared_embedding_wx_1x1x16_sse2", "shared_embedding", "panel16", 0x1fe, 0x1000, 1, 1],
    ["shared_embedding_wx_1x1x32_sse2", "shared_embedding", "panel32", 0x1fe, 0x1000, 1, 1],
    ["embedding_wx_1x1x1_sse2", "embedding_packed", "torchao_embedding", 0x1fe, 0x1000, 1, 1],
    ["rope_angles_f32_1x1x1_sse2", "rope_angles", null, 0x0, 0x1000, 1, 1],
    ["select_any_1x1x1_sse2", "select", null, 0x0, 0x1000, 1, 1],
  ],
  arm64: [
    ["linear_a8_wx_1x32x4_neon_i8mm", "linear_a8", "panel32", 0xaa, 0x700, 1, 32],
    ["linear_a8_wx_8x32x8_neon_i8mm", "linear_a8", "panel32", 0x1fe, 0x700, 8, 32],
    ["linear_a8_wx_1x32x4_neon_dotprod", "linear_a8", "panel32", 0x1fe, 0x300, 1, 32],
    ["linear_a8_wx_8x32x4_neon_dotprod", "linear_a8", "panel32", 0x1fe, 0x300, 8, 32],
    ["linear_a8_wx_1x16x4_neon_dotprod", "linear_a8", "panel16", 0x1fe, 0x300, 1, 16],
    ["linear_a8_wx_1x32x4_neon", "linear_a8", "panel32", 0x1fe, 0x100, 1, 32],
    ["linear_a8_wx_1x16x4_neon", "linear_a8", "panel16", 0x1fe, 0x100, 1, 16],
    ["attention_f32_1x1x4_neon", "attention", null, 0x0, 0x100, 1, 1],
    ["rms_norm_f32_1x1x4_neon", "rms_norm", null, 0x0, 0x100, 1, 1],
    ["rope_f32_1x1x4_neon", "rope", null, 0x0, 0x100, 1, 1],
    ["swiglu_f32_1x1x4_neon", "swiglu", null, 0x0, 0x100, 1, 1],
    ["add_f32_1x1x4_neon", "add", null, 0x0, 0x100, 1, 1],
    ["softmax_f32_1x1x4_neon", "softmax", null, 0x0, 0x100, 1, 1],
    ["argmax_f32_1x1x4_neon", "argmax", null, 0x0, 0x100, 1, 1],
    ["embedding_f32_1x1x4_neon", "embedding_float", null, 0x0, 0x100, 1, 1],
    ["shared_embedding_wx_1x1x16_neon", "shared_embedding", "panel16", 0x1fe, 0x100, 1, 1],
    ["shared_embedding_wx_1x1x32_neon", "shared_embedding", "panel32", 0x1fe, 0x100, 1, 1],
    ["embedding_wx_1x1x1_neon", "embedding_packed", "torchao_embedding", 0x1fe, 0x100, 1, 1],
    ["rope_angles_f32_1x1x1_neon", "rope_angles", null, 0x0, 0x100, 1, 1],
    ["select_any_1x1x1_neon", "select", null, 0x0, 0x100, 1, 1],
  ],
};

/** Rows by architecture, as process.arch names it. */
export const knownRows: Readonly<Record<string, readonly NativeRow[]>> = Object.fromEntries(
  Object.entries(fields).map(([architecture, rows]) => [
    architecture,
    rows.map(([name, family, layout, bits, needs, mStep, nStep]) => ({ name, family, layout, bits, needs, mStep, nStep })),
  ]),
);
