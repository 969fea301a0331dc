/** Beam search for codes: which vectors, one of each codebook, sum up to something near a target. */
import { type Matrix, matrix, multiplyTransposed } from "lowbit/extension/checkpoint";

/** Codebooks side by side: [codebooks * entries, length]. */
export interface Codebooks {
  readonly codebooks: number;
  readonly entries: number;
  readonly vectors: Matrix;
}

/** Partial sums that are kept after each codebook. */
const BEAM = 8;

/** Products of all pairs of vectors, doubled; and squared lengths. */
interface Products {
  readonly cross: Matrix;
  readonly squares: Float32Array;
}

function productsOf({ vectors }: Codebooks): Products {
  const cross = multiplyTransposed(vectors, vectors);
  const squares = new Float32Array(vectors.rows);
  for (let i = 0; i < vectors.rows; i++) squares[i] = cross.data[i * vectors.rows + i]!;
  for (let i = 0; i < cross.data.length; i++) cross.data[i]! *= 2;
  return { cross, squares };
}

/** What a beam keeps: sum of the scores so far, and the codes. */
class Beam {
  readonly scores: Float64Array;
  readonly codes: Int32Array;
  count = 0;

  constructor(codebooks: number) {
    this.scores = new Float64Array(BEAM);
    this.codes = new Int32Array(BEAM * codebooks);
  }
}

/**
 * The codes [targets, codebooks] of the nearest sums found: |sum of vectors - target|^2 is least among BEAM partial sums
 * kept. Targets [count, length] are in the codebooks' own metric.
 */
export function searchCodes(books: Codebooks, targets: Matrix, codes: Uint8Array | Uint16Array): void {
  const { codebooks, entries } = books;
  const products = productsOf(books);
  const CHUNK = 4096;
  let [from, to] = [new Beam(codebooks), new Beam(codebooks)];
  for (let first = 0; first < targets.rows; first += CHUNK) {
    const count = Math.min(CHUNK, targets.rows - first);
    const { columns } = targets;
    const part = matrix(count, columns, targets.data.subarray(first * columns, (first + count) * columns));
    const dots = multiplyTransposed(part, books.vectors).data;
    for (let i = 0; i < count; i++) {
      const own = dots.subarray(i * codebooks * entries, (i + 1) * codebooks * entries);
      from.count = 1;
      from.scores[0] = 0;
      for (let c = 0; c < codebooks; c++) {
        extend({ books, products, dots: own, codebook: c }, from, to);
        [from, to] = [to, from];
      }
      let best = 0;
      for (let b = 1; b < from.count; b++) if (from.scores[b]! < from.scores[best]!) best = b;
      for (let c = 0; c < codebooks; c++) codes[(first + i) * codebooks + c] = from.codes[best * codebooks + c]!;
    }
  }
}

interface Extension {
  readonly books: Codebooks;
  readonly products: Products;
  /** Products of the target with all vectors. */
  readonly dots: Float32Array;
  readonly codebook: number;
}

/** Tries every vector of a codebook behind every partial sum, and keeps the best BEAM (or the best one, at the end). */
function extend({ books, products, dots, codebook }: Extension, from: Beam, to: Beam): void {
  const { codebooks, entries } = books;
  const { cross, squares } = products;
  const base = codebook * entries;
  const keep = codebook === codebooks - 1 ? 1 : BEAM;
  to.count = 0;
  let worst = Number.POSITIVE_INFINITY;
  for (let b = 0; b < from.count; b++) {
    const start = from.scores[b]!;
    for (let e = 0; e < entries; e++) {
      const index = base + e;
      let score = start + squares[index]! - 2 * dots[index]!;
      for (let c = 0; c < codebook; c++)
        score += cross.data[(c * entries + from.codes[b * codebooks + c]!) * cross.columns + index]!;
      if (to.count === keep && score >= worst) continue;
      worst = insert(to, keep, codebooks, { score, from, b, codebook, e });
    }
  }
}

interface Candidate {
  readonly score: number;
  readonly from: Beam;
  readonly b: number;
  readonly codebook: number;
  readonly e: number;
}

/** Puts a candidate in the place of the worst; returns the score that the next has to beat. */
function insert(to: Beam, keep: number, codebooks: number, { score, from, b, codebook, e }: Candidate): number {
  let slot = to.count;
  if (slot < keep) to.count++;
  else {
    slot = 0;
    for (let i = 1; i < keep; i++) if (to.scores[i]! > to.scores[slot]!) slot = i;
  }
  to.scores[slot] = score;
  for (let c = 0; c < codebook; c++) to.codes[slot * codebooks + c] = from.codes[b * codebooks + c]!;
  to.codes[slot * codebooks + codebook] = e;
  if (to.count < keep) return Number.POSITIVE_INFINITY;
  let worst = to.scores[0]!;
  for (let i = 1; i < keep; i++) if (to.scores[i]! > worst) worst = to.scores[i]!;
  return worst;
}
