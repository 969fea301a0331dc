/** GPTQ of a matrix some rows at a time, for heads and tables, which are large: rows do not depend on each other. */
import { type Matrix, matrix } from "../../matrix.ts";
import { multiplyTransposed } from "../../ops/product.ts";
import type { QuantizationConfig } from "../../quantize/config.ts";
import { type GptqOptions, quantizeGptq, type Rounding } from "../../quantize/gptq.ts";
import type { QuantizedWeights } from "../../quantized.ts";
import { toFloat32 } from "../../tensor.ts";
import { quantizeTensor } from "./quantize-rows.ts";

/** What weights of a row are chosen by together: sums of products of the inputs of the matrix. */
export interface Correction {
  /** X^T X [k, k] of inputs X. */
  readonly hessian: Matrix;
  /** X^T (F - X) [k, k] of inputs X and those F of the float model, whose outputs are wanted; null for those of X. */
  readonly drift: Matrix | null;
  /** Share of the mean of the diagonal that is added to it, as `GptqOptions` has it. */
  readonly damping?: number | undefined;
  /** Ends the work; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** How often weights are chosen anew. */
const SWEEPS = 2;

/** Rounds a matrix by importance, on all cores where there is native code. */
const round: Rounding = ({ rows: n, columns: k, data }, scheme, importance) =>
  quantizeTensor(
    { dtype: "f32", shape: [n, k], data },
    { ...scheme, kind: "intxWeightOnly" },
    importance,
    scheme.levels,
  );

/** Quantizes rows [n, k] of a matrix by GPTQ; nothing is overwritten. */
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

/** What quantizes rows by a correction, in place of each weight for itself. */
export function correctedBy(correction: Correction): typeof quantizeTensor {
  return (values, config, _, levels = null) => {
    const [n, k] = values.shape as [number, number];
    return correctedRows(matrix(n, k, toFloat32(values)), correction, { ...config, levels });
  };
}
