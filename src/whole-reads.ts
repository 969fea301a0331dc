/** Rows of a matrix that is only read whole, or whose rows would be read one by one. */

/**
 * A reader of rows `first` to `first` + `count` - 1 of `n` by `pick`. The matrix is read by the first call, and dropped when as
 * many rows as it has were asked for.
 */
export function readingWhole<D, R = D>(
  n: number,
  read: () => Promise<D>,
  pick: (whole: D, first: number, count: number) => R,
): (first: number, count: number) => Promise<R> {
  let whole: Promise<D> | null = null;
  let left = n;
  return async (first, count) => {
    whole ??= read();
    const reading = whole;
    left -= count;
    if (left <= 0) [whole, left] = [null, n];
    return pick(await reading, first, count);
  };
}
