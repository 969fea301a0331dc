/** Pooling: how the rows of a sequence become one, by the names of sentence-transformers' modes. */

/**
 * Pooling modes: the first row, the last, the mean, the maxima, the sum / sqrt(count), or the mean weighted by position.
 */
export const poolings = ["cls", "lasttoken", "mean", "max", "mean_sqrt_len_tokens", "weightedmean"] as const;

export type Pooling = (typeof poolings)[number];

/** Whether a name is a pooling mode. */
export function isPooling(name: string): name is Pooling {
  return poolings.some((pooling) => pooling === name);
}
