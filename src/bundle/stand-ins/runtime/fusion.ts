/** Stand-in that fuses nothing: only native kernels have fused calls. */
import type * as original from "../../../runtime/fusion.ts";

export const fuseCalls: typeof original.fuseCalls = () => null;
