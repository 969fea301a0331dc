/** Arguments of kernels of sampling. */
import { type ArgumentsOf, inout, input, list, output } from "../../declaration.ts";

/** Number of logits in a block; a row's last block is padded with -Infinity. */
export const BLOCK_TOKENS = 128;

/**
 * maxima [blocks] = the largest logit of each block, NaN if one of them is NaN. Logits that are not allowed become -Infinity
 * first.
 */
export const vocabularyMaximaFields = {
  /** Logits; those that are not allowed are overwritten. */
  x: inout("f32", "blocks", BLOCK_TOKENS),
  /** Bit i % 32 of word i / 32 is set where logit i is allowed. */
  allowed: input("u32", "blocks", BLOCK_TOKENS / 32),
  maxima: list("f32", "blocks", "write"),
};
export type VocabularyMaximaArgs = ArgumentsOf<typeof vocabularyMaximaFields>;

/**
 * weights = 2^((logit - largest) * scale) for logits of at least `least` and 0 for others, and their sums by block, bit for bit
 * as in the reference kernel. Blocks without such a logit keep their old weights; their sums are 0.
 */
export const vocabularyWeightsFields = {
  /** Logits without NaN or Infinity. */
  x: input("f32", "blocks", BLOCK_TOKENS),
  maxima: list("f32", "blocks"),
  /** The largest logit, finite; the scale, a positive normal number; the least logit. */
  settings: input("f32", 3),
  weights: inout("f32", "blocks", BLOCK_TOKENS),
  sums: output("f32", "blocks"),
};
export type VocabularyWeightsArgs = ArgumentsOf<typeof vocabularyWeightsFields>;
