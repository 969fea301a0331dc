/**
 * `panel16`: lowbit's own layout of quantized weights, one for WebAssembly, AVX-512, AMX and the reference.
 * Panels of 16 rows; in a 64-byte vector, lane r (4 bytes) belongs to row r, and byte j of field f is weight k = 4 f + j.
 */
import { panelLayout } from "./panels.ts";

const VECTOR_BYTES = 64;

export const panel16 = panelLayout({
  id: 1,
  name: "panel16",
  rows: 16,
  vectorBytes: VECTOR_BYTES,
  flip: 0,
  byteOf: ({ vectors, fields }, lane, step) => Math.floor(step / fields.length) * vectors * VECTOR_BYTES + 4 * lane,
  fieldOf: ({ fields }, _, step) => step % fields.length,
});
