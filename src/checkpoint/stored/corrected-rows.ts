/** GPTQ of a matrix some rows at a time, for heads and embeddings, which are large; rows do not depend on each other. */
import type { Cpu } from "../../kernels/contract.ts";
import { hostCpu } from "../../kernels/cpu.ts";
import {
  canRunBlocksNatively,
  roundBlockNatively,
  sweepBlockNatively,
} from "../../kernels/families/packing/quantizer.ts";
import { type Matrix, matrix } from "../../matrix.ts";
import { multiplyTransposed, recycleProduct } from "../../ops/product.ts";
import type { QuantizationConfig } from "../../quantize/config.ts";
import { type FactoredSums, factorSums, type GptqOptions, quantizeGptq } from "../../quantize/gptq.ts";
import { type Block, type BlockTools, type GptqRows, notFiniteSums } from "../../quantize/gptq-blocks.ts";
import { trialsOf } from "../../quantize/group-fit.ts";
import type { QuantizedWeights } from "../../quantized.ts";
import { toFloat32 } from "../../tensor.ts";
import type { quantizeTensor } from "./quantize-rows.ts";

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

const none = { scales: new Float32Array(0), zeros: new Int8Array(0) };

/** GPTQ's work on blocks by the best kernels of a CPU that has some, on all cores. */
export function nativeBlocks(cpu: Cpu = hostCpu()): BlockTools {
  return {
    async roundBlock(rows, block, factor, importance) {
      if (!(await roundBlockNatively({ ...blockArgs(rows, block, factor), importance }, cpu))) throw notFiniteSums();
    },
    sweepBlock: (rows, block, hessian) =>
      sweepBlockNatively({ ...blockArgs(rows, block, hessian), importance: none.scales }, cpu),
  };
}

function blockArgs({ scheme, result, ...values }: GptqRows, block: Block, { data: square }: Matrix) {
  const { n, k, groupSize, qvals, scales, superScales = none.scales, zeros, oddZero = 0 } = result;
  const { bits, mappingType, scaleDType: scaleType } = scheme;
  const { factors: trials, levels } = trialsOf(scheme, result.levels ?? undefined);
  const grids = { scales, superScales, zeros: zeros ?? none.zeros, trials, levels: levels ?? none.zeros };
  return { n, k, groupSize, qvals, ...grids, bits, mappingType, oddZero, scaleType, ...values, ...block, square };
}

type Config = QuantizationConfig & Pick<GptqOptions, "levels">;

/** Quantizes rows [n, k] of a matrix by GPTQ, without changing them. */
export function correctedRows(weights: Matrix, correction: Correction, config: Config): Promise<QuantizedWeights> {
  return quantizeBy(weights, factored(correction), correction, config);
}

const factored = ({ hessian, damping }: Correction) => factorSums(hessian, multiplyTransposed, damping);

function quantizeBy(
  { rows, columns, data }: Matrix,
  sums: FactoredSums,
  { drift, signal }: Correction,
  config: Config,
): Promise<QuantizedWeights> {
  const weights = matrix(rows, columns, data.slice());
  const lacking = drift && multiplyTransposed(weights, drift);
  const blocks = canRunBlocksNatively() && { blocks: nativeBlocks() };
  const tools = { product: multiplyTransposed, recycle: recycleProduct, ...blocks };
  return quantizeGptq(weights, sums, tools, { ...config, lacking, sweeps: SWEEPS, signal });
}

/** A replacement of `quantizeTensor` that quantizes rows by GPTQ; the sums are factored once. */
export function correctedBy(correction: Correction): typeof quantizeTensor {
  let sums: FactoredSums | undefined;
  return (values, config, _, levels = null) => {
    const [n, k] = values.shape as [number, number];
    sums ??= factored(correction);
    return quantizeBy(matrix(n, k, toFloat32(values)), sums, correction, { ...config, levels });
  };
}
