/** Dense float32 matrices, for quantizers that use activations. */

/** A matrix [rows, columns], row-major. */
export interface Matrix {
  /** Number of rows. */
  readonly rows: number;
  /** Number of columns. */
  readonly columns: number;
  /** Elements, row by row. */
  readonly data: Float32Array;
}

/** Computes a b^T for a [m, k] and b [n, k], to [m, n]. */
export type Product = (a: Matrix, b: Matrix) => Matrix;

/** Makes a matrix [rows, columns] over `data`, by default zeros. */
export function matrix(rows: number, columns: number, data: Float32Array = new Float32Array(rows * columns)): Matrix {
  return { rows, columns, data };
}

/** Rows and columns of a tile of the transposition, which fits in a cache. */
const TILE = 32;

/** A transposed copy, [columns, rows]. */
export function transpose({ rows, columns, data }: Matrix): Matrix {
  const result = matrix(columns, rows);
  for (let top = 0; top < rows; top += TILE)
    for (let left = 0; left < columns; left += TILE) {
      const [bottom, right] = [Math.min(rows, top + TILE), Math.min(columns, left + TILE)];
      for (let c = left; c < right; c++)
        for (let r = top; r < bottom; r++) result.data[c * rows + r] = data[r * columns + c]!;
    }
  return result;
}

/** A copy of columns first .. first + count - 1. */
export function columnsOf({ rows, columns, data }: Matrix, first: number, count: number): Matrix {
  const result = matrix(rows, count);
  for (let r = 0; r < rows; r++)
    result.data.set(data.subarray(r * columns + first, r * columns + first + count), r * count);
  return result;
}

/** A copy of rows first .. end - 1 and columns from .. to - 1. */
export function partOf({ columns: k, data }: Matrix, first: number, end: number, from: number, to: number): Matrix {
  const result = matrix(end - first, to - from);
  for (let r = first; r < end; r++)
    result.data.set(data.subarray(r * k + from, r * k + to), (r - first) * result.columns);
  return result;
}

/** Writes a matrix over the columns of `to` from `first` on. */
export function setColumns(to: Matrix, first: number, { rows, columns, data }: Matrix): void {
  for (let r = 0; r < rows; r++) to.data.set(data.subarray(r * columns, (r + 1) * columns), r * to.columns + first);
}

/** Adds `times` a matrix to the columns of `to` from `first` on, in its first rows. */
export function addColumns(to: Matrix, first: number, { rows, columns, data }: Matrix, times: number): void {
  for (let r = 0; r < rows; r++) {
    const start = r * to.columns + first;
    for (let c = 0; c < columns; c++) to.data[start + c]! += times * data[r * columns + c]!;
  }
}
