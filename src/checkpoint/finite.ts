import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import type { Matrix } from "../matrix.ts";
import { type Tensor, toFloat32 } from "../tensor.ts";

/** A tensor of `folder` as float32. InvalidFileError for NaN or infinity, which says that `what` was expected finite. */
export function finiteFloats(folder: string, name: string, tensor: Tensor, what: string): Float32Array {
  const values = toFloat32(tensor);
  const at = values.findIndex((value) => !Number.isFinite(value));
  if (at >= 0)
    throw new InvalidFileError(folder, `tensor ${name}: expected finite ${what} but found ${values[at]} at ${at}`);
  return values;
}

/** Refuses inputs of a layer with NaN or infinity by their `hessian` X^T X, whose diagonal has it then: InvalidArgumentError. */
export function checkFiniteInputs(name: string, { columns, data }: Matrix): void {
  for (let c = 0; c < columns; c++)
    if (!Number.isFinite(data[c * columns + c]))
      throw new InvalidArgumentError(
        `${name}: expected finite inputs of the text to calibrate with but found NaN or infinity`,
      );
}
