/** Rounds float64 tensors, as training in double precision stores them, to float32, in which models are computed. */
import { type Tensor, toFloat32 } from "../tensor.ts";
import type { OpenTensors } from "./tensor-source.ts";

/** The source `base` with float64 tensors rounded to float32 as they are read. */
export function withFloat32Doubles(base: OpenTensors): OpenTensors {
  const rounded = (tensor: Tensor): Tensor =>
    tensor.dtype === "f64" ? { ...tensor, dtype: "f32", data: toFloat32(tensor) } : tensor;
  return {
    ...base,
    info(name) {
      const info = base.info(name);
      return info.dtype === "f64" ? { ...info, dtype: "f32" } : info;
    },
    read: async (name) => rounded(await base.read(name)),
    readRows: async (name, firstRow, rowCount) => rounded(await base.readRows(name, firstRow, rowCount)),
    storedType: (name) => base.storedType?.(name) ?? base.info(name).dtype,
  };
}
