/** Arguments of native kernels that quantize and pack weights. */
import type { QuantizedWeights } from "../../../quantized.ts";
import {
  type ArgumentsOf,
  boolean,
  choice,
  inout,
  list,
  output,
  type RecordField,
  unsized,
  whole,
} from "../../declaration.ts";
import { scaleBytes } from "../../layout/panel-geometry.ts";
import { floatTypes } from "../../records.ts";

/** Quantizes a matrix [n, k] of floats to integers and scales of groups. */
export const quantizeAffineFields = {
  weights: unsized("any"),
  qvals: output("i8", "n", "k"),
  /** Scales [n, groups]. */
  scales: unsized("f32", "write"),
  /** Factors of factored integer scales; otherwise empty. */
  superScales: unsized("f32", "write"),
  /** Zero points [n, groups]; empty unless the mapping is asymmetric. */
  zeros: unsized("i8", "write"),
  /** Weight of each of the k columns in the error that "mse" minimizes; empty for equal weights. */
  importance: list("f32", "importances"),
  /** Grids that "mse" tries, as in `GroupFit`; otherwise empty. */
  trials: unsized("f32"),
  /** Levels of the codebook; empty for other mappings. */
  levels: unsized("i8"),
  /** Set to 1 when a weight is not finite. */
  failed: inout("i32", 1),
  /** Group size, 1 to k; the last group of a row may be shorter. */
  groupSize: whole,
  bits: whole,
  dtype: choice(floatTypes),
  mappingType: choice(["symmetric", "symmetric_no_clipping_err", "asymmetric", "codebook", "kmeans"]),
  /** Algorithm that chooses scales. */
  algorithm: choice(["affine", "hqq_scale_only", "mse"]),
  /** Type that scales are rounded to; integers only with "mse". */
  scaleType: choice(["f32", "f16", "i8"]),
};
export type QuantizeAffineArgs = ArgumentsOf<typeof quantizeAffineFields>;

const rows: RecordField<QuantizedWeights, "n" | "k", never> = {
  kind: "record",
  fields: () => ({
    ...{ qvals: { ...unsized("i8"), sizes: ["n", "k"] }, scales: unsized("f32") },
    ...{ zeros: { ...unsized("i8"), isOptional: true }, levels: { ...unsized("i8"), isOptional: true } },
    ...{ minima: { ...unsized("f32"), isOptional: true } },
    ...{ superScales: { ...unsized("f32"), isOptional: true }, superMinima: { ...unsized("f32"), isOptional: true } },
    ...{ groupSize: whole, bits: whole, scaleBytes: whole, hasE4m3: boolean },
  }),
  values: (part) => ({
    ...{ n: part.n, k: part.k, groupSize: part.groupSize, bits: part.bits },
    ...{ qvals: part.qvals, scales: part.scales, zeros: part.zeros, levels: part.levels },
    ...{ minima: part.minima ?? null, superScales: part.superScales ?? null, superMinima: part.superMinima ?? null },
    ...{ scaleBytes: scaleBytes[part.scaleDType], hasE4m3: part.scaleDType === "e4m3" },
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
