/** Stand-in that packs nothing: weights were packed when the program was exported. */
import type * as original from "../../../../kernels/layout/panel-packer.ts";

class NoPacker {
  constructor() {
    throw new RangeError("bundles pack no weights");
  }
}
export const PanelPacker = NoPacker as unknown as typeof original.PanelPacker;
export const checkFactors: typeof original.checkFactors = () => {
  throw new RangeError("bundles pack no weights");
};
