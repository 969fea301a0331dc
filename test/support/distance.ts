/** How far results are from what was expected of them as a whole. */

/** Of two vectors. */
export interface Distance {
  /** |found - expected| / |expected| */
  readonly relative: number;
  readonly correlation: number;
}

/** In double precision; both have the same length. */
export function distance(found: ArrayLike<number>, expected: ArrayLike<number>): Distance {
  const count = expected.length;
  const mean = (values: ArrayLike<number>) => Array.from(values).reduce((sum, value) => sum + value, 0) / count;
  const [foundMean, expectedMean] = [mean(found), mean(expected)];
  let [error, size, together, foundSquares, expectedSquares] = [0, 0, 0, 0, 0];
  for (let i = 0; i < count; i++) {
    const [a, b] = [found[i]! - foundMean, expected[i]! - expectedMean];
    error += (found[i]! - expected[i]!) ** 2;
    size += expected[i]! ** 2;
    together += a * b;
    foundSquares += a * a;
    expectedSquares += b * b;
  }
  return { relative: Math.sqrt(error / size), correlation: together / Math.sqrt(foundSquares * expectedSquares) };
}
