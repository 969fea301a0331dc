/**
 * Reorders rows of query and key matrices to Hugging Face's order. RoPE on adjacent pairs rotates rows 2i and 2i + 1 of a head;
 * Hugging Face's rotates rows i and i + half.
 */
import { groupCount, type QuantizedWeights } from "../quantized.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import { type Moves, movedValues } from "./moved-weights.ts";
import type { LowBitTensor, TensorSource } from "./tensor-source.ts";

/** Head layout of a query or key matrix. */
export interface HeadRows {
  /** Rows of a head. */
  readonly headDim: number;
  /** Number of rotated rows, the first of a head; the others have the same place in both orders. */
  readonly rotated: number;
}

/** The stored row, in the order of adjacent pairs, of row `row` in the order of halves. */
function storedRow(row: number, { headDim, rotated }: HeadRows): number {
  const half = rotated / 2;
  const within = row % headDim;
  if (within >= rotated) return row;
  return row - within + 2 * (within % half) + Math.floor(within / half);
}

type Rows = Float32Array | Int8Array | Uint16Array;

/** Reorders values [rows, columns] of whole heads from adjacent pairs to halves. */
function permuteRows<A extends Rows>(values: A, columns: number, heads: HeadRows): A {
  return movedValues(values, columns, { storedRow: (row) => storedRow(row, heads) });
}

/** The inverse reordering: from halves to adjacent pairs. */
export function pairMoves({ headDim, rotated }: HeadRows): Moves {
  const half = rotated / 2;
  const unpaired = (row: number) => {
    const within = row % headDim;
    return within >= rotated ? row : row - within + (within % 2) * half + (within >> 1);
  };
  return { storedRow: unpaired };
}

function permuteTensor(tensor: Tensor, heads: HeadRows): Tensor {
  const columns = elementCount(tensor.shape.slice(1));
  return { ...tensor, data: permuteRows(tensor.data as Float32Array, columns, heads) };
}

/** The whole heads that contain these rows. */
function wholeHeads(firstRow: number, rowCount: number, { headDim }: HeadRows): { first: number; count: number } {
  const first = Math.floor(firstRow / headDim) * headDim;
  return { first, count: Math.ceil((firstRow + rowCount) / headDim) * headDim - first };
}

/** The source `tensors` with the matrices (and biases) for which `headsOf` returns heads reordered from pairs to halves. */
export function withPermutedHeads<S extends TensorSource>(tensors: S, headsOf: (name: string) => HeadRows | null): S {
  return {
    ...tensors,
    async read(name) {
      const heads = headsOf(name);
      const tensor = await tensors.read(name);
      return heads ? permuteTensor(tensor, heads) : tensor;
    },
    async readRows(name, firstRow, rowCount) {
      const heads = headsOf(name);
      if (!heads) return tensors.readRows(name, firstRow, rowCount);
      const { first, count } = wholeHeads(firstRow, rowCount, heads);
      const permuted = permuteTensor(await tensors.readRows(name, first, count), heads);
      const rest = permuted.shape.slice(1);
      const columns = elementCount(rest);
      const data = permuted.data.slice((firstRow - first) * columns, (firstRow - first + rowCount) * columns);
      return { ...permuted, shape: [rowCount, ...rest], data };
    },
    lowBit(name) {
      const heads = headsOf(name);
      const found = tensors.lowBit?.(name) ?? null;
      return found && heads ? permuteLowBit(found, heads) : found;
    },
  };
}

/** Applies `change` to the factors of scales and minima; an empty object where there are none. */
function factorsOf({ superScales, superMinima }: QuantizedWeights, change: (values: Float32Array) => Float32Array) {
  return {
    ...(superScales && { superScales: change(superScales) }),
    ...(superMinima && { superMinima: change(superMinima) }),
  };
}

function permuteLowBit({ rows, minima, ...found }: LowBitTensor, heads: HeadRows): LowBitTensor {
  /** Reorders whole heads and keeps `rowCount` rows from `firstRow` on. */
  const permuted = <A extends Rows>(values: A, columns: number, firstRow: number, rowCount: number): A => {
    const from = (firstRow % heads.headDim) * columns;
    return permuteRows(values, columns, heads).slice(from, from + rowCount * columns) as A;
  };
  return {
    ...found,
    async rows(firstRow, rowCount) {
      const { first, count } = wholeHeads(firstRow, rowCount, heads);
      const weights = await rows(first, count);
      const groups = groupCount(weights);
      return {
        ...weights,
        n: rowCount,
        qvals: permuted(weights.qvals, weights.k, firstRow, rowCount),
        scales: permuted(weights.scales, groups, firstRow, rowCount),
        zeros: weights.zeros && permuted(weights.zeros, groups, firstRow, rowCount),
        ...factorsOf(weights, (values) => permuted(values, values.length / weights.n, firstRow, rowCount)),
      };
    },
    ...(minima && {
      minima: {
        dtype: minima.dtype,
        async rows(firstRow: number, rowCount: number) {
          const { first, count } = wholeHeads(firstRow, rowCount, heads);
          const { dtype, shape, data } = await minima.rows(first, count);
          const groups = shape[1]!;
          return { dtype, shape: [rowCount, groups], data: permuted(data as Float32Array, groups, firstRow, rowCount) };
        },
      },
    }),
  };
}
