import { InvalidArgumentError, InvalidFileError } from "../../errors.ts";
import type { LowBitTensor } from "../../formats/tensor-source.ts";
import { type Tensor, toFloat32 } from "../../tensor.ts";

/** A tensor of `folder` as float32. InvalidFileError for NaN or infinity, naming `what` should be finite. */
export function finiteFloats(folder: string, name: string, tensor: Tensor, what: string): Float32Array {
  const values = toFloat32(tensor);
  const at = values.findIndex((value) => !Number.isFinite(value));
  if (at >= 0)
    throw new InvalidFileError(folder, `tensor ${name}: expected finite ${what} but found ${values[at]} at ${at}`);
  return values;
}

/** Largest scale or minimum: larger ones, times 8-bit integers and summed, overflow float32. */
const SCALE_MAX = 2 ** 110;

function checkBounded(folder: string, name: string, what: string, values: Float32Array): void {
  const at = values.findIndex((value) => !(Math.abs(value) <= SCALE_MAX));
  if (at >= 0)
    throw new InvalidFileError(folder, `tensor ${name}: expected ${what} of at most 2^110 but found ${values[at]}`);
}

/**
 * Low-bit weights of `folder` whose scales and minima are checked when read: InvalidFileError for NaN, infinity, and
 * numbers whose products would overflow float32.
 */
export function finiteLowBit(folder: string, name: string, found: LowBitTensor): LowBitTensor {
  const { minima } = found;
  return {
    ...found,
    async rows(first, count) {
      const weights = await found.rows(first, count);
      checkBounded(folder, name, "scales", weights.scales);
      return weights;
    },
    ...(minima && {
      minima: {
        ...minima,
        async rows(first, count) {
          const values = await minima.rows(first, count);
          checkBounded(folder, name, "minima", toFloat32(values));
          return values;
        },
      },
    }),
  };
}

/** InvalidArgumentError for inputs of a layer with NaN or infinity, which their squares then have, too. */
export function checkFiniteInputs(name: string, squares: Float32Array): void {
  if (squares.every((value) => Number.isFinite(value))) return;
  throw new InvalidArgumentError(
    `${name}: expected finite inputs of the text to calibrate with but found NaN or infinity`,
  );
}
