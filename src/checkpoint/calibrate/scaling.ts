/**
 * Scale factors for the channels of activations, which make weights or activations easier to round: AWQ (Lin et al. 2023,
 * arXiv 2306.00978) and SmoothQuant (Xiao et al. 2022, arXiv 2211.10438). Activations are divided by them, weights
 * multiplied.
 */
import { type Matrix, matrix } from "../../matrix.ts";
import type { ScalableActivation } from "../../model/scalable.ts";
import { activationsOf, type QuantizationConfig } from "../../quantize/config.ts";
import { dequantize } from "../../quantized.ts";
import { quantizeTensor } from "../stored/quantize-rows.ts";

/** A linear layer that reads the activation. */
export interface Reader {
  /** Weights [n, k]. */
  readonly weights: Matrix;
  readonly config: QuantizationConfig;
}

/** Exponents that AWQ tries; 0 means no scaling. */
const EXPONENTS = [0, 0.25, 0.5, 0.75, 1];
/** Rows of weights, and of inputs, on which exponents are compared. */
const SAMPLE = 256;
const SAMPLE_TOKENS = 32;
/** Neighbouring activations that share a scale. */
const BLOCK_COLUMNS = 32;
/** Factors are at most this times, and at least 1 / this times, their geometric mean. */
const FACTOR_MAX = 1e4;

/**
 * AWQ: factors (mean |x|)^exponent of each channel x, with the exponent of the least squared error of outputs, by rounding
 * weights and, where they are rounded, activations. Rounding errors are taken as independent of each other.
 */
export async function powerFactors(
  activation: ScalableActivation,
  inputs: Matrix,
  readers: readonly Reader[],
): Promise<Float32Array> {
  const means = sharedMeans(activation, columnMeans(inputs));
  const power = meanSquares(inputs);
  const sample = rowSample(inputs, SAMPLE_TOKENS);
  const samples = readers.map(({ weights, config }) => ({ weights: rowSample(weights), config }));
  let best: { loss: number; factors: Float32Array } = {
    loss: Number.POSITIVE_INFINITY,
    factors: new Float32Array(inputs.columns).fill(1),
  };
  for (const exponent of EXPONENTS) {
    const factors = centered(means.map((mean) => mean ** exponent));
    const scaledPower = power.map((value, c) => value / factors[c]! ** 2);
    const errors = new Map<number, Float32Array>();
    let loss = 0;
    for (const { weights, config } of samples) {
      const scaled = scaleColumns(weights, factors);
      loss += await roundingLoss(scaled, config, scaledPower);
      const block = blockOf(config, inputs.columns);
      if (block === null) continue;
      if (!errors.has(block)) errors.set(block, meanSquares(roundingErrors(sample, factors, block)));
      const squares = meanSquares(scaled);
      loss += errors.get(block)!.reduce((sum, error, c) => sum + error * squares[c]! * scaled.rows, 0);
    }
    if (loss < best.loss) best = { loss, factors };
  }
  return best.factors;
}

/** SmoothQuant: factors max |x|^strength / max |w|^(1 - strength) of each channel. */
export function smoothFactors(
  activation: ScalableActivation,
  inputs: Matrix,
  readers: readonly Reader[],
  strength: number,
): Float32Array {
  const peaks = (matrices: readonly Matrix[]) =>
    sharedPeaks(activation, matrices.reduce(columnPeaks, new Float32Array(inputs.columns)));
  const [x, w] = [peaks([inputs]), peaks(readers.map(({ weights }) => weights))];
  return centered(x.map((peak, c) => (peak > 0 && w[c]! > 0 ? peak ** strength / w[c]! ** (1 - strength) : 0)));
}

/** Mean squared error of outputs after rounding weights, for inputs with these mean squares. */
async function roundingLoss(
  { rows, columns, data }: Matrix,
  config: QuantizationConfig,
  power: Float32Array,
): Promise<number> {
  const found = dequantize(await quantizeTensor({ dtype: "f32", shape: [rows, columns], data }, config, power));
  let loss = 0;
  for (let r = 0, i = 0; r < rows; r++)
    for (let c = 0; c < columns; c++, i++) {
      const error = found[i]! - data[i]!;
      loss += error * error * power[c]!;
    }
  return loss;
}

/** Neighbouring activations that share a scale; null where activations stay float. */
function blockOf(config: QuantizationConfig, columns: number): number | null {
  const activations = activationsOf(config);
  if (activations === "float") return null;
  const { groupSize } = config;
  return activations === "int8" ? Math.min(BLOCK_COLUMNS, groupSize === "axis" ? columns : groupSize) : columns;
}

/** Errors of inputs that are divided by factors and rounded to 8 bits, with a scale for each block of a row. */
function roundingErrors({ rows, columns, data }: Matrix, factors: Float32Array, block: number): Matrix {
  const errors = matrix(rows, columns);
  for (let r = 0; r < rows; r++)
    for (let first = 0; first < columns; first += block) {
      const end = Math.min(columns, first + block);
      let peak = 0;
      for (let c = first; c < end; c++) peak = Math.max(peak, Math.abs(data[r * columns + c]! / factors[c]!));
      const scale = peak / 127 || 1;
      for (let c = first; c < end; c++) {
        const value = data[r * columns + c]! / factors[c]!;
        errors.data[r * columns + c] = Math.round(value / scale) * scale - value;
      }
    }
  return errors;
}

/** A copy of the matrix with columns multiplied by factors. */
export function scaleColumns({ rows, columns, data }: Matrix, factors: Float32Array): Matrix {
  const result = matrix(rows, columns);
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) result.data[r * columns + c] = data[r * columns + c]! * factors[c]!;
  return result;
}

function columnMeans({ rows, columns, data }: Matrix): Float32Array {
  const sums = new Float64Array(columns);
  for (let r = 0, i = 0; r < rows; r++) for (let c = 0; c < columns; c++, i++) sums[c]! += Math.abs(data[i]!);
  return Float32Array.from(sums, (sum) => sum / rows);
}

function meanSquares({ rows, columns, data }: Matrix): Float32Array {
  const sums = new Float64Array(columns);
  for (let r = 0, i = 0; r < rows; r++) for (let c = 0; c < columns; c++, i++) sums[c]! += data[i]! * data[i]!;
  return Float32Array.from(sums, (sum) => sum / rows);
}

/** The larger of known peaks and the largest magnitudes of the columns. */
function columnPeaks(known: Float32Array, { columns, data }: Matrix): Float32Array {
  for (let i = 0; i < data.length; i++) {
    const c = i % columns;
    known[c] = Math.max(known[c]!, Math.abs(data[i]!));
  }
  return known;
}

/** Replaces each channel's value by the mean over the channels that the same row makes. */
function sharedMeans({ rows }: ScalableActivation, values: Float32Array): Float32Array {
  const [sums, counts] = [new Map<number, number>(), new Map<number, number>()];
  for (const [c, row] of rows.entries()) {
    sums.set(row, (sums.get(row) ?? 0) + values[c]!);
    counts.set(row, (counts.get(row) ?? 0) + 1);
  }
  return values.map((_, c) => sums.get(rows[c]!)! / counts.get(rows[c]!)!);
}

/** Replaces each channel's value by the largest over the channels that the same row makes. */
function sharedPeaks({ rows }: ScalableActivation, values: Float32Array): Float32Array {
  const peaks = new Map<number, number>();
  for (const [c, row] of rows.entries()) peaks.set(row, Math.max(peaks.get(row) ?? 0, values[c]!));
  return values.map((_, c) => peaks.get(rows[c]!)!);
}

/** Factors divided by their geometric mean and clamped; 1 for channels with factor 0. */
function centered(factors: Float32Array): Float32Array {
  const positive = factors.filter((factor) => factor > 0);
  const mean = Math.exp(positive.reduce((sum, factor) => sum + Math.log(factor), 0) / Math.max(1, positive.length));
  return factors.map((factor) => (factor > 0 ? Math.min(FACTOR_MAX, Math.max(1 / FACTOR_MAX, factor / mean)) : 1));
}

/** A sample of evenly spaced rows. */
function rowSample({ rows, columns, data }: Matrix, most = SAMPLE): Matrix {
  const count = Math.min(rows, most);
  const sample = matrix(count, columns);
  for (let i = 0; i < count; i++) {
    const row = Math.floor((i * rows) / count);
    sample.data.set(data.subarray(row * columns, (row + 1) * columns), i * columns);
  }
  return sample;
}
