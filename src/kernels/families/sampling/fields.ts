/** What kernels of sampling are called with. */
import { type ArgumentsOf, inout, input, list, output } from "../../declaration.ts";

/** Logits of a block; the last block of a row is filled up with -Infinity. */
export const BLOCK_TOKENS = 128;

/** The largest of each block of logits, NaN where one of them is; logits that are not allowed become -Infinity first. */
export const vocabularyMaximaFields = {
  /** Changed where a logit is not allowed. */
  x: inout("f32", "blocks", BLOCK_TOKENS),
  /** Bit i % 32 of word i / 32 is set where logit i is allowed. */
  allowed: input("u32", "blocks", BLOCK_TOKENS / 32),
  maxima: list("f32", "blocks", "write"),
};
export type VocabularyMaximaArgs = ArgumentsOf<typeof vocabularyMaximaFields>;

/**
 * Weights 2^((logit - largest) * scale) of logits of at least `least`, 0 of others, and their sums, as the reference kernel
 * computes them, bit for bit. Weights of blocks without such a logit are left alone; their sums are 0.
 */
export const vocabularyWeightsFields = {
  /** Without NaN or Infinity. */
  x: input("f32", "blocks", BLOCK_TOKENS),
  maxima: list("f32", "blocks"),
  /** The largest logit, which is finite; a scale, which is a normal number over 0; the least logit. */
  settings: input("f32", 3),
  weights: inout("f32", "blocks", BLOCK_TOKENS),
  sums: output("f32", "blocks"),
};
export type VocabularyWeightsArgs = ArgumentsOf<typeof vocabularyWeightsFields>;
