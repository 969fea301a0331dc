/** Calls are fused for native kernels only. */
import type * as original from "../../../runtime/fusion.ts";

export const fuseCalls: typeof original.fuseCalls = () => null;
