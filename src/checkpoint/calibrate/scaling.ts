/**
 * Scale factors for the channels of activations, which make weights or activations easier to round: AWQ (Lin et al. 2023,
 * arXiv 2306.00978) and SmoothQuant (Xiao et al. 2022, arXiv 2211.10438). Activations are divided by them, weights
 * multiplied.
 */
import { type Matrix, matrix, type Product } from "../../matrix.ts";
import type { ScalableActivation } from "../../model/scalable.ts";
import type { QuantizationConfig } from "../../quantize/config.ts";
import { quantizeMse } from "../../quantize/mse.ts";
import { dequantize } from "../../quantized.ts";

/** A linear layer that reads the activation. */
export interface Reader {
  /** Weights [n, k]. */
  readonly weights: Matrix;
  readonly config: QuantizationConfig;
}

interface Sample {
  readonly inputs: Matrix;
  /** Sum of squares of each channel over all tokens. */
  readonly power: Float32Array;
}

/** Exponents that AWQ tries; 0 means no scaling. */
const EXPONENTS = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1];
/** Rows of inputs, and of weights, on which exponents are compared. */
const SAMPLE = 256;
/** Factors are at most this times, and at least 1 / this times, their geometric mean. */
const FACTOR_MAX = 1e4;

/** AWQ: factors (mean |x|)^exponent of each channel x, with the exponent of the least output error. */
export function awqFactors(
  activation: ScalableActivation,
  inputs: Matrix,
  readers: readonly Reader[],
  product: Product,
): Float32Array {
  const means = sharedMeans(activation, columnMeans(inputs));
  const sample = { inputs: rowSample(inputs), power: columnPower(inputs) };
  const samples = readers.map(({ weights, config }) => ({ weights: rowSample(weights), config }));
  let best: { loss: number; factors: Float32Array } = {
    loss: Number.POSITIVE_INFINITY,
    factors: new Float32Array(inputs.columns).fill(1),
  };
  for (const exponent of EXPONENTS) {
    const factors = centered(means.map((mean) => mean ** exponent));
    const loss = samples.reduce((sum, reader) => sum + outputLoss(reader, factors, sample, product), 0);
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

/** Squared error of the outputs after rounding the scaled weights. */
function outputLoss(
  { weights, config }: Reader,
  factors: Float32Array,
  { inputs, power }: Sample,
  product: Product,
): number {
  const { rows, columns } = weights;
  const importance = power.map((value, c) => value / factors[c]! ** 2);
  const changes = dequantize(
    quantizeMse(scaleColumns(weights, factors).data, { ...config, n: rows, k: columns }, importance),
  );
  for (let i = 0; i < changes.length; i++) changes[i] = changes[i]! / factors[i % columns]! - weights.data[i]!;
  return product(inputs, matrix(rows, columns, changes)).data.reduce((sum, value) => sum + value * value, 0);
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
  for (let i = 0; i < data.length; i++) sums[i % columns]! += Math.abs(data[i]!);
  return Float32Array.from(sums, (sum) => sum / rows);
}

function columnPower({ columns, data }: Matrix): Float32Array {
  const sums = new Float64Array(columns);
  for (let i = 0; i < data.length; i++) sums[i % columns]! += data[i]! ** 2;
  return Float32Array.from(sums);
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
function rowSample({ rows, columns, data }: Matrix): Matrix {
  const count = Math.min(rows, SAMPLE);
  const sample = matrix(count, columns);
  for (let i = 0; i < count; i++) {
    const row = Math.floor((i * rows) / count);
    sample.data.set(data.subarray(row * columns, (row + 1) * columns), i * columns);
  }
  return sample;
}
