/** Random damage to the bytes of files, for tests that want clean errors. */
import { checksum, HEADER_BYTES, MAGIC } from "../../src/kernels/layout/header.ts";
import type { Random } from "./random.ts";

/** Numbers that are often at a limit. */
export const numbers = [0, 1, 2, 3, -1, 32, 64, 255, 65536, 2 ** 31 - 1, -(2 ** 31)];

/** Offsets of the headers of packed weights. */
export function packedHeaders(bytes: Uint8Array): number[] {
  const view = new DataView(bytes.buffer);
  const offsets = Array.from({ length: Math.floor(bytes.length / 16) - 4 }, (_, i) => 16 * i);
  return offsets.filter((offset) => view.getUint32(offset, true) === MAGIC);
}

/** Changes a few words of the first `tableBytes`, or of the header of some packed weights. */
export function changeBytes(
  bytes: Uint8Array,
  { tableBytes, headers = [] }: { tableBytes: number; headers?: readonly number[] },
  random: Random,
): void {
  const view = new DataView(bytes.buffer);
  for (let changes = random.integer(1, 3); changes > 0; changes--) {
    const inHeader = headers.length > 0 && random.next() < 0.2;
    const [start, length] = inHeader ? [random.pick(headers), HEADER_BYTES] : [0, tableBytes];
    const word = start + 4 * random.integer(0, Math.floor(length / 4) - 1);
    const other = start + 4 * random.integer(0, Math.floor(length / 4) - 1);
    const kind = random.integer(0, 3);
    if (kind === 0) bytes[word + random.integer(0, 3)]! ^= 1 << random.integer(0, 7);
    else if (kind === 1) bytes[word + random.integer(0, 3)] = random.integer(0, 255);
    else if (kind === 2) view.setInt32(word, random.pick(numbers), true);
    else view.setUint32(word, view.getUint32(other, true), true);
    // Most damaged headers would be found by their checksum alone.
    const header = bytes.subarray(start, start + HEADER_BYTES - 4);
    if (inHeader && random.next() < 0.8) view.setUint32(start + HEADER_BYTES - 4, checksum(header), true);
  }
}

/** Where the tables of a program end, and the segments may begin. */
export function programBytes(bytes: Uint8Array): number {
  return Number(new DataView(bytes.buffer).getBigUint64(16, true));
}
