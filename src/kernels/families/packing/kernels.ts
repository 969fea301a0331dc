/** Kernels that pack weights. Best first: the reference fits everything and is last. */
import { int4PackReference } from "./int4-reference.ts";

export const int4Pack = [int4PackReference];
