/**
 * GPTQ of one block of columns, row by row: rounding, and sweeps that choose its integers anew. All is computed in float32, in
 * the order of native/families/packing/gptq_blocks.h, which gives the same bits.
 */
import { InvalidArgumentError } from "../errors.ts";
import type { Matrix } from "../matrix.ts";
import { groupCount, type QuantizedWeights, SUPER_GROUP, superGroupCount } from "../quantized.ts";
import { GroupFit } from "./group-fit.ts";
import type { Scheme } from "./scheme.ts";

const { fround, min } = Math;

/** Some rows of weights [n, k] that are being quantized. */
export interface GptqRows {
  readonly scheme: Scheme;
  /** Integers, scales, their factors and zero points, which blocks set and sweeps change. */
  readonly result: QuantizedWeights;
  readonly original: Float32Array;
  /**
   * For `roundBlock`: weights that compensate the errors of earlier columns. For `sweepBlock`: the gain of raising each weight.
   * Afterwards the values in the block's columns have no meaning.
   */
  readonly current: Float32Array;
  /** Output: original - rounded after `roundBlock`; how much each weight was raised after `sweepBlock`. */
  readonly changes: Float32Array;
}

/** Columns first .. end - 1, at most `BLOCK`. A group of fewer columns than `BLOCK` lies in one block. */
export interface Block {
  readonly first: number;
  readonly end: number;
}

/** Most columns of a block. */
export const BLOCK = 128;

/** An implementation of rounding and sweeping a block of columns. */
export interface BlockTools {
  /**
   * Rounds a block column by column; the error of each, times its row of `factor` [k, k], is added to the block's later
   * columns. Grids of groups, and factors of integer scales, are fitted by `importance` when their first column is reached.
   */
  roundBlock(rows: GptqRows, block: Block, factor: Matrix, importance: Float32Array): Promise<void>;
  /**
   * Chooses scales of groups in the block, then integers; each minimizes the error by `hessian` [k, k] with all others fixed.
   */
  sweepBlock(rows: GptqRows, block: Block, hessian: Matrix): Promise<void>;
}

/** Reference implementation: plain loops, which define the results of native code. */
export const plainBlocks: BlockTools = {
  async roundBlock(rows, block, factor, importance) {
    const { n, k } = rows.result;
    const fit = fitOf(rows);
    for (let r = 0; r < n; r++)
      for (let c = block.first; c < block.end; ) {
        if (c % fit.spec.groupSize === 0) fitGroup(rows, fit, r * k, c, importance);
        const end = useGrid(rows, fit, r, c, block.end);
        for (; c < end; c++) {
          const q = fit.round(rows.current[r * k + c]!);
          const error = fround(rows.original[r * k + c]! - fround(fit.value(q)));
          rows.result.qvals[r * k + c] = q;
          rows.changes[r * k + c] = error;
          for (let j = c + 1; j < block.end; j++) rows.current[r * k + j]! += fround(error * factor.data[c * k + j]!);
        }
      }
  },

  async sweepBlock(rows, block, { data: hessian }) {
    const { current, changes } = rows;
    const { n, k } = rows.result;
    const fit = fitOf(rows);
    for (let r = 0; r < n; r++)
      for (let first = block.first; first < block.end; ) {
        const end = useGrid(rows, fit, r, first, block.end);
        const isWhole = first % fit.spec.groupSize === 0 && end - first === min(fit.spec.groupSize, k - first);
        changes.fill(0, r * k + first, r * k + end);
        if (isWhole) rescale(rows, fit, r, { first, end }, hessian);
        for (let c = first; c < end; c++) {
          const at = r * k + c;
          const value = fround(fit.value(rows.result.qvals[at]!));
          const q = fit.round(fround(value + fround(current[at]! / hessian[c * k + c]!)));
          const change = fround(fround(fit.value(q)) - value);
          rows.result.qvals[at] = q;
          changes[at]! += change;
          for (let j = first; j < end; j++) current[r * k + j]! -= fround(change * hessian[c * k + j]!);
        }
        for (let c = first; c < end; c++)
          for (let j = end; j < block.end; j++)
            current[r * k + j]! -= fround(changes[r * k + c]! * hessian[c * k + j]!);
        first = end;
      }
  },
};

function fitOf({ scheme, result }: GptqRows): GroupFit {
  return new GroupFit(result.n, result.k, scheme, result.levels);
}

/** Index, in `superScales`, of the factor of a row's super-block that a column is in. */
const factorIndex = ({ spec }: GroupFit, row: number, column: number) =>
  row * superGroupCount(spec) + Math.floor(column / SUPER_GROUP);

/** Chooses the grid of the group at a column of the row that begins at `start`, and the factor where one begins. */
function fitGroup({ result, current }: GptqRows, fit: GroupFit, start: number, c: number, importance: Float32Array) {
  const { k, superScales, zeros } = result;
  const row = start / k;
  const counts = (end: number) => importance.subarray(c, end);
  if (superScales) {
    const factor = factorIndex(fit, row, c);
    if (c % SUPER_GROUP === 0) {
      const end = min(k, c + SUPER_GROUP);
      fit.fitFactor(current, start + c, start + end, counts(end));
      superScales[factor] = fit.factor;
    }
    fit.factor = superScales[factor]!;
  }
  const end = min(k, c + fit.spec.groupSize);
  if (!current.subarray(start + c, start + end).every(Number.isFinite)) throw notFiniteSums();
  fit.fit(current, start + c, start + end, counts(end));
  const group = row * groupCount(fit.spec) + c / fit.spec.groupSize;
  result.scales[group] = fit.scale;
  if (zeros) zeros[group] = fit.zero;
}

/** Loads the grid of the group that a column of a row is in; returns where the group, or the block, ends. */
function useGrid({ result }: GptqRows, fit: GroupFit, row: number, column: number, blockEnd: number): number {
  const { groupSize } = fit.spec;
  const place = Math.floor(column / groupSize);
  const group = row * groupCount(fit.spec) + place;
  if (result.superScales) fit.factor = result.superScales[factorIndex(fit, row, column)]!;
  fit.scale = result.scales[group]!;
  fit.zero = result.zeros?.[group] ?? 0;
  return min(blockEnd, (place + 1) * groupSize);
}

/** Gives a group of a row the scale that suits its integers best. */
function rescale(rows: GptqRows, fit: GroupFit, row: number, { first, end }: Block, hessian: Float32Array): void {
  const { k, scales, qvals } = rows.result;
  const before = fit.scale;
  if (before === 0) return;
  const at = row * k;
  const levels = Float32Array.from(qvals.subarray(at + first, at + end), (q) => fit.level(q));
  const slopes = new Float32Array(end - first);
  for (const [i, level] of levels.entries())
    for (let j = 0; j < slopes.length; j++) slopes[j]! += fround(level * hessian[(first + i) * k + first + j]!);
  let [slope, curve] = [0, 0];
  for (const [j, level] of levels.entries()) {
    slope = fround(slope + fround(level * rows.current[at + first + j]!));
    curve = fround(curve + fround(level * slopes[j]!));
  }
  if (curve > 0) fit.store(fround(before + fround(slope / curve)));
  scales[row * groupCount(fit.spec) + first / fit.spec.groupSize] = fit.scale;
  const change = fround(fit.scale - before);
  for (const [j, level] of levels.entries()) {
    rows.current[at + first + j]! -= fround(change * slopes[j]!);
    rows.changes[at + first + j] = fround(change * level);
  }
}

/** The error for sums of inputs, or weights, that are too large for float32. */
export function notFiniteSums(): InvalidArgumentError {
  return new InvalidArgumentError("GPTQ: weights must be finite, and sums of products of their inputs, too");
}
