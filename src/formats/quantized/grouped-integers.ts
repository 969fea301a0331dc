/** Matrices of unsigned integers with a scale and a zero point for each group: weight = (q - zero) * scale. */
import { InvalidFileError } from "../../errors.ts";
import { dequantize, groupCount, type QuantizedWeights, type ScaleDType, type WeightSpec } from "../../quantized.ts";
import type { ComputedMatrix } from "../computed-tensors.ts";
import type { LowBitTensor } from "../tensor-source.ts";

/** Stored form of some rows. */
export interface StoredRows {
  /** Integers [count, k] from 0 to 2^bits - 1. */
  readonly codes: Uint8Array;
  /** Scales [count, groups]. */
  readonly scales: Float32Array;
  /** Zero points [count, groups] from 0 to 2^bits - 1; null where all are 2^(bits-1). */
  readonly zeros: Uint8Array | null;
}

/** How a matrix of grouped integers is stored. */
export interface GroupedIntegers {
  readonly folder: string;
  readonly name: string;
  readonly shape: readonly [number, number];
  readonly bits: number;
  readonly groupSize: number;
  readonly scaleDType: ScaleDType;
  /** Name of the storage format, for messages. */
  readonly stored: string;
  readonly parts: readonly string[];
  /** Whether zero points may differ from 2^(bits-1); if not, one that does is an error that names `zerosName`. */
  readonly hasZeros: boolean;
  readonly zerosName: string;
  readonly scalesName: string;
  /** The group of each column, where groups are not consecutive columns. */
  readonly groups?: Int32Array | null;
  rows(first: number, count: number): Promise<StoredRows>;
}

/** Makes the matrix, which can be read as floats, or as integers and scales as stored. */
export function groupedMatrix(source: GroupedIntegers): ComputedMatrix {
  const { name, shape, stored, parts, groups = null } = source;
  const order = groups && columnOrder(groups, source);
  return {
    ...{ name, shape, stored, parts },
    lowBit: groups && !order ? null : lowBitOf(source, order),
    rows: async (first, count) => {
      const weights = logical(source, await source.rows(first, count), count, true);
      return groups ? dequantizeByGroup(weights, groups) : dequantize(weights);
    },
  };
}

/** Columns ordered by group; null where groups differ in size, which no packed layout supports. */
function columnOrder(groups: Int32Array, { groupSize }: GroupedIntegers): Int32Array | null {
  const order = Int32Array.from(groups.keys()).sort((a, b) => groups[a]! - groups[b]! || a - b);
  return order.every((column, i) => groups[column] === Math.floor(i / groupSize)) ? order : null;
}

function specOf({ bits, shape: [n, k], groupSize, scaleDType, hasZeros }: GroupedIntegers): WeightSpec {
  return { bits, n, k, groupSize, hasZeros, hasLevels: false, scaleDType };
}

function lowBitOf(source: GroupedIntegers, order: Int32Array | null): LowBitTensor {
  return {
    stored: source.stored,
    spec: specOf(source),
    ...(order && { order }),
    async rows(first, count) {
      const weights = logical(source, await source.rows(first, count), count, source.hasZeros);
      return order ? { ...weights, qvals: inOrder(weights, order) } : weights;
    },
  };
}

function inOrder({ qvals, n, k }: QuantizedWeights, order: Int32Array): Int8Array {
  const result = new Int8Array(qvals.length);
  for (let row = 0, i = 0; row < n; row++) for (let c = 0; c < k; c++, i++) result[i] = qvals[row * k + order[c]!]!;
  return result;
}

/** Signed integers and zero points: the stored ones less 2^(bits-1). */
function logical(
  source: GroupedIntegers,
  { codes, scales, zeros }: StoredRows,
  n: number,
  hasZeros: boolean,
): QuantizedWeights {
  const { bits, folder, zerosName, scalesName } = source;
  const middle = 1 << (bits - 1);
  const qvals = new Int8Array(codes.length);
  for (let i = 0; i < codes.length; i++) qvals[i] = codes[i]! - middle;
  const other = zeros?.findIndex((zero) => zero !== middle) ?? -1;
  if (!hasZeros && other >= 0)
    throw new InvalidFileError(
      folder,
      `tensor ${zerosName}: expected zero points of ${middle} by the config, which says that weights are symmetric, but found ${zeros![other]}`,
    );
  const bad = scales.findIndex((scale) => !Number.isFinite(scale));
  if (bad >= 0)
    throw new InvalidFileError(folder, `tensor ${scalesName}: expected finite scales but found ${scales[bad]}`);
  const shifted = zeros && other >= 0 ? Int8Array.from(zeros, (zero) => zero - middle) : null;
  const spec = { ...specOf(source), n, hasZeros };
  return { ...spec, qvals, scales, zeros: hasZeros ? (shifted ?? new Int8Array(scales.length)) : null, levels: null };
}

/** Dequantizes where each column has its own group index. */
function dequantizeByGroup(weights: QuantizedWeights, groups: Int32Array): Float32Array {
  const { n, k, qvals, scales, zeros } = weights;
  const perRow = groupCount(weights);
  const result = new Float32Array(n * k);
  for (let row = 0, i = 0; row < n; row++)
    for (let c = 0; c < k; c++, i++) {
      const group = row * perRow + groups[c]!;
      result[i] = (qvals[i]! - (zeros ? zeros[group]! : 0)) * scales[group]!;
    }
  return result;
}

/** Transposes `count` columns of [groups, n], from `first` on, to rows [count, groups]. */
export function transposed<A extends Float32Array | Uint8Array>(
  values: A,
  n: number,
  first: number,
  count: number,
  target: A,
): A {
  const groups = values.length / n;
  for (let row = 0; row < count; row++)
    for (let group = 0; group < groups; group++) target[row * groups + group] = values[group * n + first + row]!;
  return target;
}
