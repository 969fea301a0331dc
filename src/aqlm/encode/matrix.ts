/** Dense products for the encoder: the float linear operator, which the native kernels serve. */
import { EagerBuilder, hostCpu, operators } from "../../extension/index.ts";

/** Row-major [rows, columns]. */
export interface Matrix {
  readonly rows: number;
  readonly columns: number;
  readonly data: Float32Array;
}

export function matrix(rows: number, columns: number, data: Float32Array = new Float32Array(rows * columns)): Matrix {
  return { rows, columns, data };
}

let builder: EagerBuilder | undefined;

/** a [m, k] times b [n, k] transposed → [m, n]. */
export function multiplyTransposed(a: Matrix, b: Matrix): Matrix {
  builder ??= new EagerBuilder(operators, hostCpu());
  const tensor = ({ rows, columns, data }: Matrix) => ({ dtype: "f32" as const, shape: [rows, columns], data });
  const { data } = builder.call("aten::linear.out", tensor(a), tensor(b), null);
  return matrix(a.rows, b.rows, data as Float32Array);
}

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
