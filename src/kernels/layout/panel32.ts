/**
 * `panel32`: lowbit's layout for Arm. Panels of 32 rows, 16-byte vectors of 4 rows and 4 consecutive k; the fields of a
 * byte belong to different rows, so that all of them are multiplied by the same activations. For 4 bits:
 *
 *     vectors of k = 4 s .. 4 s + 3, one after the other:
 *       0: low nibbles rows 0..3, high nibbles rows 4..7     1: rows 8..11 and 12..15     2: …
 *
 * Lane r of a vector (4 bytes) belongs to row r of each four, byte j to k = 4 s + j. The highest bit of every byte is
 * flipped: read as a signed number the byte is 128 less, and its lower fields are what a mask leaves. A kernel gets the
 * sum of each field as a difference of two dot products, without any shift: with byte = 16 high + low,
 * 16 high . q = byte . q - low . q.
 */
import { panelLayout } from "./panels.ts";

const VECTOR_BYTES = 16;

export const panel32 = panelLayout({
  id: 3,
  name: "panel32",
  suits: ["neon"],
  rows: 32,
  vectorBytes: VECTOR_BYTES,
  flip: 0x80,
  byteOf({ vectors, fields }, lane, step) {
    const unit = Math.floor((lane >> 2) / fields.length);
    const units = 8 / fields.length;
    return (step * units + unit) * vectors * VECTOR_BYTES + 4 * (lane & 3);
  },
  fieldOf: ({ fields }, lane) => (lane >> 2) % fields.length,
});
