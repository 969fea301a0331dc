/** Native code is not bundled: WebAssembly serves. */
import type * as original from "../../../../kernels/native/rows.ts";

export const hasNative: typeof original.hasNative = () => false;
export const nativeFeatures: typeof original.nativeFeatures = () => [];
