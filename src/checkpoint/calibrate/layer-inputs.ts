/** Inputs of a linear layer while a model reads a text, window by window, and sums of their products. */
import { type Matrix, matrix } from "../../matrix.ts";
import { multiplyTransposed, recycleProduct } from "../../ops/product.ts";
import type { Tensor } from "../../tensor.ts";

/** All windows; those that weights are fitted to; or those that are held out to check them. */
export type Windows = "all" | "fitted" | "held out";

/** Inputs of a linear layer over the whole text. */
export interface LayerInputs {
  /** Number of tokens. */
  readonly tokens: number;
  /** The layer's inputs X, [tokens, k]. */
  inputs(windows?: Windows): Matrix;
  /**
   * The inputs F in the float model, where no earlier layer is quantized, [tokens, k]; null where they are unknown or equal
   * to X.
   */
  floatInputs(windows?: Windows): Matrix | null;
  /** Mean squares of the inputs, [k]; zeros without tokens. */
  power(): Float32Array;
  /** X^T X, [k, k]. Layers with the same inputs get the same object, which must not be changed. */
  hessian(windows?: Windows): Matrix;
  /** X^T (F - X), [k, k]; null without F. */
  drift(windows?: Windows): Matrix | null;
}

/** One of this many windows is held out; none of fewer windows. */
export const HELD_OUT = 8;
/** Tokens whose products are summed at a time. */
const CHUNK_TOKENS = 4096;
/** Rows of X^T X that are computed at a time; columns before them follow by symmetry. */
const BAND = 512;
/** Rows and columns of a tile of the transposition, which fits in a cache. */
const TILE = 32;

/** Inputs [.., columns] of a layer, a tensor for each window; `known` keeps the sums of layers with the same inputs. */
export function layerInputs(
  columns: number,
  tensors: readonly Tensor[],
  floats: readonly Tensor[] | null = null,
  known: Map<string, Matrix> = new Map(),
): LayerInputs {
  const inputs = (windows: Windows = "all") => rowsOf(chosen(tensors, windows), columns);
  const sumOnce = (name: string, windows: Windows): Matrix => {
    const key = `${name} ${windows}`;
    if (!known.has(key)) {
      const { hessian, drift } = sumsOf(chosen(tensors, windows), floats && chosen(floats, windows), columns);
      known.set(`hessian ${windows}`, hessian);
      if (drift) known.set(`drift ${windows}`, drift);
    }
    return known.get(key)!;
  };
  return {
    tokens: tensors.reduce((sum, tensor) => sum + rowCount(tensor), 0),
    inputs,
    floatInputs: (windows = "all") => floats && rowsOf(chosen(floats, windows), columns),
    power: () => {
      const squares = known.get("power") ?? meanSquares(tensors, columns);
      known.set("power", squares);
      return squares.data;
    },
    hessian: (windows = "all") => sumOnce("hessian", windows),
    drift: (windows = "all") => floats && sumOnce("drift", windows),
  };
}

/** The tensors of some windows. */
function chosen(tensors: readonly Tensor[], windows: Windows): readonly Tensor[] {
  if (windows === "all") return tensors;
  return tensors.filter((_, w) => (w % HELD_OUT === HELD_OUT - 1) === (windows === "held out"));
}

/** Groups windows into chunks of some thousand tokens. */
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

/** X^T X of rows X, and X^T (F - X) with rows F, where there are some. */
function sumsOf(tensors: readonly Tensor[], floats: readonly Tensor[] | null, columns: number) {
  const hessian = matrix(columns, columns);
  const drift = floats && matrix(columns, columns);
  const chunks = inChunks(tensors);
  const floatChunks = floats && inChunks(floats);
  // Allocating memory costs time, so all chunks use the same.
  const room = () => new Float32Array(columns * mostRows(chunks));
  const [ownRoom, driftRoom] = [room(), drift && room()];
  for (const [i, chunk] of chunks.entries()) {
    const x = transposed(chunk, null, columns, ownRoom);
    for (let first = 0; first < columns; first += BAND) {
      const end = Math.min(columns, first + BAND);
      const band = matrix(end - first, x.columns, x.data.subarray(first * x.columns, end * x.columns));
      const others = matrix(columns - first, x.columns, x.data.subarray(first * x.columns));
      addProduct(hessian, first, multiplyTransposed(band, others));
    }
    if (!drift) continue;
    const difference = transposed(floatChunks![i]!, chunk, columns, driftRoom!);
    for (let first = 0; first < columns; first += BAND) {
      const end = Math.min(columns, first + BAND);
      const band = matrix(end - first, x.columns, x.data.subarray(first * x.columns, end * x.columns));
      addProduct({ ...drift, data: drift.data.subarray(first * columns) }, 0, multiplyTransposed(band, difference));
    }
  }
  const { data } = hessian;
  for (let r = 0; r < columns; r++) for (let c = 0; c < r; c++) data[r * columns + c] = data[c * columns + r]!;
  return { hessian, drift };
}

/**
 * Adds a product to the square part of a matrix that begins at (first, first), and frees the product's memory for the next
 * one.
 */
function addProduct({ columns, data }: Matrix, first: number, product: Matrix): void {
  const { rows, columns: width, data: more } = product;
  for (let r = 0, i = 0; r < rows; r++) {
    const start = (first + r) * columns + first;
    for (let c = 0; c < width; c++) data[start + c]! += more[i++]!;
  }
  recycleProduct(product);
}

const tokensOf = (windows: readonly Tensor[]) => windows.reduce((sum, window) => sum + rowCount(window), 0);
const mostRows = (chunks: readonly (readonly Tensor[])[]) =>
  chunks.reduce((most, chunk) => Math.max(most, tokensOf(chunk)), 0);

/** The rows of windows (minus those of `less`) transposed, [columns, tokens], at the start of `room`. */
function transposed(
  windows: readonly Tensor[],
  less: readonly Tensor[] | null,
  columns: number,
  room: Float32Array,
): Matrix {
  const tokens = tokensOf(windows);
  let done = 0;
  for (const [w, window] of windows.entries()) {
    const rows = rowCount(window);
    const values = window.data as Float32Array;
    const others = less && (less[w]!.data as Float32Array);
    for (let top = 0; top < rows; top += TILE)
      for (let left = 0; left < columns; left += TILE) {
        const [bottom, right] = [Math.min(rows, top + TILE), Math.min(columns, left + TILE)];
        for (let c = left; c < right; c++) {
          const to = c * tokens + done;
          if (others)
            for (let r = top; r < bottom; r++) room[to + r] = values[r * columns + c]! - others[r * columns + c]!;
          else for (let r = top; r < bottom; r++) room[to + r] = values[r * columns + c]!;
        }
      }
    done += rows;
  }
  return matrix(columns, tokens, room.subarray(0, columns * tokens));
}

/** Mean squares of each column, as a matrix of one row; zeros without rows. */
function meanSquares(windows: readonly Tensor[], columns: number): Matrix {
  const sums = new Float64Array(columns);
  let rows = 0;
  for (const { data } of windows) {
    const values = data as Float32Array;
    for (let start = 0; start < values.length; start += columns, rows++)
      for (let c = 0; c < columns; c++) sums[c]! += values[start + c]! * values[start + c]!;
  }
  return matrix(
    1,
    columns,
    Float32Array.from(sums, (sum) => sum / Math.max(1, rows)),
  );
}

const rowCount = ({ shape, data }: Tensor) => data.length / shape.at(-1)!;

/** The rows of some windows as one matrix, which must not be changed. */
function rowsOf(tensors: readonly Tensor[], columns: number): Matrix {
  const data = joined(tensors);
  return matrix(data.length / columns, columns, data);
}

/**
 * Joins the rows of windows to one tensor; rows that are not adjacent in memory are copied to the start of the array of
 * `roomFor`.
 */
export function joinRows(tensors: readonly Tensor[], roomFor?: (length: number) => Float32Array): Tensor {
  const data = joined(tensors, roomFor);
  const columns = tensors[0]!.shape.at(-1)!;
  return { dtype: "f32", shape: [1, data.length / columns, columns], data };
}

/** The numbers of some tensors, one after the other; copied only where they are not adjacent in memory. */
function joined(
  tensors: readonly Tensor[],
  roomFor = (length: number): Float32Array => new Float32Array(length),
): Float32Array {
  const parts = tensors.map(({ data }) => data as Float32Array);
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const first = parts[0];
  const follows = (part: Float32Array, before: Float32Array) =>
    part.buffer === before.buffer && part.byteOffset === before.byteOffset + before.byteLength;
  if (first && parts.every((part, i) => i === 0 || follows(part, parts[i - 1]!)))
    return new Float32Array(first.buffer as ArrayBuffer, first.byteOffset, length);
  const data = roomFor(length).subarray(0, length);
  let start = 0;
  for (const part of parts) {
    data.set(part, start);
    start += part.length;
  }
  return data;
}

/** Splits the rows of a tensor into the windows that `joinRows` joined. */
export function splitRows({ dtype, shape, data }: Tensor, windows: readonly Tensor[]): Tensor[] {
  const columns = shape.at(-1)!;
  let start = 0;
  return windows.map((window) => {
    const part = (data as Float32Array).subarray(start, start + rowCount(window) * columns);
    start += part.length;
    return { dtype, shape: [...window.shape.slice(0, -1), columns], data: part };
  });
}
