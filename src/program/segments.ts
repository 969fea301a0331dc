/** Data segments after the tables of programs and tensor files: their places, and their data. */
import { type ByteSource, checkRange } from "../byte-source.ts";
import { InvalidFileError } from "../errors.ts";
import type { DataSource } from "./program.ts";
import { PAGE_BYTES } from "./verify.ts";

/** A segment; its offset counts from the segment base. */
export interface Segment {
  readonly offset: number;
  readonly size: number;
}

/** Gives the data at an offset from the segment base. */
export type Locate = (offset: number, byteLength: number) => DataSource;

/** Reads data of a file on demand, so the source must stay open while it is. */
export function dataOf(source: ByteSource, segmentBase: number): Locate {
  return (offset, byteLength) => ({
    byteLength,
    read: () => source.read(segmentBase + offset, byteLength),
    async readInto(target) {
      const start = segmentBase + offset;
      if (source.readInto) await source.readInto(start, target);
      else target.set(await source.read(start, byteLength));
    },
    readRange: async (start, length) => {
      checkRange(`${source.name}, data at ${offset}`, byteLength, start, length);
      return source.read(segmentBase + offset + start, length);
    },
  });
}

/**
 * InvalidFileError unless segments are sorted by offset and lie in the file, after the tables. ExecuTorch's exporter lists
 * an empty segment in a file that has none.
 */
export function checkSegments(source: ByteSource, segmentBase: number, segments: readonly Segment[]): void {
  if (segments.some(({ size }) => size > 0) && segmentBase === 0)
    throw new InvalidFileError(source.name, `has ${segments.length} segments but its header says that there are none`);
  let end = 0;
  segments.forEach(({ offset, size }, index) => {
    if (offset < end)
      throw new InvalidFileError(
        source.name,
        `segments[${index}]: starts at ${offset}, before ${end} where the last ends`,
      );
    end = offset + size;
    if (segmentBase + end > source.size)
      throw new InvalidFileError(
        source.name,
        `segments[${index}]: ends at byte ${segmentBase + end} of a file of ${source.size}; it is truncated or damaged`,
      );
  });
}

export function noSegment(count: number, found: number): string {
  return `segment_index: expected one of ${count} segments but found ${found}`;
}

/** The largest power of two, up to a page, that divides a position in the file. */
export function alignmentOf(position: number): number {
  const rest = position % PAGE_BYTES;
  return rest === 0 ? PAGE_BYTES : rest & -rest;
}
