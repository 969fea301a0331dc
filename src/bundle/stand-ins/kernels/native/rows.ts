/** Stand-in without native code, which is not bundled: WebAssembly kernels serve. */
import { UnsupportedError } from "../../../../errors.ts";
import type * as original from "../../../../kernels/native/rows.ts";

export const hasNative: typeof original.hasNative = () => false;
export const nativeFeatures: typeof original.nativeFeatures = () => [];
export const nativeKernels: typeof original.nativeKernels = () => [];
export const loadKernelsBesideAddon: typeof original.loadKernelsBesideAddon = () => undefined;
export const loadNativeKernels: typeof original.loadNativeKernels = (path) => {
  throw new UnsupportedError(`${path}: kernels in C++ need the native addon, which bundles do not have`);
};
