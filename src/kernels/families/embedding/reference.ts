/** Reference kernels of embeddings: rows of float tables, of TorchAO-packed tables, and of packed linear weights. */
import { InvalidArgumentError } from "../../../errors.ts";
import { groupCount } from "../../../quantized.ts";
import type { Kernel } from "../../contract.ts";
import { layouts, weightRow } from "../../layout/packed.ts";
import { readEmbeddingRow } from "../../layout/torchao-embedding.ts";
import type { Indices } from "../../records.ts";
import { floatRows } from "../linear/reference.ts";
import type { FloatEmbeddingArgs, PackedEmbeddingArgs, SharedEmbeddingArgs } from "./fields.ts";

const ALL_BITS = [1, 2, 3, 4, 5, 6, 7, 8] as const;

function rowIndex(indices: Indices, i: number, rows: number): number {
  const row = Number(indices[i]!);
  if (row < 0 || row >= rows)
    throw new InvalidArgumentError(`embedding: expected an id in 0..${rows - 1} but found ${row}`);
  return row;
}

export const embeddingFloatReference: Kernel<FloatEmbeddingArgs> = {
  name: "embedding_f32_1x1x1_reference",
  target: "reference",
  layouts: null,
  bits: null,
  needs: [],
  mStep: 1,
  nStep: 1,
  bind({ rows, dim, weights, indices, y }) {
    const { values, read } = floatRows(weights, dim);
    return () => {
      for (let i = 0; i < indices.length; i++) {
        const start = read(rowIndex(indices, i, rows));
        for (let c = 0; c < dim; c++) y[i * dim + c] = values[start + c]!;
      }
    };
  },
};

export const embeddingPackedReference: Kernel<PackedEmbeddingArgs> = {
  name: "embedding_wx_1x1x1_reference",
  target: "reference",
  layouts: ["torchao_embedding"],
  bits: ALL_BITS,
  needs: [],
  mStep: 1,
  nStep: 1,
  scratchBytes: ({ dim }) => 2 * dim,
  bind({ bits, rows, dim, packed, scales, zeros, indices, y }, scratch) {
    const target = new Int8Array(scratch.buffer, scratch.byteOffset, dim);
    const values = scratch.subarray(dim, 2 * dim);
    const groups = scales.length / rows;
    const groupSize = dim / groups;
    const shape = { bits, rows, dim };
    return () => {
      for (let i = 0; i < indices.length; i++) {
        const row = rowIndex(indices, i, rows);
        readEmbeddingRow(packed, shape, row, { target, values });
        for (let c = 0; c < dim; c++) {
          const group = row * groups + Math.floor(c / groupSize);
          y[i * dim + c] = (target[c]! - zeros[group]!) * scales[group]!;
        }
      }
    };
  },
};

export const embeddingSharedReference: Kernel<SharedEmbeddingArgs> = {
  name: "shared_embedding_wx_1x1x1_reference",
  target: "reference",
  layouts: layouts.map((layout) => layout.name),
  bits: ALL_BITS,
  readsMinima: true,
  needs: [],
  mStep: 1,
  nStep: 1,
  bind({ weights, indices, y, first, rows }) {
    const { spec, layout, levels } = weights;
    const raw = weightRow(spec);
    const groups = groupCount(spec);
    const offset = 1 << (spec.bits - 1);
    return () => {
      for (let i = 0; i < indices.length; i++) {
        const row = rowIndex(indices, i, rows) - first;
        if (row < 0 || row >= spec.n) {
          y.fill(0, i * spec.k, (i + 1) * spec.k);
          continue;
        }
        layout.readRow(weights, row, raw);
        for (let group = 0; group < groups; group++) {
          const end = Math.min(spec.k, (group + 1) * spec.groupSize);
          for (let c = group * spec.groupSize; c < end; c++) {
            const q = raw.qvals[c]!;
            if (spec.hasMinima) {
              y[i * spec.k + c] = Math.fround((q + offset) * raw.scales[group]!) + raw.minima[group]!;
              continue;
            }
            const level = levels ? levels[q + offset]! : q;
            y[i * spec.k + c] = (level - raw.zeros[group]!) * raw.scales[group]!;
          }
        }
      }
    };
  },
};
