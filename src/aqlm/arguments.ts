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
