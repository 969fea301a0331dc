/** Cases of kernels that copy values. */
import { casesOf, floats } from "../../cases.ts";
import { gatherColumns, joinColumns, select } from "./kernels.ts";

/** Selects the last row of each of `outer` blocks of `rows` rows of `dim` floats. */
const lastRows = (outer: number, rows: number, dim: number) => ({
  ...{ outer, stride: 4 * rows * dim, offset: 4 * (rows - 1) * dim, blockBytes: 4 * dim },
  x: new Uint8Array(floats(outer * rows * dim).buffer),
});

export const selectCases = casesOf(select, {
  small: [lastRows(7, 4, 16), { ...lastRows(7, 4, 16), offset: 16, blockBytes: 40 }],
  model: (tokens, { hidden }) => lastRows(tokens, 32, hidden),
});

const columnsOf = (dim: number, step: number) => Int32Array.from({ length: dim }, (_, i) => (step * i) % dim);

export const gatherColumnsCases = casesOf(gatherColumns, {
  small: [
    { rows: 7, dim: 64, columns: columnsOf(64, 7) },
    { rows: 3, dim: 61, columns: BigInt64Array.of(60n, 0n, 5n) },
  ],
  model: (rows, { hidden }) => ({ rows, dim: hidden, columns: columnsOf(hidden, 771) }),
});

const sideBySide = (rows: number, first: number, second: number) => ({
  ...{ rows, first, second, columns: first + second },
  left: floats(rows * first),
  right: floats(rows * second),
});

export const joinColumnsCases = casesOf(joinColumns, {
  small: [sideBySide(1, 61, 3), sideBySide(7, 32, 65)],
  model: (rows, { hidden }) => sideBySide(rows, hidden, 3 * hidden),
});
