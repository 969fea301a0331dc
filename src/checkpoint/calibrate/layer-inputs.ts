/** What goes into a linear layer while a model reads a text, window by window, and sums of its products. */
import { type Matrix, matrix, transpose } from "../../matrix.ts";
import { multiplyTransposed } from "../../ops/product.ts";
import type { Tensor } from "../../tensor.ts";

/** All windows, those that something is fitted to, or those that are held out, to check it. */
export type Windows = "all" | "fitted" | "held out";

/** What goes into a linear layer. */
export interface LayerInputs {
  /** What goes in, [tokens, k]. */
  inputs(windows?: Windows): Matrix;
  /**
   * What goes in where no weight of a layer before is changed, [tokens, k]; null where that is not known, or what `inputs`
   * gives.
   */
  floatInputs(windows?: Windows): Matrix | null;
  /** Mean squares of what goes in [k]; zeros where nothing does. */
  power(): Float32Array;
  /** X^T X [k, k] of inputs X, the same object for layers of the same input: not to be changed. */
  hessian(windows?: Windows): Matrix;
  /** X^T (F - X) [k, k] of inputs X and float inputs F, as `hessian`; null without F. */
  drift(windows?: Windows): Matrix | null;
}

/** One of so many windows is held out; none of fewer. */
export const HELD_OUT = 8;
/** Tokens whose products are summed at a time. */
const CHUNK_TOKENS = 4096;
/** Columns of X^T X that are computed at a time: those before are known by symmetry. */
const BAND = 512;

/** What is asked of inputs [.., columns], a tensor a window; `known` keeps sums of products of the same inputs. */
export function layerInputs(
  columns: number,
  tensors: readonly Tensor[],
  floats: readonly Tensor[] | null = null,
  known: Map<string, Matrix> = new Map(),
): LayerInputs {
  const inputs = (windows: Windows = "all") => rowsOf(chosen(tensors, windows), columns);
  const sumOnce = (name: string, windows: Windows, sum: (...of: (readonly Tensor[])[]) => Matrix): Matrix => {
    const key = `${name} ${windows}`;
    const found = known.get(key) ?? sum(chosen(tensors, windows), chosen(floats ?? [], windows));
    known.set(key, found);
    return found;
  };
  return {
    inputs,
    floatInputs: (windows = "all") => floats && rowsOf(chosen(floats, windows), columns),
    power: () => meanSquares(inputs()),
    hessian: (windows = "all") => sumOnce("hessian", windows, (x) => squaresOf(x, columns)),
    drift: (windows = "all") => floats && sumOnce("drift", windows, (x, float) => driftOf(x, float!, columns)),
  };
}

/** Those of some windows. */
function chosen(tensors: readonly Tensor[], windows: Windows): readonly Tensor[] {
  if (windows === "all") return tensors;
  return tensors.filter((_, w) => (w % HELD_OUT === HELD_OUT - 1) === (windows === "held out"));
}

/** Windows in parts of some thousand tokens. */
export function inChunks(tensors: readonly Tensor[]): Tensor[][] {
  const chunks: Tensor[][] = [];
  let tokens = 0;
  for (const tensor of tensors) {
    const rows = rowCount(tensor);
    if (chunks.length === 0 || tokens + rows > CHUNK_TOKENS) {
      chunks.push([]);
      tokens = 0;
    }
    chunks.at(-1)!.push(tensor);
    tokens += rows;
  }
  return chunks;
}

/** X^T X of rows X. */
function squaresOf(tensors: readonly Tensor[], columns: number): Matrix {
  const sum = matrix(columns, columns);
  for (const chunk of inChunks(tensors)) {
    const { data, columns: tokens } = transpose(rowsOf(chunk, columns));
    for (let first = 0; first < columns; first += BAND) {
      const end = Math.min(columns, first + BAND);
      const band = matrix(end - first, tokens, data.subarray(first * tokens, end * tokens));
      const found = multiplyTransposed(band, matrix(columns - first, tokens, data.subarray(first * tokens)));
      for (let r = 0; r < found.rows; r++)
        for (let c = 0; c < found.columns; c++)
          sum.data[(first + r) * columns + first + c]! += found.data[r * found.columns + c]!;
    }
  }
  for (let r = 0; r < columns; r++) for (let c = 0; c < r; c++) sum.data[r * columns + c] = sum.data[c * columns + r]!;
  return sum;
}

/** X^T (F - X) of rows X and F. */
function driftOf(tensors: readonly Tensor[], floats: readonly Tensor[], columns: number): Matrix {
  const sum = matrix(columns, columns);
  const floatChunks = inChunks(floats);
  for (const [i, chunk] of inChunks(tensors).entries()) {
    const x = rowsOf(chunk, columns);
    const difference = rowsOf(floatChunks[i]!, columns).data.map((value, j) => value - x.data[j]!);
    const found = multiplyTransposed(transpose(x), transpose(matrix(x.rows, columns, difference))).data;
    for (let j = 0; j < found.length; j++) sum.data[j]! += found[j]!;
  }
  return sum;
}

function meanSquares({ rows, columns, data }: Matrix): Float32Array {
  const sums = new Float64Array(columns);
  for (let start = 0; start < data.length; start += columns)
    for (let c = 0; c < columns; c++) sums[c]! += data[start + c]! * data[start + c]!;
  return Float32Array.from(sums, (sum) => sum / Math.max(1, rows));
}

const rowCount = ({ shape, data }: Tensor) => data.length / shape.at(-1)!;

/** Rows of some windows, of so many columns; not to be changed. */
function rowsOf(tensors: readonly Tensor[], columns: number): Matrix {
  const data = joined(tensors);
  return matrix(data.length / columns, columns, data);
}

/** Rows of some windows as those of one. */
export function joinRows(tensors: readonly Tensor[]): Tensor {
  const data = joined(tensors);
  const columns = tensors[0]!.shape.at(-1)!;
  return { dtype: "f32", shape: [1, data.length / columns, columns], data };
}

/** Numbers of some tensors one after the other, without a copy where they lie so. */
function joined(tensors: readonly Tensor[]): Float32Array {
  const parts = tensors.map(({ data }) => data as Float32Array);
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const first = parts[0];
  const follows = (part: Float32Array, before: Float32Array) =>
    part.buffer === before.buffer && part.byteOffset === before.byteOffset + before.byteLength;
  if (first && parts.every((part, i) => i === 0 || follows(part, parts[i - 1]!)))
    return new Float32Array(first.buffer as ArrayBuffer, first.byteOffset, length);
  const data = new Float32Array(length);
  let start = 0;
  for (const part of parts) {
    data.set(part, start);
    start += part.length;
  }
  return data;
}

/** The rows of a tensor by the windows that `joinRows` made one. */
export function splitRows({ dtype, shape, data }: Tensor, windows: readonly Tensor[]): Tensor[] {
  const columns = shape.at(-1)!;
  let start = 0;
  return windows.map((window) => {
    const part = (data as Float32Array).subarray(start, start + rowCount(window) * columns);
    start += part.length;
    return { dtype, shape: [...window.shape.slice(0, -1), columns], data: part };
  });
}
