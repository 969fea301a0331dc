import { InvalidFileError } from "../errors.ts";
import { type Tensor, toFloat32 } from "../tensor.ts";

/** A tensor of `folder` as float32. InvalidFileError for NaN or infinity, which says that `what` was expected finite. */
export function finiteFloats(folder: string, name: string, tensor: Tensor, what: string): Float32Array {
  const values = toFloat32(tensor);
  const at = values.findIndex((value) => !Number.isFinite(value));
  if (at >= 0)
    throw new InvalidFileError(folder, `tensor ${name}: expected finite ${what} but found ${values[at]} at ${at}`);
  return values;
}
