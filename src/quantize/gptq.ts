/**
 * Rounding that looks at activations. GPTQ (Frantar et al. 2022, arXiv 2210.17323) rounds column after column and lets
 * later columns make up for the errors of earlier ones; without that, errors only weigh as much as their inputs do.
 */
import { ShapeError } from "../errors.ts";
import { nextMacrotask } from "../event-loop.ts";
import { addColumns, columnsOf, type Matrix, matrix, mirror, type Product, partOf } from "../matrix.ts";
import { groupCount, type QuantizedWeights, superGroupCount } from "../quantized.ts";
import { solveFactored, upperFactor } from "./cholesky.ts";
import { BLOCK, type Block, type BlockTools, type GptqRows, plainBlocks } from "./gptq-blocks.ts";
import { GroupFit } from "./group-fit.ts";
import { emptyWeights } from "./mse.ts";
import { checkScheme, type Scheme } from "./scheme.ts";

/** Implementations of the steps of GPTQ. */
export interface GptqTools {
  readonly product: Product;
  /** Called with products that are not read any more. */
  readonly recycle?: (product: Matrix) => void;
  /** Default: plain loops. */
  readonly blocks?: BlockTools;
}

export interface GptqOptions extends Scheme {
  /** Levels of a codebook that is not one of `codebooks`. */
  readonly levels?: Int8Array | null;
  /**
   * (Y - X W^T)^T X [n, k] where the outputs to match are Y in place of X W^T: the outputs for inputs without the errors of
   * earlier layers. It is overwritten.
   */
  readonly lacking?: Matrix | null | undefined;
  /** Number of sweeps (coordinate descent) that choose all weights and scales anew, each to suit the others. Default 0. */
  readonly sweeps?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Sums of products of inputs, damped, and their factors: U D U^T, U upper with ones on the diagonal. */
export interface FactoredSums {
  /** X^T X [k, k] with damping on its diagonal. */
  readonly hessian: Matrix;
  /** U [k, k], mirrored below the diagonal. */
  readonly factor: Matrix;
  /** The diagonal of D [k]. */
  readonly squares: Float32Array;
}

const DAMPING = 0.2;
/** Weights that are rounded at a time, in whole rows: rows do not depend on each other. */
const CHUNK_WEIGHTS = 2 ** 24;

/**
 * Damps and factors X^T X [k, k], once for all rows that GPTQ quantizes by it. To each number of the diagonal it adds damping *
 * (number + mean of the diagonal / 10).
 */
export function factorSums(sums: Matrix, product: Product, damping = DAMPING): FactoredSums {
  const { rows: k, data } = sums;
  const hessian = matrix(k, k, data.slice());
  damp(hessian, damping);
  const factor = upperFactor(matrix(k, k, hessian.data.slice()), product);
  return { hessian, factor, squares: normalize(factor) };
}

/**
 * GPTQ of weights [n, k], which are overwritten, by H = X^T X [k, k] of their inputs. With H = U D U^T, column j is rounded from
 * w_j + sum over i < j of (w_i - ŵ_i) U_ij, which is the solution of the paper (Chee et al. 2023, arXiv 2307.13304, theorem 6)
 * without an inverse. Grids of groups are fitted when their first column is reached, to what the columns then are; so are
 * factors of integer scales. Inputs that were always zero take no part.
 * InvalidArgumentError for weights or sums that are not finite.
 */
export async function quantizeGptq(
  weights: Matrix,
  { hessian, factor, squares }: FactoredSums,
  tools: GptqTools,
  options: GptqOptions,
): Promise<QuantizedWeights> {
  checkScheme("quantizeGptq", options);
  const { product, recycle, blocks = plainBlocks } = tools;
  const { rows: n, columns: k, data } = weights;
  if (hessian.rows !== k || hessian.columns !== k)
    throw new ShapeError(`quantizeGptq: expected X^T X [${k}, ${k}] but found [${hessian.rows}, ${hessian.columns}]`);
  const { lacking, sweeps = 0, signal } = options;
  const original = data.slice();
  if (lacking) {
    const more = solveFactored(factor, squares, lacking, product).data;
    for (let i = 0; i < data.length; i++) original[i] = data[i]! += more[i]!;
  }
  const result = emptyWeights(new GroupFit(n, k, options, options.levels));
  const step = Math.max(1, Math.floor(CHUNK_WEIGHTS / k));
  for (let row = 0; row < n; row += step) {
    const rows = rowsFrom(row, Math.min(step, n - row), { scheme: options, result, original, current: data });
    const later: Later = async (visit, by, sign) => {
      const each = async (block: Block) => {
        signal?.throwIfAborted();
        await visit(block);
        await nextMacrotask();
      };
      await eachBlock({ first: 0, end: k }, blockSize(result.groupSize), each, (done, rest) =>
        addProduct(rows, tools, { done, rest, by, sign }),
      );
    };
    await later((block) => blocks.roundBlock(rows, block, factor, squares), factor, 1);
    const errors = matrix(rows.result.n, k, rows.changes.slice());
    for (let i = 0; i < sweeps; i++) {
      if (i > 0) for (let j = 0; j < rows.changes.length; j++) errors.data[j]! -= rows.changes[j]!;
      const gradient = product(errors, hessian);
      rows.current.set(gradient.data);
      recycle?.(gradient);
      await later((block) => blocks.sweepBlock(rows, block, hessian), hessian, -1);
    }
  }
  return result;
}

/** Visits blocks in order; what a block changed is then multiplied with columns of `by` [k, k], and added to later columns. */
type Later = (visit: (block: Block) => Promise<void>, by: Matrix, sign: 1 | -1) => Promise<void>;

/** Adds damping to the diagonal: a part of each number, and a tenth as much of their mean. Rows of zeros get ones. */
function damp({ rows: k, data }: Matrix, part: number): void {
  const diagonal = Float32Array.from({ length: k }, (_, i) => data[i * k + i]!);
  const more = (part * diagonal.reduce((sum, value) => sum + value, 0)) / (10 * k);
  for (const [i, value] of diagonal.entries()) data[i * k + i] = (value || 1) * (1 + part) + more;
}

/** Divides the columns of R by its diagonal, and puts the columns into the rows, too; gives the squares of the diagonal. */
function normalize(factor: Matrix): Float32Array {
  const { rows: k, data } = factor;
  const diagonal = Float64Array.from({ length: k }, (_, i) => data[i * k + i]!);
  for (let r = 0; r < k; r++) for (let c = r; c < k; c++) data[r * k + c] = data[r * k + c]! / diagonal[c]!;
  mirror(factor);
  return Float32Array.from(diagonal, (value) => value * value);
}

/** `n` rows from a row on; `changes` are zeros. */
function rowsFrom(row: number, n: number, { result, scheme, original, current }: Omit<GptqRows, "changes">): GptqRows {
  const { k, qvals, scales, zeros, superScales } = result;
  const part = <A extends Float32Array | Int8Array>(values: A, width: number) =>
    values.subarray(row * width, (row + n) * width) as A;
  const groups = groupCount(result);
  const own: QuantizedWeights = {
    ...result,
    n,
    qvals: part(qvals, k),
    scales: part(scales, groups),
    zeros: zeros && part(zeros, groups),
    ...(superScales && { superScales: part(superScales, superGroupCount(result)) }),
  };
  const parts = { original: part(original, k), current: part(current, k) };
  return { scheme, result: own, ...parts, changes: new Float32Array(n * k) };
}

/** Number of columns of a block: whole groups, if a group is smaller than `BLOCK`. */
function blockSize(groupSize: number): number {
  return groupSize < BLOCK ? BLOCK - (BLOCK % groupSize) : BLOCK;
}

/**
 * Visits columns block by block, in halves: after the first half, and recursively within each half, `between` gets the columns
 * that are done and those that follow. So a few large products apply the changes of done columns to later ones.
 */
async function eachBlock(
  { first, end }: Block,
  size: number,
  visit: (block: Block) => Promise<void>,
  between: (done: Block, rest: Block) => void,
): Promise<void> {
  if (end - first <= size) return visit({ first, end });
  const middle = first + size * Math.ceil((end - first) / size / 2);
  await eachBlock({ first, end: middle }, size, visit, between);
  between({ first, end: middle }, { first: middle, end });
  await eachBlock({ first: middle, end }, size, visit, between);
}

/** Columns that are done, columns that follow, and the matrix that changes are multiplied with. */
interface LaterProduct {
  readonly done: Block;
  readonly rest: Block;
  readonly by: Matrix;
  readonly sign: 1 | -1;
}

function addProduct(
  { result: { n, k }, changes, current }: GptqRows,
  { product, recycle }: GptqTools,
  { done, rest, by, sign }: LaterProduct,
): void {
  const own = columnsOf(matrix(n, k, changes), done.first, done.end - done.first);
  const more = product(own, partOf(by, rest.first, rest.end, done.first, done.end));
  addColumns(matrix(n, k, current), rest.first, more, sign);
  recycle?.(more);
}
