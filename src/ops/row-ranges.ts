/**
 * Low-bit tables and heads whose rows differ in bits: ranges of neighbouring rows, each packed by itself. A head computes the
 * logits of each range, which are joined; a lookup adds the rows of all ranges, which are zeros outside of their own.
 */
import { toFloat32 } from "../tensor.ts";
import type { Builder } from "./builder.ts";
import { type AffineWeight, packedConstant } from "./lowering.ts";
import { type FloatWeight, firstRows, floatWeight, loweringOf, registerWeightFormat, type Weight } from "./weight.ts";

/** Weights [n, k] in parts of neighbouring rows. */
export interface RowRangesFormat {
  readonly kind: "row_ranges";
  /** The parts, in the order of their rows. */
  readonly parts: readonly AffineWeight[];
}

/** Joins parts of neighbouring rows, in order, to the matrix `name`. */
export function ofRowRanges(name: string, parts: readonly AffineWeight[]): Weight<RowRangesFormat> {
  const n = parts.reduce((sum, { shape }) => sum + shape[0]!, 0);
  return {
    name,
    shape: [n, parts[0]!.shape[1]!],
    format: { kind: "row_ranges", parts },
    load: () => Promise.all(parts.map((part) => part.load())),
  };
}

/** The parts of a matrix, each with the index of its first row. */
function partsOf(weight: Weight): { readonly part: AffineWeight; readonly first: number }[] {
  let next = 0;
  return (weight as Weight<RowRangesFormat>).format.parts.map((part) => {
    const first = next;
    next += part.shape[0]!;
    return { part, first };
  });
}

/** Values first .. first + count - 1 of a bias. */
function partOfBias(bias: Weight, first: number, count: number): FloatWeight {
  const { name, load } = floatWeight(bias);
  const read = async () => toFloat32(await load()).slice(first, first + count);
  return {
    name: `${name}[${first}:${first + count}]`,
    shape: [count],
    format: { kind: "float", dtype: "f32" },
    load: async () => ({ dtype: "f32", shape: [count], data: await read() }),
  };
}

function lookUp<T>(builder: Builder<T>, weight: Weight, indices: T): T {
  const [rows, columns] = weight.shape as [number, number];
  const found = partsOf(weight).map(({ part, first }) => {
    const { constant, spec } = packedConstant(builder, part, null);
    const sizes = [spec.groupSize, spec.n, spec.k, first, rows];
    const own = builder.call("lowbit::shared_embedding_rows.out", builder.constant(constant), ...sizes, indices);
    return spec.k === columns ? own : builder.call("aten::slice_copy.Tensor_out", own, -1, 0, columns, 1);
  });
  return found.reduce((sum, own) => builder.call("aten::add.out", sum, own, 1));
}

registerWeightFormat({
  kind: "row_ranges",
  linear(builder, x, weight, bias) {
    const found = partsOf(weight).map(({ part, first }) =>
      loweringOf(part).linear(builder, x, part, bias && partOfBias(bias, first, part.shape[0]!)),
    );
    return found.reduce((left, right) => builder.call("lowbit::join_columns.out", left, right));
  },
  embedding: lookUp,
  firstRows(weight, count) {
    const parts = partsOf(weight).flatMap(({ part, first }) => {
      const rows = Math.min(count - first, part.shape[0]!);
      if (rows <= 0) return [];
      return rows === part.shape[0] ? [part] : [firstRows(part, rows) as AffineWeight];
    });
    return parts.length === 1 ? parts[0]! : ofRowRanges(weight.name, parts);
  },
});
