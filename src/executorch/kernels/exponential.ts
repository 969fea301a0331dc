/** exp of float32 values with the rounding of glibc, which ExecuTorch's portable kernels call on Linux. */
import { roundHalfEven } from "../../rounding.ts";

/** Steps into which a power of two is divided. */
const PARTS = 32;
/** Coefficients of r^3, r^2, r in 2^(r / 32) - 1 for r in -1/2 .. 1/2, as in glibc since 2.27 (sysdeps/ieee754/flt-32). */
const CUBIC = 0.05550361559341535 / PARTS ** 3;
const SQUARE = 0.2402284522445722 / PARTS ** 2;
const LINEAR = 0.6931471806916203 / PARTS;

/** e^x, within 0.502 units in the last place of a float32. */
export function exp32(x: number): number {
  if (!(Math.abs(x) < 88)) return Math.fround(Math.exp(x));
  const scaled = x * PARTS * Math.LOG2E;
  const whole = roundHalfEven(scaled);
  const r = scaled - whole;
  return Math.fround(((CUBIC * r + SQUARE) * r * r + (LINEAR * r + 1)) * 2 ** (whole / PARTS));
}
