/** Candidates for the next token: the k largest logits, and a draw by weight. */
import { InvalidArgumentError } from "../errors.ts";
import { BLOCK_TOKENS } from "../kernels/families/sampling/fields.ts";
import type { VocabularyPasses } from "../kernels/families/sampling/vocabulary.ts";
import { findThreshold, sorted, ThresholdRoom } from "./threshold.ts";

const LOWEST = -(2 - 2 ** -23) * 2 ** 127;
/** Stride of the sample of logits from which a lower bound of the `count`-th largest is estimated. */
const SAMPLED = 16;

/** Finds the k largest logits of one row at a time, once its block maxima are known. */
class BestTokens {
  readonly #passes: VocabularyPasses;
  readonly #ids: Int32Array;
  readonly #room: ThresholdRoom;

  constructor(passes: VocabularyPasses) {
    this.#passes = passes;
    this.#ids = new Int32Array(passes.length);
    this.#room = new ThresholdRoom(passes.length);
  }

  /** Ids of the `count` largest logits, largest first; fewer where not so many are above -Infinity. */
  ranked(count: number): Int32Array {
    return sorted(this.#gather(this.leastOf(count)), this.#passes.logits);
  }

  /**
   * The `count`-th largest logit, or the least one above -Infinity where there are fewer. Logits equal to it beyond the first
   * `count` are set to -Infinity.
   */
  leastOf(count: number): number {
    const { logits } = this.#passes;
    let ids = this.#gather(this.#boundOf(count));
    if (ids.length < count) ids = this.#gather(LOWEST);
    const { score, left } = findThreshold(ids, logits, count, this.#room);
    for (const id of left) logits[id] = Number.NEGATIVE_INFINITY;
    return score;
  }

  /** Ids, ascending, of the tokens with logits of at least `least`, which is finite. */
  #gather(least: number): Int32Array {
    const { maxima, logits, length } = this.#passes;
    const ids = this.#ids;
    let count = 0;
    for (let block = 0; block < maxima.length; block++) {
      if (maxima[block]! < least) continue;
      const end = Math.min(length, (block + 1) * BLOCK_TOKENS);
      for (let id = block * BLOCK_TOKENS; id < end; id++) if (logits[id]! >= least) ids[count++] = id;
    }
    return ids.subarray(0, count);
  }

  /**
   * A lower bound of the `count`-th largest logit: the `count`-th largest block maximum; for more tokens than blocks, an
   * estimate from a sample that fewer than `count` tokens may reach.
   */
  #boundOf(count: number): number {
    const { maxima, logits, length } = this.#passes;
    const isFew = count <= maxima.length;
    const scores = isFew ? maxima : logits;
    const end = isFew ? maxima.length : length;
    let found = 0;
    for (let i = 0; i < end; i += isFew ? 1 : SAMPLED) if (scores[i]! >= LOWEST) this.#ids[found++] = i;
    const wanted = isFew ? count : Math.ceil((1.25 * count) / SAMPLED) + SAMPLED;
    return found < wanted ? LOWEST : findThreshold(this.#ids.subarray(0, found), scores, wanted, this.#room).score;
  }
}

const shared = new WeakMap<VocabularyPasses, BestTokens>();

/** The BestTokens of these passes. All callers share its memory and use it one after the other. */
export function bestTokens(passes: VocabularyPasses): BestTokens {
  const best = shared.get(passes) ?? new BestTokens(passes);
  shared.set(passes, best);
  return best;
}

/** Sum of all weights of the last weighing. */
export function totalWeight({ sums }: VocabularyPasses): number {
  let total = 0;
  for (let block = 0; block < sums.length; block++) total += sums[block]!;
  return total;
}

/**
 * The first token, by id, at which the cumulative sum of the last weights exceeds `share` (0 to 1) of their total; null should
 * rounding leave none.
 */
export function tokenAt(passes: VocabularyPasses, share: number): number | null {
  const { sums, weights } = passes;
  let rest = share * totalWeight(passes);
  let last: number | null = null;
  for (let block = 0; block < sums.length; block++) {
    const sum = sums[block]!;
    if (sum === 0) continue;
    if (rest >= sum) {
      rest -= sum;
      continue;
    }
    for (let id = block * BLOCK_TOKENS; id < (block + 1) * BLOCK_TOKENS; id++) {
      if (weights[id] === 0) continue;
      rest -= weights[id]!;
      last = id;
      if (rest < 0) return id;
    }
    return last;
  }
  return null;
}

/** Number of tokens with an id below `end` whose logit equals `logit`. */
export function countEqual({ maxima, logits }: VocabularyPasses, logit: number, end: number): number {
  let count = 0;
  for (let block = 0; block * BLOCK_TOKENS < end; block++) {
    if (maxima[block]! < logit) continue;
    const last = Math.min(end, (block + 1) * BLOCK_TOKENS);
    for (let id = block * BLOCK_TOKENS; id < last; id++) if (logits[id] === logit) count++;
  }
  return count;
}

/** Sets logits equal to `logit` to -Infinity from the token `first` on. */
export function removeEqual({ logits, length }: VocabularyPasses, logit: number, first: number): void {
  for (let id = first; id < length; id++) if (logits[id] === logit) logits[id] = Number.NEGATIVE_INFINITY;
}

/**
 * Id of the largest logit, the lowest id among equals, once block maxima are known. InvalidArgumentError when a logit is NaN or
 * Infinity, or when all are -Infinity.
 */
export function likeliest({ maxima, logits, length }: VocabularyPasses): number {
  let best = -1;
  let most = Number.NEGATIVE_INFINITY;
  const find = (block: number, isIt: (logit: number) => boolean) =>
    block * BLOCK_TOKENS + logits.subarray(block * BLOCK_TOKENS, (block + 1) * BLOCK_TOKENS).findIndex(isIt);
  for (let block = 0; block < maxima.length; block++) {
    const largest = maxima[block]!;
    if (largest > most) {
      most = largest;
      best = block;
    } else if (Number.isNaN(largest))
      throw new InvalidArgumentError(`logits: expected numbers but found NaN at id ${find(block, Number.isNaN)}`);
  }
  if (best < 0) throw new InvalidArgumentError(`logits: all ${length} are -Infinity, no token can follow`);
  const id = find(best, (logit) => logit === most);
  if (most === Number.POSITIVE_INFINITY)
    throw new InvalidArgumentError(`logits: expected finite numbers or -Infinity but found Infinity at id ${id}`);
  return id;
}
