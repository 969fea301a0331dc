/** GPTQ of a matrix some rows at a time, for heads and embeddings, which are large; rows do not depend on each other. */
import { type Matrix, matrix } from "../../matrix.ts";
import { multiplyTransposed } from "../../ops/product.ts";
import type { QuantizationConfig } from "../../quantize/config.ts";
import { type GptqOptions, quantizeGptq, type Rounding } from "../../quantize/gptq.ts";
import type { QuantizedWeights } from "../../quantized.ts";
import { toFloat32 } from "../../tensor.ts";
import { quantizeTensor } from "./quantize-rows.ts";

/** Sums of products of a matrix's inputs, by which GPTQ chooses the weights of a row together. */
export interface Correction {
  /** X^T X [k, k] of inputs X. */
  readonly hessian: Matrix;
  /**
   * X^T (F - X) [k, k] of inputs X and the float model's inputs F, so that outputs approximate those for F; null for those
   * for X.
   */
  readonly drift: Matrix | null;
  /** Share of the diagonal's mean that is added to the diagonal, as in `GptqOptions`. */
  readonly damping?: number | undefined;
  /** Ends the work; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** Number of passes over the weights. */
const SWEEPS = 2;

/** Rounds a matrix by importance, on all cores where there is native code. */
const round: Rounding = ({ rows: n, columns: k, data }, scheme, importance) =>
  quantizeTensor(
    { dtype: "f32", shape: [n, k], data },
    { ...scheme, kind: "intxWeightOnly" },
    importance,
    scheme.levels,
  );

/** Quantizes rows [n, k] of a matrix by GPTQ, without changing them. */
export function correctedRows(
  weights: Matrix,
  { hessian, drift, damping, signal }: Correction,
  config: QuantizationConfig & Pick<GptqOptions, "levels">,
): Promise<QuantizedWeights> {
  const { rows, columns, data } = weights;
  const lacking = drift && multiplyTransposed(weights, drift);
  return quantizeGptq(
    matrix(rows, columns, data.slice()),
    matrix(columns, columns, hessian.data.slice()),
    { product: multiplyTransposed, round },
    { ...config, damping, lacking, sweeps: SWEEPS, signal },
  );
}

/** A replacement of `quantizeTensor` that quantizes rows by GPTQ. */
export function correctedBy(correction: Correction): typeof quantizeTensor {
  return (values, config, _, levels = null) => {
    const [n, k] = values.shape as [number, number];
    return correctedRows(matrix(n, k, toFloat32(values)), correction, { ...config, levels });
  };
}
