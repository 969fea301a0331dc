/** Log probabilities of tokens, from the model's own logits: before penalties, temperature and top-k, top-p or min-p. */
import type { Cpu } from "../kernels/contract.ts";
import { vocabularyPasses } from "../kernels/families/sampling/vocabulary.ts";
import { bestTokens, likeliest, totalWeight } from "./candidates.ts";

/** A token and the natural logarithm of its probability. */
export interface TokenProbability {
  /** Id of the token. */
  readonly id: number;
  /** Natural logarithm of its probability. */
  readonly logprob: number;
}

/** Log probabilities at one position: of the drawn token, and of the most likely ones, most likely first. */
export interface LogProbabilities extends TokenProbability {
  /** The most likely tokens, most likely first. */
  readonly top: readonly TokenProbability[];
}

/** Most tokens that a caller may ask for at each position. */
export const TOP_MAX = 100;

/**
 * log softmax(logits) of the token `id` and of the `count` most likely tokens, the lowest ids first among equals; fewer where
 * not so many are above -Infinity. The probabilities are summed from float32 weights: a logarithm is within 1e-6 of the exact
 * one. InvalidArgumentError when a logit is NaN or Infinity, or when all are -Infinity.
 */
export function logProbabilities(logits: Float32Array, id: number, count: number, cpu: Cpu): LogProbabilities {
  const passes = vocabularyPasses(logits.length, cpu);
  passes.logits.set(logits);
  passes.findMaxima(null);
  const largest = logits[likeliest(passes)]!;
  passes.weigh(largest, 1);
  const normalizer = largest + Math.log(totalWeight(passes));
  const of = (token: number): TokenProbability => ({ id: token, logprob: logits[token]! - normalizer });
  if (count === 0) return { ...of(id), top: [] };
  return { ...of(id), top: Array.from(bestTokens(passes).ranked(count), of) };
}
