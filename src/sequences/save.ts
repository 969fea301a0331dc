/** Writes a sequence as the bytes of a file. */
import { byteSize } from "../dtype.ts";
import { partOffsets } from "../kernels/sequence-table.ts";
import { crc32c } from "./crc32c.ts";
import { blocksInFile, encodeHeader, statesInFile } from "./file.ts";
import type { SequenceLayout } from "./layout.ts";
import { firstPageKept, firstPageRead } from "./page-store.ts";
import type { Sequence } from "./sequence.ts";

/** Gives the bytes of a file, part by part; the sequence must not change meanwhile. */
export function* savedParts(sequence: Sequence, layout: SequenceLayout, program: string): Generator<Uint8Array> {
  let sum = 0;
  for (const part of contents(sequence, layout, program)) {
    sum = crc32c(part, sum);
    yield part;
  }
  const end = new Uint8Array(4);
  new DataView(end.buffer).setUint32(0, sum, true);
  yield end;
}

function* contents(sequence: Sequence, layout: SequenceLayout, program: string): Generator<Uint8Array> {
  const { branch, ids, pages, position: tokens } = sequence;
  const firstPages = layout.kinds.map((_, kind) => firstPageOf(sequence, layout, kind));
  const content = { branch, tokens, firstPages, boundary: boundaryOf(sequence, layout) };
  yield encodeHeader(layout, program, content);
  const idBytes = new DataView(new ArrayBuffer(4 * tokens));
  for (const [i, id] of ids.entries()) idBytes.setUint32(4 * i, id, true);
  yield new Uint8Array(idBytes.buffer);
  for (const { page, kind } of blocksInFile(layout, content)) {
    const bytes = pages[page]!.blocks[kind]!.bytes.slice(0, layout.shape.kinds[kind]!.byteLength);
    clearAfter(bytes, layout, kind, tokens - page * layout.pagePositions);
    yield bytes;
  }
  for (const position of statesInFile(layout, content)) {
    const state = position === tokens ? sequence.states.now : pages[position / layout.pagePositions - 1]!.state;
    yield state!.block.bytes.slice(0, layout.shape.stateBytes);
  }
}

/**
 * The first page that is saved of a kind: as many pages before the window as are kept, so that others can begin at the end
 * of the last full page.
 */
function firstPageOf({ pages, position }: Sequence, { shape }: SequenceLayout, kind: number): number {
  const kept = firstPageKept(shape, kind, position);
  const missing = pages.slice(kept, firstPageRead(shape, kind, position)).findLastIndex(({ blocks }) => !blocks[kind]);
  return kept + missing + 1;
}

/** The last page boundary whose state is known; the state after all tokens is known, too. */
function boundaryOf({ pages, position }: Sequence, { shape, pagePositions }: SequenceLayout): number {
  if (shape.stateBytes === 0) return 0;
  if (position % pagePositions === 0) return position;
  const count = Math.floor(position / pagePositions);
  return (pages.slice(0, count).findLastIndex(({ state }) => state) + 1) * pagePositions;
}

/** Zeroes positions from `positions` on (of int4 the whole block), so that no earlier contents of the block are saved. */
function clearAfter(bytes: Uint8Array, layout: SequenceLayout, kind: number, positions: number): void {
  const { pagePositions } = layout;
  const { type, kvHeads, headDim, layers, layerBytes } = layout.kinds[kind]!;
  if (positions >= pagePositions) return;
  if (type === "int4") {
    bytes.fill(0);
    return;
  }
  const offsets = partOffsets({ type, kvHeads, headDim, pagePositions });
  const rowBytes = kvHeads * headDim * byteSize(type === "int8" ? "i8" : type);
  const scaleBytes = kvHeads * byteSize("f32");
  const parts = [
    { start: offsets.keys, end: offsets.values, row: rowBytes },
    { start: offsets.values, end: offsets.keyScales, row: rowBytes },
    { start: offsets.keyScales, end: offsets.valueScales, row: scaleBytes },
    { start: offsets.valueScales, end: layerBytes, row: scaleBytes },
  ];
  for (let layer = 0; layer < layers; layer++)
    for (const { start, end, row } of parts)
      if (end > start) bytes.fill(0, layer * layerBytes + start + positions * row, layer * layerBytes + end);
}
