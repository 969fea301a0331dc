/** Weights were packed when the program was exported. */
import type * as original from "../../../../kernels/layout/panel-pack.ts";

class NoPacker {
  constructor() {
    throw new RangeError("bundles pack no weights");
  }
}
export const GroupPacker = NoPacker as unknown as typeof original.GroupPacker;
