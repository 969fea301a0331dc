/** Triangular factors of symmetric positive matrices, and equations solved by them. */
import { addColumns, columnsOf, type Matrix, matrix, type Product, partOf, setColumns, transpose } from "../matrix.ts";

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

/** Columns of a block. */
const BLOCK = 128;

/**
 * The upper triangle R of A = R R^T; A [size, size] is overwritten by R. Blocks of columns are factored from the last to the
 * first: triangles on the diagonal in double precision, what is above them by products in float32.
 */
export function upperFactor(a: Matrix, product: Product): Matrix {
  const { rows: size, data } = a;
  const room = new Float32Array(Math.ceil(size / 2) ** 2);
  for (let end = size; end > 0; end -= Math.min(end, BLOCK)) {
    const first = Math.max(0, end - BLOCK);
    const count = end - first;
    if (end < size) {
      const known = partOf(a, 0, end, end, size, room);
      const own = matrix(count, size - end, known.data.subarray(first * (size - end)));
      addColumns(a, first, product(known, own), -1);
    }
    const triangle = upperTriangle(a, first, count);
    if (first > 0) setColumns(a, first, product(partOf(a, 0, first, first, end), inverseOf(triangle, count)));
    for (let r = 0; r < count; r++)
      for (let c = 0; c < count; c++) data[(first + r) * size + first + c] = c < r ? 0 : triangle[r * count + c]!;
    for (let r = first; r < end; r++) data.fill(0, r * size, r * size + first);
  }
  return a;
}

/**
 * X [n, size] of X U D U^T = B; U [size, size] is upper with ones on the diagonal, `squares` [size] is the diagonal of D. B is
 * overwritten.
 */
export function solveFactored(factor: Matrix, squares: Float32Array, b: Matrix, product: Product): Matrix {
  const { rows: size } = factor;
  const inverses = Array.from({ length: Math.ceil(size / BLOCK) }, (_, i) => {
    const first = i * BLOCK;
    const end = Math.min(size, first + BLOCK);
    return inverseOf(Float64Array.from(partOf(factor, first, end, first, end).data), end - first);
  });
  // Y U^T = B from the last columns, then X U = Y / D from the first. Halves of columns are solved one after the other.
  const solve = (first: number, end: number, isFirst: boolean): void => {
    if (end - first <= BLOCK) {
      const inverse = inverses[first / BLOCK]!;
      setColumns(b, first, product(columnsOf(b, first, end - first), isFirst ? inverse : transpose(inverse)));
      return;
    }
    const middle = first + BLOCK * Math.ceil((end - first) / BLOCK / 2);
    const above = partOf(factor, first, middle, middle, end);
    if (isFirst) {
      solve(middle, end, true);
      addColumns(b, first, product(columnsOf(b, middle, end - middle), above), -1);
      solve(first, middle, true);
    } else {
      solve(first, middle, false);
      addColumns(b, middle, product(columnsOf(b, first, middle - first), transpose(above)), -1);
      solve(middle, end, false);
    }
  };
  solve(0, size, true);
  for (let i = 0; i < b.data.length; i++) b.data[i]! /= squares[i % size]!;
  solve(0, size, false);
  return b;
}

/** R of the `count` x `count` block at `first` on the diagonal: by L of the block with rows and columns reversed. */
function upperTriangle({ columns: size, data }: Matrix, first: number, count: number): Float64Array {
  const turned = new Float64Array(count * count);
  const last = first + count - 1;
  for (let r = 0; r < count; r++)
    for (let c = 0; c < count; c++) turned[r * count + c] = data[(last - r) * size + last - c]!;
  return cholesky(turned, count).reverse();
}

/** The inverse of an upper triangle. */
function inverseOf(triangle: Float64Array, size: number): Matrix {
  const result = new Float64Array(size * size);
  for (let c = 0; c < size; c++)
    for (let r = c; r >= 0; r--) {
      let sum = r === c ? 1 : 0;
      for (let i = r + 1; i <= c; i++) sum -= triangle[r * size + i]! * result[i * size + c]!;
      result[r * size + c] = sum / triangle[r * size + r]!;
    }
  return matrix(size, size, Float32Array.from(result));
}
