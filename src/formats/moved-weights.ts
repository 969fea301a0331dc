/** Reorders rows or columns of matrices (and vectors), while reading them from a file or in memory. */
import { groupCount, type QuantizedWeights } from "../quantized.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import type { LowBitTensor, TensorSource } from "./tensor-source.ts";

/** A reordering: for each row and column, where it is stored. */
export interface Moves {
  /** Stored row of each row; absent for no change. */
  readonly storedRow?: (row: number) => number;
  /** Stored column of each column; absent for no change. */
  readonly storedColumns?: Int32Array;
}

type Values = Tensor["data"];

/** The source `tensors` with those for which `movesOf` returns moves reordered. */
export function withMoves<S extends TensorSource>(tensors: S, movesOf: (name: string) => Moves | null): S {
  const readRows: TensorSource["readRows"] = async (name, first, count) => {
    const { storedRow, storedColumns } = movesOf(name) ?? {};
    const parts = await gather(first, count, storedRow, (from, rows) => tensors.readRows(name, from, rows));
    const rest = parts[0]?.shape.slice(1) ?? tensors.info(name).shape.slice(1);
    const joined = joinValues(parts.map(({ data }) => data));
    const data = storedColumns ? moveColumns(joined, elementCount(rest), storedColumns, 1) : joined;
    return { dtype: parts[0]!.dtype, shape: [count, ...rest], data };
  };
  return {
    ...tensors,
    async read(name) {
      const moves = movesOf(name);
      if (!moves) return tensors.read(name);
      const { shape } = tensors.info(name);
      if (shape.length > 1) return readRows(name, 0, shape[0]!);
      const tensor = await tensors.read(name);
      const { storedRow = (row) => row } = moves;
      const order = Int32Array.from({ length: shape[0] ?? 0 }, (_, row) => storedRow(row));
      return { ...tensor, data: moveColumns(tensor.data, order.length, order, 1) };
    },
    readRows: (name, first, count) =>
      movesOf(name) ? readRows(name, first, count) : tensors.readRows(name, first, count),
    lowBit(name) {
      const [moves, found] = [movesOf(name), tensors.lowBit?.(name) ?? null];
      return moves && found ? movedLowBit(found, moves) : found;
    },
  };
}

/** Reads the stored rows of rows `first` to `first` + `count` - 1, in as few consecutive ranges as possible. */
async function gather<R>(
  first: number,
  count: number,
  storedRow: (row: number) => number = (row) => row,
  read: (from: number, count: number) => Promise<R>,
): Promise<R[]> {
  const parts: R[] = [];
  for (let row = first; row < first + count; ) {
    const from = storedRow(row);
    let end = row + 1;
    while (end < first + count && storedRow(end) === from + end - row) end++;
    parts.push(await read(from, end - row));
    row = end;
  }
  return parts;
}

function joinValues<V extends Values>(parts: readonly V[]): V {
  const [part] = parts;
  if (parts.length === 1) return part!;
  const length = parts.reduce((sum, { length }) => sum + length, 0);
  const joined = new (part!.constructor as new (length: number) => V)(length);
  let at = 0;
  for (const values of parts) {
    (joined as Float32Array).set(values as Float32Array, at);
    at += values.length;
  }
  return joined;
}

/** Reorders columns of rows of `width` values, each of which stands for `size` columns, by `storedColumns`. */
function moveColumns<V extends Values>(values: V, width: number, storedColumns: Int32Array, size: number): V {
  const moved = values.slice() as V;
  for (let start = 0; start < values.length; start += width)
    for (let c = 0; c < width; c++) moved[start + c] = values[start + storedColumns[c * size]! / size]!;
  return moved;
}

/** Reorders values [rows, width], each of which stands for the same number of columns of the matrix. */
export function movedValues<V extends Values>(
  values: V,
  width: number,
  { storedRow, storedColumns }: Moves,
  size = 1,
): V {
  if (!storedRow) return storedColumns ? moveColumns(values, width, storedColumns, size) : values;
  const moved = values.slice() as Float32Array;
  for (let row = 0; row < values.length / width; row++) {
    const from = storedRow(row) * width;
    moved.set(values.subarray(from, from + width) as Float32Array, row * width);
  }
  return movedValues(moved as V, width, storedColumns ? { storedColumns } : {}, size);
}

/** Reorders quantized weights; null where columns of one group would be spread over several. */
export function movedWeights(weights: QuantizedWeights, moves: Moves): QuantizedWeights | null {
  const { superScales: _, superMinima: __, minima, ...rest } = weights;
  const { k, groupSize, qvals, scales, zeros } = weights;
  const { storedColumns } = moves;
  if (storedColumns && !keepsGroups(storedColumns, Math.min(groupSize, k))) return null;
  const move = <V extends Values>(values: V) => movedValues(values, groupCount(weights), moves, groupSize);
  return {
    ...rest,
    qvals: movedValues(qvals, k, moves),
    scales: move(scales),
    zeros: zeros && move(zeros),
    ...(minima && { minima: move(minima) }),
  };
}

/** Reorders a low-bit tensor; null where columns of one group would be spread over several. */
function movedLowBit(found: LowBitTensor, moves: Moves): LowBitTensor | null {
  const { storedColumns } = moves;
  const { groupSize, k } = found.spec;
  if (storedColumns && (found.order || !keepsGroups(storedColumns, Math.min(groupSize, k)))) return null;
  const { rows, minima, factored, ...rest } = found;
  const groups = groupCount(found.spec);
  const move = <V extends Values>(values: V, width: number, size: number) =>
    storedColumns ? moveColumns(values, width, storedColumns, size) : values;
  return {
    ...rest,
    // Factors span more columns than those that stay together.
    ...(factored && !storedColumns && { factored }),
    async rows(first, count) {
      const weights = joinWeights(await gather(first, count, moves.storedRow, rows));
      if (!storedColumns) return weights;
      const { superScales: _, superMinima: __, ...kept } = weights;
      return {
        ...kept,
        qvals: move(weights.qvals, k, 1),
        scales: move(weights.scales, groups, groupSize),
        zeros: weights.zeros && move(weights.zeros, groups, groupSize),
      };
    },
    ...(minima && {
      minima: {
        dtype: minima.dtype,
        async rows(first: number, count: number) {
          const parts = await gather(first, count, moves.storedRow, minima.rows);
          const data = move(joinValues(parts.map((part) => part.data)), groups, groupSize);
          return { dtype: minima.dtype, shape: [count, groups], data };
        },
      },
    }),
  };
}

/** Whether each group of columns is one whole stored group, in order. */
function keepsGroups(storedColumns: Int32Array, groupSize: number): boolean {
  return storedColumns.every((stored, c) => {
    const first = storedColumns[c - (c % groupSize)]!;
    return first % groupSize === 0 && stored === first + (c % groupSize);
  });
}

/** Concatenates weights by rows. */
function joinWeights(parts: readonly QuantizedWeights[]): QuantizedWeights {
  const [part] = parts;
  if (parts.length === 1) return part!;
  const joinAll = <V extends Values>(of: (weights: QuantizedWeights) => V | null | undefined): V | null =>
    of(part!) ? joinValues(parts.map((weights) => of(weights)!)) : null;
  const [superScales, superMinima] = [joinAll((w) => w.superScales), joinAll((w) => w.superMinima)];
  return {
    ...part!,
    n: parts.reduce((sum, { n }) => sum + n, 0),
    qvals: joinAll(({ qvals }) => qvals)!,
    scales: joinAll(({ scales }) => scales)!,
    zeros: joinAll(({ zeros }) => zeros),
    ...(superScales && { superScales }),
    ...(superMinima && { superMinima }),
  };
}
