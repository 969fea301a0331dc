/**
 * Bit fields of the panel layouts: each byte position of `vectors` vectors holds `fields` weights of b bits, and every field is
 * one or more bit ranges of those bytes, so that whole vectors are unpacked by shifts and masks. Odd widths keep most fields
 * contiguous and assemble the rest from spare high bits, which takes fewer operations than separate bit planes.
 */

/** Bits `[at, at + width)` of a field are bits `[shift, shift + width)` of byte `vector`. */
interface FieldPiece {
  readonly vector: number;
  readonly shift: number;
  readonly width: number;
  readonly at: number;
}

export interface FieldTable {
  readonly vectors: number;
  readonly fields: readonly (readonly FieldPiece[])[];
}

/** [vector, shift, width, at] of each piece, field by field. */
type PieceRow = readonly [vector: number, shift: number, width: number, at: number];

function table(vectors: number, rows: readonly (readonly PieceRow[])[]): FieldTable {
  const fields = rows.map((pieces) => pieces.map(([vector, shift, width, at]) => ({ vector, shift, width, at })));
  return { vectors, fields };
}

/** Table of 8 / bits contiguous fields in one byte. */
function whole(bits: number): FieldTable {
  return table(
    1,
    Array.from({ length: 8 / bits }, (_, field) => [[0, field * bits, bits, 0]]),
  );
}

/** Field tables by number of bits. */
export const fieldTables: Readonly<Record<number, FieldTable>> = {
  1: whole(1),
  2: whole(2),
  3: table(3, [
    [[0, 0, 3, 0]],
    [[0, 3, 3, 0]],
    [[1, 0, 3, 0]],
    [[1, 3, 3, 0]],
    [[2, 0, 3, 0]],
    [[2, 3, 3, 0]],
    [
      [0, 6, 2, 0],
      [2, 6, 1, 2],
    ],
    [
      [1, 6, 2, 0],
      [2, 7, 1, 2],
    ],
  ]),
  4: whole(4),
  5: table(5, [
    [[0, 0, 5, 0]],
    [[1, 0, 5, 0]],
    [[2, 0, 5, 0]],
    [[3, 0, 5, 0]],
    [[4, 0, 5, 0]],
    [
      [0, 5, 3, 0],
      [3, 5, 2, 3],
    ],
    [
      [1, 5, 3, 0],
      [4, 5, 2, 3],
    ],
    [
      [2, 5, 3, 0],
      [3, 7, 1, 3],
      [4, 7, 1, 4],
    ],
  ]),
  6: table(3, [
    [[0, 0, 6, 0]],
    [[1, 0, 6, 0]],
    [[2, 0, 6, 0]],
    [
      [0, 6, 2, 0],
      [1, 6, 2, 2],
      [2, 6, 2, 4],
    ],
  ]),
  7: table(7, [
    ...Array.from({ length: 7 }, (_, vector): PieceRow[] => [[vector, 0, 7, 0]]),
    Array.from({ length: 7 }, (_, vector): PieceRow => [vector, 7, 1, vector]),
  ]),
  8: whole(8),
};
