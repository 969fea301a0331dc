/** Stand-in without checks, since bundles only assemble this package's kernels. */
import type * as original from "../../../../../kernels/wasm/assembler/immediates.ts";

export const checkImmediates: typeof original.checkImmediates = () => {};
export const checkConstant: typeof original.checkConstant = () => {};
export const checkBytes: typeof original.checkBytes = () => {};
export const checkLanes: typeof original.checkLanes = () => {};
export const checkNarrow: typeof original.checkNarrow = () => {};
export const checkPages: typeof original.checkPages = () => {};
