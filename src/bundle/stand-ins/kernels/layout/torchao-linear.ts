/** Stand-in for programs without weights in TorchAO's layouts. */
import type * as original from "../../../../kernels/layout/torchao-linear.ts";

export const TORCHAO_MAGIC: typeof original.TORCHAO_MAGIC = 6712;
export const TORCHAO_HEADER_BYTES: typeof original.TORCHAO_HEADER_BYTES = 64;
const absent = "weights in TorchAO's layout, which the program of this bundle does not have";
export const torchaoUniversal = {
  name: "torchao_universal",
  nr: 8,
  refusal: () => absent,
} as unknown as typeof original.torchaoUniversal;
export const readTorchaoHeader: typeof original.readTorchaoHeader = () => {
  throw new RangeError(absent);
};
