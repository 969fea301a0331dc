/** Identifies programs, so that keys and values of one are never used by another. */
import { crc32c } from "../sequences/crc32c.ts";
import { bytesOf } from "../tensor.ts";
import type { LoadedProgram } from "./program.ts";

/** Bytes that are hashed at the start, in the middle and at the end of each constant. */
const SAMPLE_BYTES = 4096;

/**
 * A text that is equal for programs with equal metadata and constants, as far as sizes and samples of the constants tell.
 */
export function programIdentity({ metadata, constants }: LoadedProgram): string {
  const sums = new Uint32Array(2 * constants.length);
  for (const [i, constant] of constants.entries()) {
    const middle = Math.floor(constant.length / 2);
    const parts = [
      constant.subarray(0, SAMPLE_BYTES),
      constant.subarray(middle, middle + SAMPLE_BYTES),
      constant.subarray(-SAMPLE_BYTES),
    ];
    const samples = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const part of parts) {
      samples.set(part, at);
      at += part.length;
    }
    sums[2 * i] = constant.length;
    sums[2 * i + 1] = crc32c(samples);
  }
  const facts = new TextEncoder().encode(JSON.stringify([...metadata].sort(([a], [b]) => (a < b ? -1 : 1))));
  return `${constants.length}-${crc32c(facts).toString(16)}-${crc32c(bytesOf(sums)).toString(16)}`;
}
