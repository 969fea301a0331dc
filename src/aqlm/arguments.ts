/** Arguments of AQLM's kernels, validated by the operators. */
import type { Floats } from "./form.ts";
import type { OpenCodes } from "./layout.ts";

/** y [m, n] = x [m, k] times AQLM weights [n, k] transposed, plus bias [n]. */
export interface AqlmArgs {
  readonly m: number;
  readonly x: Float32Array;
  readonly codes: OpenCodes;
  /** [codebooks, 2^bits, outGroup, inGroup] */
  readonly vectors: Floats;
  /** [n / outGroup] */
  readonly scales: Floats;
  readonly bias: Float32Array | null;
  readonly y: Float32Array;
}

/**
 * What native kernels are called with, in this order: `npm run families` writes the names to native/aqlm/arguments.h.
 * Vectors and scales are halves where the number says 1.
 */
export const aqlmNames = {
  scalars: ["m", "halfVectors", "halfScales", "hasBias"],
  buffers: ["x", "codes", "vectors", "scales", "bias", "y"],
} as const;
