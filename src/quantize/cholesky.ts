/** Triangular factors of symmetric positive matrices, and equations solved by them. */
import { type Matrix, matrix, type Product } from "../matrix.ts";

/**
 * The lower triangle L of A = L L^T, in double precision; A is symmetric and positive, `data` [size, size] is
 * overwritten.
 */
export function cholesky(data: Float64Array, size: number): Float64Array {
  for (let c = 0; c < size; c++) {
    for (let r = c; r < size; r++) {
      let sum = data[r * size + c]!;
      for (let i = 0; i < c; i++) sum -= data[r * size + i]! * data[c * size + i]!;
      data[r * size + c] = r === c ? Math.sqrt(Math.max(sum, 1e-30)) : sum / data[c * size + c]!;
    }
    for (let r = 0; r < c; r++) data[r * size + c] = 0;
  }
  return data;
}

/** Solves L L^T X = B for columns of B [size, columns], in place. */
export function solveCholesky(lower: Float64Array, size: number, b: Float64Array, columns: number): void {
  for (let r = 0; r < size; r++)
    for (let j = 0; j < columns; j++) {
      let sum = b[r * columns + j]!;
      for (let i = 0; i < r; i++) sum -= lower[r * size + i]! * b[i * columns + j]!;
      b[r * columns + j] = sum / lower[r * size + r]!;
    }
  for (let r = size - 1; r >= 0; r--)
    for (let j = 0; j < columns; j++) {
      let sum = b[r * columns + j]!;
      for (let i = r + 1; i < size; i++) sum -= lower[i * size + r]! * b[i * columns + j]!;
      b[r * columns + j] = sum / lower[r * size + r]!;
    }
}

/** Columns that are factored in doubles before the rest is updated by one product. */
const BLOCK = 128;

/**
 * The upper triangle R of A = R R^T; A [size, size] is overwritten. From the last columns to the first, in blocks whose
 * own triangles are found in double precision; the rest is float32.
 */
export function upperFactor(a: Matrix, product: Product): Matrix {
  const { rows: size, data } = a;
  for (let end = size; end > 0; end -= Math.min(end, BLOCK)) {
    const first = Math.max(0, end - BLOCK);
    const count = end - first;
    const triangle = upperTriangle(a, first, count);
    const panel = matrix(first, count);
    for (let r = 0; r < first; r++) solveRow(a, r, first, triangle, panel);
    for (let r = 0; r < count; r++)
      for (let c = 0; c < count; c++) data[(first + r) * size + first + c] = c < r ? 0 : triangle[r * count + c]!;
    for (let r = first; r < end; r++) data.fill(0, r * size, r * size + first);
    if (first > 0) subtract(a, product(panel, panel));
  }
  return a;
}

/** R of the block at `first` on the diagonal: L of the block with rows and columns in opposite order, turned back. */
function upperTriangle({ columns: size, data }: Matrix, first: number, count: number): Float64Array {
  const turned = new Float64Array(count * count);
  const last = first + count - 1;
  for (let r = 0; r < count; r++)
    for (let c = 0; c < count; c++) turned[r * count + c] = data[(last - r) * size + last - c]!;
  return cholesky(turned, count).reverse();
}

/** Row `r` of the columns above a block becomes x with R x = that row; also kept in `panel`. */
function solveRow(
  { columns: size, data }: Matrix,
  r: number,
  first: number,
  triangle: Float64Array,
  panel: Matrix,
): void {
  const count = panel.columns;
  for (let c = count - 1; c >= 0; c--) {
    let sum = data[r * size + first + c]!;
    for (let i = c + 1; i < count; i++) sum -= triangle[c * count + i]! * panel.data[r * count + i]!;
    const value = sum / triangle[c * count + c]!;
    panel.data[r * count + c] = value;
    data[r * size + first + c] = value;
  }
}

/** Subtracts a smaller matrix from the upper left of `a`. */
function subtract(a: Matrix, { rows, columns, data }: Matrix): void {
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) a.data[r * a.columns + c]! -= data[r * columns + c]!;
}
