/**
 * One linear layer → AQLM codes, codebooks and scales: k-means start, then rounds of codebooks by conjugate gradients,
 * scales by least squares and codes by beam search. The loss is |(W - W') X|^2 = tr((W - W') H (W - W')^T) with
 * H = X^T X of activations, or the plain distance of weights where there is none.
 */

import { f16Table, f32ToF16 } from "lowbit/extension";
import {
  cholesky,
  columnsOf,
  type Matrix,
  matrix,
  multiplyTransposed,
  nextMacrotask,
  solveCholesky,
} from "lowbit/extension/checkpoint";
import { type AqlmForm, type AqlmWeights, codeArray, formCounts } from "../form.ts";
import { type Codebooks, searchCodes } from "./search.ts";
import { startCodebooks } from "./start.ts";

/** Rounds on the distance of weights: all there are without a text, a start for those on that of outputs with one. */
const PLAIN_ROUNDS = { alone: 3, first: 1 };
const OUTPUT_ROUNDS = 5;
const GRADIENT_STEPS = 12;
/** Share of the mean diagonal that is added to H, for inputs that the text never shows. */
const DAMPING = 0.02;

/** Rows count as at least as large. */
const SIZE_MIN = 1e-8;
/** Rows' sizes up to 2^12, and down to its inverse, are usual. */
const USUAL_EXPONENT = 12;

/** An encoding on its way; weights are [n, k]. */
interface State {
  readonly form: AqlmForm;
  /** Over 2^exponent. */
  readonly weights: Matrix;
  /** 0 for weights of a usual size. Others are encoded as such, and have scales of f32 with what they were divided by. */
  readonly exponent: number;
  /** [k, k], null for the plain distance. */
  readonly hessian: Matrix | null;
  readonly codes: Uint8Array | Uint16Array;
  readonly scales: Float32Array;
  books: Codebooks;
}

/** What encoding a layer reports and obeys. */
export interface LayerHooks {
  /** Steps done, of those that the layer takes: rounds, and those of a sweep over the groups of inputs. */
  onStep?(done: number, total: number): void;
  readonly signal?: AbortSignal | undefined;
}

/** Groups of inputs that a step of a sweep works on. */
const STEP_GROUPS = 16;

/**
 * Encodes weights of a form with out groups of 1. `hessian` [k, k] is X^T X of the layer's inputs, or null; both are
 * finite. Vectors are f16, and so are scales where these are of a usual size; else they are f32.
 */
export async function encodeLayer(
  form: AqlmForm,
  stored: Matrix,
  hessian: Matrix | null,
  hooks: LayerHooks = {},
): Promise<AqlmWeights> {
  const { outputs, inputs, entries } = formCounts(form);
  const plainRounds = hessian ? PLAIN_ROUNDS.first : PLAIN_ROUNDS.alone;
  const steps = plainRounds + (hessian ? OUTPUT_ROUNDS * (1 + Math.ceil(inputs / STEP_GROUPS)) : 0);
  const turn = turns(hooks, steps);
  await turn();
  const exponent = exponentOf(stored);
  const weights = exponent === 0 ? stored : scaledBy(stored, 2 ** -exponent);
  const scales = rowSizes(weights).map((size) => Math.max(size, SIZE_MIN));
  const groups = scaledGroups(form, weights, scales);
  const state: State = {
    form,
    weights,
    exponent,
    hessian: null,
    codes: codeArray(form.bits, outputs * inputs * form.codebooks),
    scales,
    books: startCodebooks(groups, form.codebooks, entries),
  };
  for (let round = 0; round < plainRounds; round++) {
    searchCodes(state.books, scaledGroups(form, weights, scales), state.codes);
    fitCodebooks(state);
    fitScales(state);
    await turn();
  }
  const full = hessian ? { ...state, hessian: damped(hessian) } : state;
  for (let round = 0; hessian && round < OUTPUT_ROUNDS; round++) {
    fitCodebooks(full);
    fitScales(full);
    await turn();
    await sweep(full, turn);
  }
  fitCodebooks(full);
  return finished(full);
}

/** A function to call before the first step and after each: reports, lets others work, and may stop here. */
function turns({ onStep, signal }: LayerHooks, total: number): () => Promise<void> {
  let done = 0;
  return async () => {
    onStep?.(done++, total);
    await nextMacrotask();
    signal?.throwIfAborted();
  };
}

/** Root mean squares of rows. */
function rowSizes({ rows, columns, data }: Matrix): Float32Array {
  return Float32Array.from({ length: rows }, (_, r) => {
    let sum = 0;
    for (let c = 0; c < columns; c++) sum += data[r * columns + c]! ** 2;
    return Math.sqrt(sum / columns);
  });
}

/** That of the largest row's size, 0 for usual ones and for zeros. */
function exponentOf(weights: Matrix): number {
  const largest = rowSizes(weights).reduce((most, size) => Math.max(most, size), 0);
  const exponent = largest > 0 ? Math.round(Math.log2(largest)) : 0;
  return Math.abs(exponent) > USUAL_EXPONENT ? exponent : 0;
}

const scaledBy = ({ rows, columns, data }: Matrix, factor: number) =>
  matrix(
    rows,
    columns,
    data.map((value) => value * factor),
  );

/** Groups of inputs [n * k / inGroup, inGroup], divided by their row's scale. */
function scaledGroups({ inGroup, k, n }: AqlmForm, weights: Matrix, scales: Float32Array): Matrix {
  const data = new Float32Array(n * k);
  for (let r = 0; r < n; r++) for (let c = 0; c < k; c++) data[r * k + c] = weights.data[r * k + c]! / scales[r]!;
  return matrix((n * k) / inGroup, inGroup, data);
}

/** H with a share of its mean diagonal added, divided by that mean. */
function damped({ rows, columns, data }: Matrix): Matrix {
  let mean = 0;
  for (let i = 0; i < rows; i++) mean += data[i * rows + i]! / rows;
  const result = matrix(
    rows,
    columns,
    data.map((value) => value / Math.max(mean, 1e-30)),
  );
  for (let i = 0; i < rows; i++) result.data[i * rows + i]! += DAMPING;
  return result;
}

/** Sums of vectors [n, k], before scales. */
function decode({ form, codes }: State, vectors: Float32Array): Matrix {
  const { n, k, inGroup, codebooks } = form;
  const { entries } = formCounts(form);
  const result = matrix(n, k);
  const count = (n * k) / inGroup;
  for (let g = 0; g < count; g++)
    for (let c = 0; c < codebooks; c++) {
      const from = (c * entries + codes[g * codebooks + c]!) * inGroup;
      for (let j = 0; j < inGroup; j++) result.data[g * inGroup + j]! += vectors[from + j]!;
    }
  return result;
}

/** The transpose of `decode`: values [n, k] summed into the vectors that they came from. */
function gather({ form, codes, books }: State, values: Matrix): Float64Array {
  const { n, k, inGroup, codebooks } = form;
  const { entries } = formCounts(form);
  const sums = new Float64Array(books.vectors.data.length);
  const count = (n * k) / inGroup;
  for (let g = 0; g < count; g++)
    for (let c = 0; c < codebooks; c++) {
      const to = (c * entries + codes[g * codebooks + c]!) * inGroup;
      for (let j = 0; j < inGroup; j++) sums[to + j]! += values.data[g * inGroup + j]!;
    }
  return sums;
}

function scaleRows({ rows, columns, data }: Matrix, scales: Float32Array): Matrix {
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) data[r * columns + c]! *= scales[r]!;
  return matrix(rows, columns, data);
}

const weighted = (values: Matrix, hessian: Matrix | null) => (hessian ? multiplyTransposed(values, hessian) : values);

/** Conjugate gradients on the vectors of all codebooks at once, the codes staying: a least squares problem. */
function fitCodebooks(state: State): void {
  const { weights, scales, hessian, books } = state;
  const apply = (vectors: Float32Array) =>
    gather(state, scaleRows(copy(weighted(scaleRows(decode(state, vectors), scales), hessian)), scales));
  const x = Float64Array.from(books.vectors.data);
  const wanted = gather(state, scaleRows(copy(weighted(weights, hessian)), scales));
  const current = apply(books.vectors.data);
  const residual = wanted.map((value, i) => value - current[i]!);
  const direction = Float64Array.from(residual);
  let size = dot(residual, residual);
  const enough = 1e-10 * dot(wanted, wanted);
  for (let step = 0; step < GRADIENT_STEPS && size > enough; step++) {
    const image = apply(Float32Array.from(direction));
    const length = size / Math.max(dot(direction, image), 1e-300);
    for (let i = 0; i < x.length; i++) {
      x[i]! += length * direction[i]!;
      residual[i]! -= length * image[i]!;
    }
    const next = dot(residual, residual);
    for (let i = 0; i < x.length; i++) direction[i] = residual[i]! + (next / size) * direction[i]!;
    size = next;
  }
  state.books = { ...books, vectors: matrix(books.vectors.rows, books.vectors.columns, Float32Array.from(x)) };
}

const copy = ({ rows, columns, data }: Matrix) => matrix(rows, columns, data.slice());

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

/** The scale of each row that brings its sums nearest to its weights. */
function fitScales(state: State): void {
  const { weights, scales, hessian, books } = state;
  const sums = decode(state, books.vectors.data);
  const images = weighted(sums, hessian);
  for (let r = 0; r < sums.rows; r++) {
    let [together, own] = [0, 0];
    for (let c = r * sums.columns; c < (r + 1) * sums.columns; c++) {
      together += weights.data[c]! * images.data[c]!;
      own += sums.data[c]! * images.data[c]!;
    }
    if (own > 0 && together > 0) scales[r] = together / own;
  }
}

/** New codes for one group of inputs after the other, each making up for the errors of the others. */
async function sweep(state: State, turn: () => Promise<void>): Promise<void> {
  const { form, weights, scales } = state;
  const { n, k, inGroup, codebooks } = form;
  const errors = scaleRows(decode(state, state.books.vectors.data), scales);
  for (let i = 0; i < errors.data.length; i++) errors.data[i] = weights.data[i]! - errors.data[i]!;
  const groupCodes = codeArray(form.bits, n * codebooks);
  for (let group = 0; group < k / inGroup; group++) {
    const { targets, lower } = groupTargets(state, errors, group);
    searchCodes(whitened(state.books, lower), targets, groupCodes);
    for (let r = 0; r < n; r++)
      for (let c = 0; c < codebooks; c++)
        state.codes[((r * k) / inGroup + group) * codebooks + c] = groupCodes[r * codebooks + c]!;
    updateErrors(state, errors, group);
    if ((group + 1) % STEP_GROUPS === 0 || group + 1 === k / inGroup) await turn();
  }
}

/**
 * Targets of a group in the metric of its block of H = L L^T: L^T (w + H^-1 b) / scale, where b is what the errors of
 * the other groups do to this one.
 */
function groupTargets(
  { form, weights, hessian, scales }: State,
  errors: Matrix,
  group: number,
): { targets: Matrix; lower: Float64Array } {
  const { n, k, inGroup } = form;
  const first = group * inGroup;
  const rows = matrix(inGroup, k, hessian!.data.subarray(first * k, (first + inGroup) * k));
  const block = Float64Array.from(columnsOf(rows, first, inGroup).data);
  const lower = cholesky(block.slice(), inGroup);
  const pulls = multiplyTransposed(errors, rows).data;
  const targets = matrix(n, inGroup);
  const b = new Float64Array(inGroup);
  for (let r = 0; r < n; r++) {
    for (let j = 0; j < inGroup; j++) {
      let own = 0;
      for (let i = 0; i < inGroup; i++) own += errors.data[r * k + first + i]! * block[i * inGroup + j]!;
      b[j] = pulls[r * inGroup + j]! - own;
    }
    solveCholesky(lower, inGroup, b, 1);
    for (let j = 0; j < inGroup; j++) {
      let sum = 0;
      for (let i = j; i < inGroup; i++) sum += lower[i * inGroup + j]! * (weights.data[r * k + first + i]! + b[i]!);
      targets.data[r * inGroup + j] = sum / scales[r]!;
    }
  }
  return { targets, lower };
}

/** Codebooks with every vector v as L^T v. */
function whitened({ vectors, ...books }: Codebooks, lower: Float64Array): Codebooks {
  const size = vectors.columns;
  const result = matrix(vectors.rows, size);
  for (let e = 0; e < vectors.rows; e++)
    for (let j = 0; j < size; j++) {
      let sum = 0;
      for (let i = j; i < size; i++) sum += lower[i * size + j]! * vectors.data[e * size + i]!;
      result.data[e * size + j] = sum;
    }
  return { ...books, vectors: result };
}

function updateErrors({ form, weights, codes, scales, books }: State, errors: Matrix, group: number): void {
  const { n, k, inGroup, codebooks } = form;
  const { entries } = formCounts(form);
  for (let r = 0; r < n; r++)
    for (let j = 0; j < inGroup; j++) {
      let sum = 0;
      for (let c = 0; c < codebooks; c++) {
        const code = codes[((r * k) / inGroup + group) * codebooks + c]!;
        sum += books.vectors.data[(c * entries + code) * inGroup + j]!;
      }
      const at = r * k + group * inGroup + j;
      errors.data[at] = weights.data[at]! - scales[r]! * sum;
    }
}

/** Rounds to f16; the scales are fitted to the rounded vectors. */
function finished(state: State): AqlmWeights {
  const { form, books, scales, exponent } = state;
  const table = f16Table();
  const vectors = Uint16Array.from(books.vectors.data, f32ToF16);
  const { rows, columns } = books.vectors;
  const rounded = Float32Array.from(vectors, (bits) => table[bits]!);
  state.books = { ...books, vectors: matrix(rows, columns, rounded) };
  fitScales(state);
  const isUsual = exponent === 0;
  return {
    ...form,
    codes: state.codes,
    vectors,
    scales: isUsual ? Uint16Array.from(scales, f32ToF16) : scales.map((scale) => scale * 2 ** exponent),
  };
}
