/** Dense float32 matrices of quantizers that look at activations. */

/** Row-major [rows, columns]. */
export interface Matrix {
  /** Number of rows. */
  readonly rows: number;
  /** Number of columns. */
  readonly columns: number;
  /** Elements, row by row. */
  readonly data: Float32Array;
}

/** a [m, k] times b [n, k] transposed → [m, n]. */
export type Product = (a: Matrix, b: Matrix) => Matrix;

/** A matrix [rows, columns] over `data`, which is all zeros unless it is given. */
export function matrix(rows: number, columns: number, data: Float32Array = new Float32Array(rows * columns)): Matrix {
  return { rows, columns, data };
}

/** The transposed matrix [columns, rows], in memory of its own. */
export function transpose({ rows, columns, data }: Matrix): Matrix {
  const result = matrix(columns, rows);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) result.data[c * rows + r] = data[r * columns + c]!;
  return result;
}

/** Columns first .. first + count. */
export function columnsOf({ rows, columns, data }: Matrix, first: number, count: number): Matrix {
  const result = matrix(rows, count);
  for (let r = 0; r < rows; r++)
    result.data.set(data.subarray(r * columns + first, r * columns + first + count), r * count);
  return result;
}
