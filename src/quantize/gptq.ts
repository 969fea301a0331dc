/**
 * Rounding that looks at activations. GPTQ (Frantar et al. 2022, arXiv 2210.17323) rounds column after column and lets
 * later columns make up for the errors of earlier ones; without that, errors only weigh as much as their inputs do.
 */
import { ShapeError } from "../errors.ts";
import { nextMacrotask } from "../event-loop.ts";
import { addColumns, columnsOf, type Matrix, matrix, type Product, partOf, setColumns, transpose } from "../matrix.ts";
import { groupCount, type QuantizedWeights, SUPER_GROUP, superGroupCount } from "../quantized.ts";
import { solveFactored, upperFactor } from "./cholesky.ts";
import { GroupFit } from "./group-fit.ts";
import { emptyWeights, quantizeMse } from "./mse.ts";
import { checkScheme, type GroupSize, type Scheme } from "./scheme.ts";

/** A scheme, and the levels of a codebook that is not one of `codebooks`. */
type SchemeOfLevels = Scheme & { readonly levels?: Int8Array | null };

/** Rounds a matrix each weight for itself, with what errors of its columns count: `quantizeMse`, or as it does. */
export type Rounding = (weights: Matrix, scheme: SchemeOfLevels, importance: Float32Array) => Promise<QuantizedWeights>;

/** What GPTQ is computed with. */
export interface GptqTools {
  readonly product: Product;
  readonly round?: Rounding;
}

export interface GptqOptions extends SchemeOfLevels {
  /** Part of the diagonal of X^T X, and a tenth as much of its mean, that is added to it. Default 0.2. */
  readonly damping?: number | undefined;
  /**
   * (Y - X W^T)^T X [n, k], where outputs Y other than X W^T are wanted: those of inputs that nothing before has changed. It
   * is overwritten.
   */
  readonly lacking?: Matrix | null | undefined;
  /** How often all weights and scales are chosen anew, each to suit the others. Default 0. */
  readonly sweeps?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

const DAMPING = 0.2;
/** Columns that are rounded before the later ones are updated by one product. */
const BLOCK = 128;
/** Columns of those that are rounded before the others of the block are. */
const STRIP = 32;
/** Weights that are rounded at a time: rows do not depend on each other. */
const CHUNK_WEIGHTS = 2 ** 24;

const roundPlainly: Rounding = async ({ rows: n, columns: k, data }, scheme, importance) =>
  quantizeMse(data, { ...scheme, n, k }, importance, scheme.levels);

/**
 * GPTQ of weights [n, k] by H = X^T X [k, k] of their inputs; both are overwritten. With H = U D U^T, U upper with ones
 * on the diagonal, column j is rounded from w_j + sum over i < j of (w_i - ŵ_i) U_ij, which is the solution of the
 * paper (Chee et al. 2023, arXiv 2307.13304, theorem 6) without an inverse. Grids of groups are fitted when their first
 * column is reached, to what the columns then are; so are factors of integer scales. Inputs that were always zero take no part.
 */
export async function quantizeGptq(
  weights: Matrix,
  hessian: Matrix,
  { product, round = roundPlainly }: GptqTools,
  options: GptqOptions,
): Promise<QuantizedWeights> {
  checkScheme("quantizeGptq", options);
  const { rows: n, columns: k, data } = weights;
  if (hessian.rows !== k || hessian.columns !== k)
    throw new ShapeError(`quantizeGptq: expected X^T X [${k}, ${k}] but found [${hessian.rows}, ${hessian.columns}]`);
  const { lacking, sweeps = 0 } = options;
  damp(hessian, options.damping ?? DAMPING);
  const kept = sweeps > 0 ? matrix(k, k, hessian.data.slice()) : null;
  const factor = upperFactor(hessian, product);
  if (lacking) {
    const more = solveFactored(factor, lacking, product).data;
    for (let i = 0; i < data.length; i++) data[i]! += more[i]!;
  }
  const importance = normalize(factor);
  const fit = new GroupFit(n, k, options, options.levels);
  const result = emptyWeights(fit);
  const step = Math.max(1, Math.floor(CHUNK_WEIGHTS / k));
  for (let row = 0; row < n; row += step) {
    const count = Math.min(step, n - row);
    const part = matrix(count, k, data.subarray(row * k, (row + count) * k));
    const original = part.data.slice();
    const rows: Rows = { fit, result, importance, row, current: part, original, product, round, options };
    await roundRows(rows, factor);
    for (let i = 0; i < sweeps; i++) await sweepRows(rows, kept!);
  }
  return result;
}

/** Adds a part of each number of the diagonal to it, and a tenth as much of their mean. Rows of zeros get ones. */
function damp({ rows: k, data }: Matrix, part: number): void {
  let trace = 0;
  for (let i = 0; i < k; i++) trace += data[i * k + i]!;
  const more = (part * trace) / (10 * k);
  for (let i = 0; i < k; i++) data[i * k + i] = (data[i * k + i] || 1) * (1 + part) + more;
}

/** Divides the columns of R by its diagonal; gives the squares of that. */
function normalize({ rows: k, data }: Matrix): Float32Array {
  const diagonal = Float64Array.from({ length: k }, (_, i) => data[i * k + i]!);
  for (let r = 0; r < k; r++) for (let c = r; c < k; c++) data[r * k + c] = data[r * k + c]! / diagonal[c]!;
  return Float32Array.from(diagonal, (value) => value * value);
}

/** Some rows of weights that are being rounded. */
interface Rows {
  readonly fit: GroupFit;
  readonly result: ReturnType<typeof emptyWeights>;
  readonly importance: Float32Array;
  /** The first row, of all. */
  readonly row: number;
  /** Weights with the errors of earlier columns made up for. */
  readonly current: Matrix;
  readonly original: Float32Array;
  readonly product: Product;
  readonly round: Rounding;
  readonly options: GptqOptions;
}

/** Columns from `first` to `end`, which no group but the one at `first` may begin in. */
interface Strip {
  readonly first: number;
  readonly end: number;
}

/** The strips of blocks: of at most `STRIP` columns of a group. */
function blocksOf(k: number, groupSize: number): Strip[][] {
  const blocks: Strip[][] = [];
  for (let first = 0; first < k; ) {
    const strips: Strip[] = [];
    const start = first;
    while (first < k && first - start < BLOCK) {
      const end = Math.min(k, first + STRIP, first - (first % groupSize) + groupSize);
      strips.push({ first, end });
      first = end;
    }
    blocks.push(strips);
  }
  return blocks;
}

async function roundRows(rows: Rows, factor: Matrix): Promise<void> {
  const { current, product, options, fit } = rows;
  const { columns: k } = current;
  for (const strips of blocksOf(k, fit.spec.groupSize)) {
    options.signal?.throwIfAborted();
    const [start, blockEnd] = [strips[0]!.first, strips.at(-1)!.end];
    const errors = matrix(current.rows, blockEnd - start);
    for (const { first, end } of strips) {
      if (first % fit.spec.groupSize === 0) await fitGroups(rows, first);
      const own = roundStrip(rows, partOf(factor, first, end, first, end), first);
      setColumns(errors, first - start, own);
      if (end < blockEnd)
        addColumns(current, end, product(own, transpose(partOf(factor, first, end, end, blockEnd))), 1);
    }
    if (blockEnd < k)
      addColumns(current, blockEnd, product(errors, transpose(partOf(factor, start, blockEnd, blockEnd, k))), 1);
    await nextMacrotask();
  }
}

/** Scales and zero points of the groups that begin at a column, and factors that do. */
async function fitGroups(rows: Rows, first: number): Promise<void> {
  const { fit, result, row, current } = rows;
  const { groupSize } = fit.spec;
  if (result.superScales && first % SUPER_GROUP === 0) await fitFactors(rows, result.superScales, first);
  const found = await searchScales(rows, first, Math.min(groupSize, current.columns - first), "axis");
  for (let r = 0; r < current.rows; r++) {
    const group = useGrid(rows, row + r, first);
    fit.store(found.scales[r]!);
    result.scales[group] = fit.scale;
    if (result.zeros) result.zeros[group] = found.zeros![r]!;
  }
}

/** Factors of integer scales for the groups from a column on. */
async function fitFactors(rows: Rows, superScales: Float32Array, first: number): Promise<void> {
  const { fit, row, current } = rows;
  const found = await searchScales(rows, first, Math.min(SUPER_GROUP, current.columns - first), rows.options.groupSize);
  const groups = groupCount(found);
  for (let r = 0; r < current.rows; r++) {
    const scales = found.scales.subarray(r * groups, (r + 1) * groups);
    fit.setFactor(scales.reduce((most, scale) => Math.max(most, Math.abs(scale)), 0));
    superScales[(row + r) * superGroupCount(fit.spec) + first / SUPER_GROUP] = fit.factor;
  }
}

/** Rounds columns from `first` on by themselves, with scales that are no integers. */
function searchScales(
  { importance, current, round, options }: Rows,
  first: number,
  width: number,
  groupSize: GroupSize,
): Promise<QuantizedWeights> {
  const scaleDType = options.scaleDType === "i8" ? "f32" : options.scaleDType;
  return round(
    columnsOf(current, first, width),
    { ...options, groupSize, scaleDType },
    importance.subarray(first, first + width),
  );
}

/** Takes the grid of the group that a column of a row is in. */
function useGrid({ fit, result }: Rows, row: number, column: number): number {
  const group = row * groupCount(fit.spec) + Math.floor(column / fit.spec.groupSize);
  const factor = row * superGroupCount(fit.spec) + Math.floor(column / SUPER_GROUP);
  if (result.superScales) fit.factor = result.superScales[factor]!;
  fit.scale = result.scales[group]!;
  fit.zero = result.zeros?.[group] ?? 0;
  return group;
}

/** Rounds the columns from `first` on; `factor` is U's square of them. Gives the errors. */
function roundStrip(rows: Rows, factor: Matrix, first: number): Matrix {
  const { fit, result, row, original, current } = rows;
  const k = current.columns;
  const count = factor.rows;
  const errors = matrix(current.rows, count);
  for (let r = 0; r < current.rows; r++) {
    const start = r * k + first;
    useGrid(rows, row + r, first);
    for (let j = 0; j < count; j++) {
      const q = fit.round(current.data[start + j]!);
      const error = original[start + j]! - fit.value(q);
      result.qvals[row * k + start + j] = q;
      errors.data[r * count + j] = error;
      for (let c = j + 1; c < count; c++) current.data[start + c]! += error * factor.data[j * count + c]!;
    }
  }
  return errors;
}

/**
 * Chooses scales and integers anew, group by group, each the best for what all others are (coordinate descent): `current`
 * becomes the gradient (W - Ŵ) H of what is lost.
 */
async function sweepRows(rows: Rows, hessian: Matrix): Promise<void> {
  const { current, original, product, options, fit, result, row } = rows;
  const { columns: k, rows: n } = current;
  const errors = matrix(n, k);
  for (let r = 0; r < n; r++)
    for (let c = 0; c < k; c++) {
      if (c % fit.spec.groupSize === 0) useGrid(rows, row + r, c);
      errors.data[r * k + c] = original[r * k + c]! - fit.value(result.qvals[(row + r) * k + c]!);
    }
  current.data.set(product(errors, hessian).data);
  for (const strips of blocksOf(k, fit.spec.groupSize)) {
    options.signal?.throwIfAborted();
    const [start, blockEnd] = [strips[0]!.first, strips.at(-1)!.end];
    const changes = matrix(n, blockEnd - start);
    for (const { first, end } of strips) {
      const own = sweepStrip(rows, partOf(hessian, first, end, first, end), first);
      setColumns(changes, first - start, own);
      if (end < blockEnd) addColumns(current, end, product(own, partOf(hessian, end, blockEnd, first, end)), -1);
    }
    if (blockEnd < k)
      addColumns(current, blockEnd, product(changes, partOf(hessian, blockEnd, k, start, blockEnd)), -1);
    await nextMacrotask();
  }
}

/** Of the columns from `first` on; gives what was added to them. */
function sweepStrip(rows: Rows, hessian: Matrix, first: number): Matrix {
  const { fit, result, row, current } = rows;
  const k = current.columns;
  const count = hessian.rows;
  const changes =
    count === Math.min(fit.spec.groupSize, k - first) ? rescale(rows, hessian, first) : matrix(current.rows, count);
  for (let r = 0; r < current.rows; r++) {
    const start = r * k + first;
    const at = row * k + start;
    useGrid(rows, row + r, first);
    for (let j = 0; j < count; j++) {
      const before = result.qvals[at + j]!;
      const value = fit.value(before);
      const q = fit.round(value + current.data[start + j]! / hessian.data[j * count + j]!);
      if (q === before) continue;
      const change = fit.value(q) - value;
      result.qvals[at + j] = q;
      changes.data[r * count + j]! += change;
      for (let c = 0; c < count; c++) current.data[start + c]! -= change * hessian.data[j * count + c]!;
    }
  }
  return changes;
}

/** Gives the groups that begin at a column the scales that suit their integers best; gives what that adds to them. */
function rescale(rows: Rows, hessian: Matrix, first: number): Matrix {
  const { fit, result, row, current, product } = rows;
  const k = current.columns;
  const count = hessian.rows;
  const levels = matrix(current.rows, count);
  for (let r = 0; r < current.rows; r++) {
    useGrid(rows, row + r, first);
    if (fit.scale === 0) continue;
    for (let j = 0; j < count; j++)
      levels.data[r * count + j] = fit.value(result.qvals[(row + r) * k + first + j]!) / fit.scale;
  }
  const slopes = product(levels, hessian).data;
  for (let r = 0; r < current.rows; r++) {
    const group = useGrid(rows, row + r, first);
    const start = r * k + first;
    let [slope, curve] = [0, 0];
    for (let i = r * count, j = 0; j < count; i++, j++) {
      slope += levels.data[i]! * current.data[start + j]!;
      curve += levels.data[i]! * slopes[i]!;
    }
    const before = fit.scale;
    if (curve > 0) fit.store(before + slope / curve);
    result.scales[group] = fit.scale;
    for (let i = r * count, j = 0; j < count; i++, j++) {
      current.data[start + j]! -= (fit.scale - before) * slopes[i]!;
      levels.data[i]! *= fit.scale - before;
    }
  }
  return levels;
}
