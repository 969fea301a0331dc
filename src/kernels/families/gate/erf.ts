/** The error function in double precision. */

/** erf(x) by its series near 0 and a continued fraction beyond; Abramowitz and Stegun 7.1.26 is too inaccurate for floats. */
export function erf(x: number): number {
  const a = Math.abs(x);
  if (a > 6) return Math.sign(x);
  if (a < 2.5) {
    let term = a;
    let total = a;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(total) && n < 100; n++) {
      term *= (-a * a) / n;
      total += term / (2 * n + 1);
    }
    return (Math.sign(x) * 2 * total) / Math.sqrt(Math.PI);
  }
  let fraction = 0;
  for (let n = 60; n >= 1; n--) fraction = n / 2 / (a + fraction);
  return Math.sign(x) * (1 - Math.exp(-a * a) / (Math.sqrt(Math.PI) * (a + fraction)));
}
