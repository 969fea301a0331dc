/** Arguments of native kernels that quantize and pack weights. */
import type { QuantizedWeights } from "../../../quantized.ts";
import {
  type ArgumentsOf,
  boolean,
  choice,
  float,
  inout,
  input,
  list,
  output,
  type RecordField,
  unsized,
  whole,
} from "../../declaration.ts";
import { scaleBytes } from "../../layout/panel-geometry.ts";
import { floatTypes } from "../../records.ts";

/** Integers and scales of a matrix [n, k], and how its groups are quantized. */
const gridFields = {
  /** Scales [n, groups]. */
  scales: unsized("f32", "change"),
  /** Factors of factored integer scales; otherwise empty. */
  superScales: unsized("f32", "change"),
  /** Zero points [n, groups]; empty unless the mapping is asymmetric, or odd scales have a zero point. */
  zeros: unsized("i8", "change"),
  /** Zero point of a codebook's groups with odd integer scales; 0 for none. */
  oddZero: float,
  /** Weight of each of the k columns in the error that is minimized; empty for equal weights. */
  importance: list("f32", "importances"),
  /** Grids that are tried, as in `GroupFit`; otherwise empty. */
  trials: unsized("f32"),
  /** Levels of the codebook; empty for other mappings. */
  levels: unsized("i8"),
  /** Set to 1 when a weight is not finite. */
  failed: inout("i32", 1),
  /** Group size, 1 to k; the last group of a row may be shorter. */
  groupSize: whole,
  bits: whole,
  mappingType: choice(["symmetric", "symmetric_no_clipping_err", "asymmetric", "codebook", "kmeans"]),
  /** Type that scales are rounded to; integers only where grids are tried. */
  scaleType: choice(["f32", "f16", "i8"]),
};

/** A matrix of floats, how its groups are rounded, and where the result goes. Only "mse" looks at importance and trials. */
export const quantizeAffineFields = {
  weights: unsized("any"),
  qvals: output("i8", "n", "k"),
  ...gridFields,
  dtype: choice(floatTypes),
  /** How scales are chosen. */
  algorithm: choice(["affine", "hqq_scale_only", "mse"]),
};
export type QuantizeAffineArgs = ArgumentsOf<typeof quantizeAffineFields>;

/** Rows of a matrix, of which columns first .. end - 1 are rounded or swept, as `quantize/gptq-blocks.ts` says. */
export const gptqBlockFields = {
  ...gridFields,
  qvals: inout("i8", "n", "k"),
  original: input("f32", "n", "k"),
  current: inout("f32", "n", "k"),
  /** Only those of the block are written. */
  changes: inout("f32", "n", "k"),
  /** What errors or changes of a column are multiplied with, for each other one. */
  square: input("f32", "k", "k"),
  first: whole,
  end: whole,
};
export type GptqBlockArgs = ArgumentsOf<typeof gptqBlockFields>;

const rows: RecordField<QuantizedWeights, "n" | "k", never> = {
  kind: "record",
  fields: () => ({
    ...{ qvals: { ...unsized("i8"), sizes: ["n", "k"] }, scales: unsized("f32") },
    ...{ zeros: { ...unsized("i8"), isOptional: true }, levels: { ...unsized("i8"), isOptional: true } },
    ...{ minima: { ...unsized("f32"), isOptional: true } },
    ...{ superScales: { ...unsized("f32"), isOptional: true }, superMinima: { ...unsized("f32"), isOptional: true } },
    ...{ groupSize: whole, bits: whole, scaleBytes: whole, hasE4m3: boolean, oddZero: float },
  }),
  values: (part) => ({
    ...{ n: part.n, k: part.k, groupSize: part.groupSize, bits: part.bits },
    ...{ qvals: part.qvals, scales: part.scales, zeros: part.zeros, levels: part.levels },
    ...{ minima: part.minima ?? null, superScales: part.superScales ?? null, superMinima: part.superMinima ?? null },
    ...{ scaleBytes: scaleBytes[part.scaleDType], hasE4m3: part.scaleDType === "e4m3" },
    oddZero: part.oddZero ?? 0,
  }),
};

/** Packs rows of weights, whose first row begins a panel, into the zeroed bytes of their panels. */
export const quantizePackFields = {
  part: rows,
  panels: unsized("u8", "write"),
  /** Set to 1 when a scale is negative. */
  negative: inout("i32", 1),
  hasBias: boolean,
};
export type QuantizePackArgs = ArgumentsOf<typeof quantizePackFields>;
