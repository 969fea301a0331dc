/**
 * Reference kernels of linear layers: they define the operator and serve every layout and bit width. Integer sums are exact;
 * float sums are in double precision and rounded once.
 */
import { f16Table } from "../../../half.ts";
import { groupCount, type WeightSpec } from "../../../quantized.ts";
import { type Kernel, type PackedWeights, referenceRow } from "../../contract.ts";
import { layouts, weightRow } from "../../layout/packed.ts";
import type { FloatWeights } from "../../records.ts";
import {
  blocksOf,
  type QuantizedActivations,
  type QuantizedBlocks,
  quantizeActivations,
  quantizeBlocks,
} from "./activations.ts";
import type { FloatLinearArgs, PackedLinearArgs } from "./fields.ts";

const ALL_BITS = [1, 2, 3, 4, 5, 6, 7, 8] as const;
const allLayouts = layouts.map((layout) => layout.name);

/** Number of terms of |level - zero| <= 255 times |q| <= 128 whose sum fits int32. */
const EXACT_TERMS = 65536;

/** A decoded row of weights: level - zero [k], scales [groups], minima [groups]. */
interface DecodedRow {
  readonly values: Int16Array;
  readonly scales: Float32Array;
  readonly minima: Float32Array;
}

/** Returns a function that decodes a row into one reused buffer. */
function rowDecoder(packed: PackedWeights): (row: number) => DecodedRow {
  const { spec, layout, levels } = packed;
  const raw = weightRow(spec);
  const decoded = { values: new Int16Array(spec.k), scales: raw.scales, minima: raw.minima };
  const offset = 1 << (spec.bits - 1);
  return (row) => {
    layout.readRow(packed, row, raw);
    for (let group = 0; group < raw.scales.length; group++) {
      const end = Math.min(spec.k, (group + 1) * spec.groupSize);
      const zero = spec.hasMinima ? -offset : raw.zeros[group]!;
      for (let c = group * spec.groupSize; c < end; c++) {
        const q = raw.qvals[c]!;
        decoded.values[c] = (levels ? levels[q + offset]! : q) - zero;
      }
    }
    return decoded;
  };
}

/**
 * y = scale_x * sum over groups (scale * sum((q_x - zero_x) * (level - zero)) + minimum * sum(q_x - zero_x)) + bias, with one
 * scale and zero point for each row of activations.
 */
export const linearA8Reference: Kernel<PackedLinearArgs> = {
  ...referenceRow,
  name: "linear_a8_wx_1x1x1_reference",
  layouts: allLayouts,
  bits: ALL_BITS,
  readsMinima: true,
  scratchBytes: ({ m, weights }) => m * weights.spec.k + 8 * m + 16,
  bind({ m, x, weights, y }, scratch) {
    const { spec, layout } = weights;
    const activations = activationViews(scratch, m, spec.k);
    const readRow = rowDecoder(weights);
    return () => {
      quantizeActivations(x, m, spec.k, activations);
      for (let row = 0; row < spec.n; row++) {
        const decoded = readRow(row);
        const bias = layout.readBias(weights, row);
        for (let i = 0; i < m; i++) y[i * spec.n + row] = dotA8(decoded, activations, i, spec) + bias;
      }
    };
  },
};

function activationViews(scratch: Uint8Array, m: number, k: number): QuantizedActivations {
  const start = scratch.byteOffset;
  return {
    scales: new Float32Array(scratch.buffer, start, m),
    zeros: new Int32Array(scratch.buffer, start + 4 * m, m),
    q: new Int8Array(scratch.buffer, start + 8 * m, m * k),
  };
}

function dotA8(row: DecodedRow, activations: QuantizedActivations, i: number, spec: WeightSpec): number {
  const { k, groupSize } = spec;
  const { values, scales, minima } = row;
  const { q } = activations;
  const zero = activations.zeros[i]!;
  const base = i * k;
  let sum = 0;
  for (let group = 0; group < scales.length; group++) {
    const end = Math.min(k, (group + 1) * groupSize);
    let exact = 0;
    let inputs = 0;
    for (let start = group * groupSize; start < end; start += EXACT_TERMS) {
      const stop = Math.min(end, start + EXACT_TERMS);
      let dot = 0;
      let total = 0;
      for (let c = start; c < stop; c++) {
        const w = values[c]!;
        inputs += q[base + c]! - zero;
        dot = (dot + w * q[base + c]!) | 0;
        total = (total + w) | 0;
      }
      exact += dot - zero * total;
    }
    sum += scales[group]! * exact + minima[group]! * inputs;
  }
  return sum * activations.scales[i]!;
}

/**
 * y = sum over blocks of activations (scale_x * (scale * sum(q_x * (level - zero)) + minimum * sum(q_x))) + bias, with the
 * scale and minimum of the block's group of weights.
 */
export const linearA8BlocksReference: Kernel<PackedLinearArgs> = {
  ...linearA8Reference,
  name: "linear_a8b32_wx_1x1x1_reference",
  scratchBytes: ({ m, weights }) => m * (weights.spec.k + 4 * (blocksOf(weights.spec).length - 1)) + 16,
  bind({ m, x, weights, y }, scratch) {
    const { spec, layout } = weights;
    const starts = blocksOf(spec);
    const count = m * (starts.length - 1);
    const activations = {
      scales: new Float32Array(scratch.buffer, scratch.byteOffset, count),
      q: new Int8Array(scratch.buffer, scratch.byteOffset + 4 * count, m * spec.k),
    };
    const readRow = rowDecoder(weights);
    return () => {
      quantizeBlocks(x, m, spec.k, starts, activations);
      for (let row = 0; row < spec.n; row++) {
        const decoded = readRow(row);
        const bias = layout.readBias(weights, row);
        for (let i = 0; i < m; i++) y[i * spec.n + row] = dotBlocks(decoded, activations, i, starts, spec) + bias;
      }
    };
  },
};

function dotBlocks(
  { values, scales, minima }: DecodedRow,
  activations: QuantizedBlocks,
  i: number,
  starts: Int32Array,
  { k, groupSize }: WeightSpec,
): number {
  const { q } = activations;
  const blocks = starts.length - 1;
  let sum = 0;
  for (let block = 0; block < blocks; block++) {
    const group = Math.floor(starts[block]! / groupSize);
    let dot = 0;
    let inputs = 0;
    for (let c = starts[block]!; c < starts[block + 1]!; c++) {
      inputs += q[i * k + c]!;
      dot += values[c]! * q[i * k + c]!;
    }
    sum += (scales[group]! * dot + minima[group]! * inputs) * activations.scales[i * blocks + block]!;
  }
  return sum;
}

/** y = x [m, k] times dequantized weights [n, k] transposed; activations stay float. */
export const linearWeightOnlyReference: Kernel<PackedLinearArgs> = {
  ...referenceRow,
  name: "linear_f32_wx_1x1x1_reference",
  layouts: allLayouts,
  bits: ALL_BITS,
  readsMinima: true,
  bind({ m, x, weights, y }) {
    const { spec, layout } = weights;
    const readRow = rowDecoder(weights);
    const groups = groupCount(spec);
    return () => {
      for (let row = 0; row < spec.n; row++) {
        const { values, scales, minima } = readRow(row);
        const bias = layout.readBias(weights, row);
        for (let i = 0; i < m; i++) {
          let sum = 0;
          for (let group = 0; group < groups; group++) {
            const end = Math.min(spec.k, (group + 1) * spec.groupSize);
            let dot = 0;
            let inputs = 0;
            for (let c = group * spec.groupSize; c < end; c++) {
              dot += values[c]! * x[i * spec.k + c]!;
              inputs += x[i * spec.k + c]!;
            }
            sum += scales[group]! * dot;
            if (spec.hasMinima) sum += minima[group]! * inputs;
          }
          y[i * spec.n + row] = sum + bias;
        }
      }
    };
  },
};

/** Reads rows [k] of float weights: `read(row)` returns the index in `values` at which the row begins. */
export interface FloatRows {
  readonly values: Float32Array;
  read(row: number): number;
}

/** Makes a reader of rows: 16-bit rows are decoded into one reused buffer, f32 rows are read in place. */
export function floatRows({ dtype, data }: FloatWeights, k: number): FloatRows {
  if (dtype === "f32") return { values: data as Float32Array, read: (row) => row * k };
  const values = new Float32Array(k);
  const words = new Uint32Array(values.buffer);
  const halves = f16Table();
  const decodeF16 = (row: number) => {
    for (let c = 0; c < k; c++) values[c] = halves[data[row * k + c]!]!;
    return 0;
  };
  const decodeBf16 = (row: number) => {
    for (let c = 0; c < k; c++) words[c] = data[row * k + c]! << 16;
    return 0;
  };
  return { values, read: dtype === "f16" ? decodeF16 : decodeBf16 };
}

export const linearFloatReference: Kernel<FloatLinearArgs> = {
  ...referenceRow,
  name: "linear_f32_f32_1x1x1_reference",
  bind({ m, n, k, x, weights, bias, y }) {
    const { values, read } = floatRows(weights, k);
    return () => {
      for (let row = 0; row < n; row++) {
        const start = read(row);
        for (let i = 0; i < m; i++) {
          let sum = 0;
          for (let c = 0; c < k; c++) sum += values[start + c]! * x[i * k + c]!;
          y[i * n + row] = bias ? sum + bias[row]! : sum;
        }
      }
    };
  },
};
