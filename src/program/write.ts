/**
 * Writes `.pte` files: header, FlatBuffer, then the constant segment and one segment for each blob of named data. Data is
 * read, written and dropped one by one, so at most one constant, or a part of one, is in memory.
 */
import type { ByteSink, HeadedParts } from "../byte-source.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { ProgramTable } from "./decode.ts";
import { encodeProgram } from "./encode.ts";
import { HEADER_BYTES, insertHeader } from "./header.ts";
import type { DataSource, Program } from "./program.ts";
import { PAGE_BYTES, verifyProgram } from "./verify.ts";

/** Alignment of segments other than the constants, which start on a page; it is ExecuTorch's default. */
const SEGMENT_ALIGNMENT = 128;

export interface WriteOptions {
  /** Called after each part, with bytes done and bytes in all. */
  readonly onProgress?: (doneBytes: number, totalBytes: number) => void;
  /** Stops between parts; the promise rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** Data and its offset from the segment base. */
interface Piece {
  readonly name: string;
  readonly offset: number;
  readonly data: DataSource;
}

interface Layout extends Pick<ProgramTable, "segments" | "constants" | "namedData"> {
  /** In file order. */
  readonly pieces: readonly Piece[];
}

/**
 * Writes a program to a sink, from its beginning or from a mark of an interrupted write. Constants lie at their alignment,
 * in the program's order; each is read once, and a constant or named data that is listed twice (the same object) is stored
 * once. Equal programs give equal bytes. Of delegates only the ids are written. InvalidArgumentError when the program is
 * not consistent, or data has another length than it said.
 */
export async function writeProgram(program: Program, sink: ByteSink, options: WriteOptions = {}): Promise<void> {
  verifyProgram(program, (place, problem) => {
    throw new InvalidArgumentError(`program: ${place}: ${problem}`);
  });
  const { start, pieces, segmentBase, total } = startOf(program);
  let { position } = sink;
  const write = async (bytes: Uint8Array): Promise<void> => {
    options.signal?.throwIfAborted();
    await sink.write(bytes);
    position += bytes.length;
    options.onProgress?.(position, total);
  };
  if (position === 0) await write(start);
  for (const { name, offset, data } of pieces) {
    const begin = segmentBase + offset;
    if (position > begin) continue; // an earlier run wrote it
    if (position < begin) await write(new Uint8Array(begin - position));
    options.signal?.throwIfAborted();
    if (data.headed) await writeHeaded(data.headed(), begin, write, sink);
    else if (data.parts) for await (const part of data.parts()) await write(part);
    else await write(await data.read());
    if (position !== begin + data.byteLength)
      throw new InvalidArgumentError(
        `program: ${name}: expected ${data.byteLength} bytes but read() gave ${position - begin}`,
      );
    await sink.mark?.();
  }
}

/** Writes data from `begin` on, and then its header, which is known last. */
async function writeHeaded(
  { headBytes, rest, head }: HeadedParts,
  begin: number,
  write: ByteSink["write"],
  sink: ByteSink,
): Promise<void> {
  await write(new Uint8Array(headBytes));
  for await (const part of rest) await write(part);
  await sink.rewrite(begin, head());
}

/** The beginning of a program's file, which contains everything except its data. */
export function encodeStart(program: Program): Uint8Array {
  return startOf(program).start;
}

/** Bytes of the file that a program would be written to. */
export function fileBytes(program: Program): number {
  return startOf(program).total;
}

function startOf(program: Program) {
  const layout = planLayout(program);
  const flatbuffer = encodeProgram({ methods: program.methods, ...layout });
  const programBytes = flatbuffer.length + HEADER_BYTES;
  const last = layout.segments.at(-1);
  const segmentBase = last ? alignUp(programBytes, PAGE_BYTES) : 0;
  const segmentBytes = last ? last.offset + last.size : 0;
  const start = insertHeader(flatbuffer, { programBytes, segmentBase, segmentBytes });
  return { start, pieces: layout.pieces, segmentBase, total: last ? segmentBase + segmentBytes : programBytes };
}

function planLayout(program: Program): Layout {
  const { pieces, offsets, bytes } = planConstants(program);
  const segments = program.constants.length > 0 ? [{ offset: 0, size: bytes }] : [];
  const segmentOf = new Map<DataSource, number>();
  let end = bytes;
  for (const [key, data] of program.namedData) {
    if (segmentOf.has(data)) continue;
    const offset = alignUp(end, SEGMENT_ALIGNMENT);
    segmentOf.set(data, segments.length);
    segments.push({ offset, size: data.byteLength });
    pieces.push({ name: `named data "${key}"`, offset, data });
    end = offset + data.byteLength;
  }
  return {
    pieces,
    segments,
    constants: program.constants.length > 0 ? { segment: 0, offsets: [0, ...offsets] } : null,
    namedData: [...program.namedData].map(([key, data]) => ({ key, segment: segmentOf.get(data)! })),
  };
}

/** Places constants one after the other, each at its alignment; `offsets` has one entry for each constant. */
function planConstants(program: Program): { pieces: Piece[]; offsets: number[]; bytes: number } {
  const pieces: Piece[] = [];
  const offsetOf = new Map<Program["constants"][number], number>();
  let end = 0;
  program.constants.forEach((constant, index) => {
    if (offsetOf.has(constant)) return;
    const offset = alignUp(end, constant.alignment);
    offsetOf.set(constant, offset);
    pieces.push({ name: `constant ${index}`, offset, data: constant.data });
    end = offset + constant.data.byteLength;
  });
  return { pieces, offsets: program.constants.map((constant) => offsetOf.get(constant)!), bytes: end };
}

function alignUp(offset: number, alignment: number): number {
  return Math.ceil(offset / alignment) * alignment;
}
