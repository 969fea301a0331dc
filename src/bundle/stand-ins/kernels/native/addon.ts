/** Stand-in without native code, which is not bundled: WebAssembly kernels serve. */
import type * as original from "../../../../kernels/native/addon.ts";

export const nativeAddon: typeof original.nativeAddon = () => null;
export const missingAddon: typeof original.missingAddon = () => "bundles have none";
