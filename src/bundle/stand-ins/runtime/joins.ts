/** Calls are joined for native kernels only. */
import type * as original from "../../../runtime/joins.ts";

export const joinCalls: typeof original.joinCalls = () => null;
