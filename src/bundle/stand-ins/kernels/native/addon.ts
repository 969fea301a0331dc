/** Native code is not bundled: WebAssembly serves. */
import type * as original from "../../../../kernels/native/addon.ts";

export const nativeAddon: typeof original.nativeAddon = () => null;
export const missingAddon: typeof original.missingAddon = () => "bundles have none";
