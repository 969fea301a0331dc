/**
 * Rounding that looks at activations. GPTQ (Frantar et al. 2022, arXiv 2210.17323) rounds column after column and lets
 * later columns make up for the errors of earlier ones; without that, errors only weigh as much as their inputs do.
 */
import { ShapeError } from "../errors.ts";
import { nextMacrotask } from "../event-loop.ts";
import { type Matrix, matrix, type Product } from "../matrix.ts";
import { groupCount, type QuantizedWeights, SUPER_GROUP, superGroupCount } from "../quantized.ts";
import { upperFactor } from "./cholesky.ts";
import { GroupFit } from "./group-fit.ts";
import { emptyWeights } from "./mse.ts";
import { checkScheme, type Scheme } from "./scheme.ts";

export interface GptqOptions extends Scheme {
  /** Added to the diagonal of X^T X, as a part of its mean. Default 0.01. */
  readonly damping?: number | undefined;
  /** Levels of a codebook that is not one of `codebooks`. */
  readonly levels?: Int8Array | null;
  readonly signal?: AbortSignal | undefined;
}

/** Part of the mean of the diagonal of X^T X that is added to it. */
export const DAMPING = 0.01;
/** Columns that are rounded before the later ones are updated by one product. */
const BLOCK = 128;
/** Weights that are rounded at a time: rows do not depend on each other. */
const CHUNK_WEIGHTS = 2 ** 24;

/**
 * GPTQ of weights [n, k] by H = X^T X [k, k] of their inputs; both are overwritten. With H = U D U^T, U upper with ones
 * on the diagonal, column j is rounded from w_j + sum over i < j of (w_i - ŵ_i) U_ij, which is the solution of the
 * paper (Chee et al. 2023, arXiv 2307.13304, theorem 6) without an inverse. Grids of groups are fitted when their first
 * column is reached, to what the columns then are; so are factors of integer scales. Inputs that were always zero take no part.
 */
export async function quantizeGptq(
  weights: Matrix,
  hessian: Matrix,
  product: Product,
  options: GptqOptions,
): Promise<QuantizedWeights> {
  checkScheme("quantizeGptq", options);
  const { rows: n, columns: k, data } = weights;
  if (hessian.rows !== k || hessian.columns !== k)
    throw new ShapeError(`quantizeGptq: expected X^T X [${k}, ${k}] but found [${hessian.rows}, ${hessian.columns}]`);
  damp(hessian, options.damping ?? DAMPING);
  const factor = upperFactor(hessian, product);
  const importance = normalize(factor);
  const fit = new GroupFit(n, k, options, options.levels);
  const result = emptyWeights(fit);
  const step = Math.max(1, Math.floor(CHUNK_WEIGHTS / k));
  for (let row = 0; row < n; row += step) {
    const count = Math.min(step, n - row);
    const part = matrix(count, k, data.subarray(row * k, (row + count) * k));
    const rounding: Rounding = { fit, result, importance, row, current: part, original: part.data.slice() };
    for (let first = 0; first < k; first += BLOCK) {
      options.signal?.throwIfAborted();
      const end = Math.min(k, first + BLOCK);
      const errors = roundBlock(rounding, square(factor, first, end), first);
      if (end < k) addRight(part, end, product(errors, rightOf(factor, first, end)));
      await nextMacrotask();
    }
  }
  return result;
}

/** Makes a matrix positive: adds a part of the mean to its diagonal. Rows of zeros get ones. */
function damp({ rows: k, data }: Matrix, part: number): void {
  let trace = 0;
  for (let i = 0; i < k; i++) trace += data[i * k + i]!;
  const more = (part * trace) / k;
  for (let i = 0; i < k; i++) data[i * k + i] = (data[i * k + i] === 0 ? 1 : data[i * k + i]!) + more;
}

/** Divides the columns of R by its diagonal; gives the squares of that. */
function normalize({ rows: k, data }: Matrix): Float32Array {
  const diagonal = Float64Array.from({ length: k }, (_, i) => data[i * k + i]!);
  for (let r = 0; r < k; r++) for (let c = r; c < k; c++) data[r * k + c] = data[r * k + c]! / diagonal[c]!;
  return Float32Array.from(diagonal, (value) => value * value);
}

/** Rows and columns first .. end - 1. */
function square({ columns: k, data }: Matrix, first: number, end: number): Matrix {
  const part = matrix(end - first, end - first);
  for (let r = first; r < end; r++)
    part.data.set(data.subarray(r * k + first, r * k + end), (r - first) * part.columns);
  return part;
}

/** Rows first .. end - 1 of the columns from `end` on, transposed. */
function rightOf({ columns: k, data }: Matrix, first: number, end: number): Matrix {
  const part = matrix(k - end, end - first);
  for (let r = first; r < end; r++)
    for (let c = end; c < k; c++) part.data[(c - end) * part.columns + r - first] = data[r * k + c]!;
  return part;
}

/** Adds a matrix to the columns from `first` on. */
function addRight(weights: Matrix, first: number, { rows, columns, data }: Matrix): void {
  for (let r = 0; r < rows; r++) {
    const start = r * weights.columns + first;
    for (let c = 0; c < columns; c++) weights.data[start + c]! += data[r * columns + c]!;
  }
}

/** Some rows of weights that are being rounded. */
interface Rounding {
  readonly fit: GroupFit;
  readonly result: ReturnType<typeof emptyWeights>;
  readonly importance: Float32Array;
  /** The first row, of all. */
  readonly row: number;
  /** Weights with the errors of earlier columns made up for. */
  readonly current: Matrix;
  readonly original: Float32Array;
}

/** Rounds columns first .. first + count - 1; `factor` is U's square of them. Gives the errors [rows, count]. */
function roundBlock(rounding: Rounding, factor: Matrix, first: number): Matrix {
  const { fit, result, importance, row, original } = rounding;
  const { rows, columns: k, data: current } = rounding.current;
  const { groupSize } = fit.spec;
  const { superScales } = result;
  const groups = groupCount(fit.spec);
  const count = factor.rows;
  const errors = matrix(rows, count);
  for (let r = 0; r < rows; r++) {
    const start = r * k + first;
    for (let j = 0; j < count; j++) {
      const column = first + j;
      const group = (row + r) * groups + Math.floor(column / groupSize);
      if (superScales && (column % SUPER_GROUP === 0 || j === 0)) {
        const factor = (row + r) * superGroupCount(fit.spec) + Math.floor(column / SUPER_GROUP);
        const end = Math.min(k, column + SUPER_GROUP);
        if (column % SUPER_GROUP === 0)
          fit.fitFactor(current, start + j, r * k + end, importance.subarray(column, end));
        else fit.factor = superScales[factor]!;
        superScales[factor] = fit.factor;
      }
      if (column % groupSize === 0) {
        const end = Math.min(k, column + groupSize);
        fit.fit(current, start + j, r * k + end, importance.subarray(column, end));
        result.scales[group] = fit.scale;
        if (result.zeros) result.zeros[group] = fit.zero;
      } else if (j === 0) {
        fit.scale = result.scales[group]!;
        fit.zero = result.zeros?.[group] ?? 0;
      }
      const q = fit.round(current[start + j]!);
      const error = original[start + j]! - fit.value(q);
      result.qvals[row * k + start + j] = q;
      errors.data[r * count + j] = error;
      for (let c = j + 1; c < count; c++) current[start + c]! += error * factor.data[j * count + c]!;
    }
  }
  return errors;
}
