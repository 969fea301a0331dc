/**
 * Rows of query and key matrices in the order that Hugging Face has them. Files made for rotation of neighbours pair
 * rows 2i and 2i + 1 of a head; Hugging Face pairs i and i + half.
 */
import { groupCount, type QuantizedWeights, superGroupCount } from "../quantized.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import type { LowBitTensor, OpenTensors } from "./tensor-source.ts";

/** Where row `row` of a matrix whose heads are halves is among rows that pair neighbours, for heads of `headDim` rows. */
function storedRow(row: number, headDim: number): number {
  const half = headDim / 2;
  const within = row % headDim;
  return row - within + 2 * (within % half) + Math.floor(within / half);
}

type Rows = Float32Array | Int8Array | Uint16Array;

/** Rows of values [rows, columns] turned from pairs to halves; whole heads of `headDim` rows. */
function turnRows<A extends Rows>(values: A, columns: number, headDim: number): A {
  return moveRows(values, columns, (row) => [storedRow(row, headDim), row]);
}

/** The inverse: from halves to pairs. */
export function pairRows<A extends Rows>(values: A, columns: number, headDim: number): A {
  return moveRows(values, columns, (row) => [row, storedRow(row, headDim)]);
}

function moveRows<A extends Rows>(values: A, columns: number, move: (row: number) => [from: number, to: number]): A {
  const result = values.slice() as A;
  for (let row = 0; row < values.length / columns; row++) {
    const [from, to] = move(row);
    result.set(values.subarray(from * columns, (from + 1) * columns), to * columns);
  }
  return result;
}

function turnTensor(tensor: Tensor, headDim: number): Tensor {
  const columns = elementCount(tensor.shape.slice(1));
  return { ...tensor, data: turnRows(tensor.data as Float32Array, columns, headDim) };
}

/** The whole heads that hold these rows in another order. */
function headsOf(firstRow: number, rowCount: number, headDim: number): { first: number; count: number } {
  const first = Math.floor(firstRow / headDim) * headDim;
  return { first, count: Math.ceil((firstRow + rowCount) / headDim) * headDim - first };
}

/** `tensors` in which the matrices (and biases) that `isTurned` names are turned from pairs to halves. */
export function withTurnedHeads(
  tensors: OpenTensors,
  isTurned: (name: string) => boolean,
  headDim: number,
): OpenTensors {
  return {
    ...tensors,
    async read(name) {
      const tensor = await tensors.read(name);
      return isTurned(name) ? turnTensor(tensor, headDim) : tensor;
    },
    async readRows(name, firstRow, rowCount) {
      if (!isTurned(name)) return tensors.readRows(name, firstRow, rowCount);
      const { first, count } = headsOf(firstRow, rowCount, headDim);
      const heads = turnTensor(await tensors.readRows(name, first, count), headDim);
      const rest = heads.shape.slice(1);
      const columns = elementCount(rest);
      const data = heads.data.slice((firstRow - first) * columns, (firstRow - first + rowCount) * columns);
      return { ...heads, shape: [rowCount, ...rest], data };
    },
    lowBit(name) {
      const found = tensors.lowBit?.(name) ?? null;
      return found && isTurned(name) ? turnLowBit(found, headDim) : found;
    },
  };
}

/** The factors of integer scales and minima, changed; nothing where there are none. */
function factorsOf({ superScales, superMinima }: QuantizedWeights, change: (values: Float32Array) => Float32Array) {
  return {
    ...(superScales && { superScales: change(superScales) }),
    ...(superMinima && { superMinima: change(superMinima) }),
  };
}

function turnLowBit({ rows, minima, ...found }: LowBitTensor, headDim: number): LowBitTensor {
  /** Rows from whole heads, of which `firstRow` and the `rowCount` - 1 after it are kept. */
  const turned = <A extends Rows>(values: A, columns: number, firstRow: number, rowCount: number): A => {
    const from = (firstRow % headDim) * columns;
    return turnRows(values, columns, headDim).slice(from, from + rowCount * columns) as A;
  };
  return {
    ...found,
    async rows(firstRow, rowCount) {
      const { first, count } = headsOf(firstRow, rowCount, headDim);
      const weights = await rows(first, count);
      const groups = groupCount(weights);
      return {
        ...weights,
        n: rowCount,
        qvals: turned(weights.qvals, weights.k, firstRow, rowCount),
        scales: turned(weights.scales, groups, firstRow, rowCount),
        zeros: weights.zeros && turned(weights.zeros, groups, firstRow, rowCount),
        ...factorsOf(weights, (values) => turned(values, superGroupCount(weights), firstRow, rowCount)),
      };
    },
    ...(minima && {
      minima: {
        dtype: minima.dtype,
        async rows(firstRow: number, rowCount: number) {
          const { first, count } = headsOf(firstRow, rowCount, headDim);
          const { dtype, shape, data } = await minima.rows(first, count);
          const groups = shape[1]!;
          return { dtype, shape: [rowCount, groups], data: turned(data as Float32Array, groups, firstRow, rowCount) };
        },
      },
    }),
  };
}
