/** How one row is made of the rows of a text, by the names of sentence-transformers' pooling modes. */

/** The first row, the last, the mean, the largest values, the sum over the root of their number, or the mean by place. */
export const poolings = ["cls", "lasttoken", "mean", "max", "mean_sqrt_len_tokens", "weightedmean"] as const;

export type Pooling = (typeof poolings)[number];

/** Whether a name is one of the ways to pool. */
export function isPooling(name: string): name is Pooling {
  return poolings.some((pooling) => pooling === name);
}
