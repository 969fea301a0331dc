/** quantized_decomposed operators: lookup of packed embeddings, and quantization of rows at run time. */
import { InvalidArgumentError } from "../../errors.ts";
import { roundHalfEven } from "../../rounding.ts";
import type { Tensor } from "../../tensor.ts";
import { denseKernel, numbersOf, storeInto } from "./dense.ts";

export interface QuantizedEmbeddingArgs {
  /** Bits of a weight: 2, 4 or 8. */
  readonly bits: number;
  /** Packed bytes [rows, dim * bits / 8]: see `fieldAt`. */
  readonly weight: Tensor;
  /** Scales [rows] or [rows, groups]. */
  readonly scales: Tensor;
  readonly zeros: Tensor | null;
  readonly indices: Tensor;
  /** Embeddings [..., dim]. */
  readonly out: Tensor;
}

/**
 * The integer of a column: of 4 bits, the even column is the high half; of 2 bits, columns go from the lowest bits up;
 * minus 2^(bits - 1).
 */
function fieldAt(bytes: ArrayLike<number>, row: number, column: number, bits: number): number {
  if (bits === 8) return bytes[row + column]!;
  if (bits === 4) return ((bytes[row + (column >> 1)]! >> (column & 1 ? 0 : 4)) & 15) - 8;
  return ((bytes[row + (column >> 2)]! >> (2 * (column & 3))) & 3) - 2;
}

export const quantizedEmbeddingReference = denseKernel<QuantizedEmbeddingArgs>("embedding_decomposed", (args) => {
  const { bits, weight, indices, out } = args;
  const bytes = weight.data as Uint8Array;
  const scales = numbersOf(args.scales);
  const zeros = args.zeros ? numbersOf(args.zeros) : null;
  const rowBytes = weight.shape[1]!;
  const dim = out.shape.at(-1)!;
  const groups = args.scales.shape[1] ?? 1;
  const groupSize = dim / groups;
  const store = storeInto(out);
  const rows = weight.shape[0]!;
  for (const [i, index] of numbersOf(indices).entries()) {
    if (!(index >= 0 && index < rows))
      throw new InvalidArgumentError(`embedding: expected an id in 0..${rows - 1} but found ${index}`);
    for (let column = 0; column < dim; column++) {
      const group = index * groups + Math.floor(column / groupSize);
      const q = fieldAt(bytes, index * rowBytes, column, bits) - (zeros?.[group] ?? 0);
      store(i * dim + column, Math.fround(q * scales[group]!));
    }
  }
});

const QMIN = -128;
const QMAX = 127;
/** Least scale, below which PyTorch widens the range. */
const SMALL_SCALE = 6.1e-5;

/** Scale and zero point of a range that includes 0, as in PyTorch's ChooseQuantizationParams. */
function chooseParameters(least: number, most: number): { scale: number; zero: number } {
  let min = Math.min(least, 0);
  let max = Math.max(most, 0);
  let scale = (max - min) / (QMAX - QMIN);
  if (Math.fround(scale) === 0 || !Number.isFinite(1 / scale)) scale = 0.1;
  if (scale < SMALL_SCALE) {
    const wider = SMALL_SCALE / scale;
    scale = SMALL_SCALE;
    if (min === 0) max = SMALL_SCALE * (QMAX - QMIN);
    else if (max === 0) min = -SMALL_SCALE * (QMAX - QMIN);
    else [min, max] = [min * wider, max * wider];
  }
  const fromMin = QMIN - min / scale;
  const fromMax = QMAX - max / scale;
  const errorOfMin = Math.abs(QMIN) + Math.abs(min / scale);
  const errorOfMax = Math.abs(QMAX) + Math.abs(max / scale);
  const zero = errorOfMin < errorOfMax ? fromMin : fromMax;
  return { scale, zero: Math.min(QMAX, Math.max(QMIN, roundHalfEven(zero))) };
}

/** Computes scales and zero points [..., 1] of the rows of x. */
export function chooseRowParameters(x: Tensor, scales: Tensor, zeros: Tensor): void {
  const values = numbersOf(x);
  const dim = x.shape.at(-1)!;
  const storeScale = storeInto(scales);
  const storeZero = storeInto(zeros);
  for (let row = 0; row * dim < values.length; row++) {
    const part = values.subarray(row * dim, (row + 1) * dim) as Float32Array;
    const min = part.reduce((least, value) => Math.min(least, value), Number.POSITIVE_INFINITY);
    const max = part.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
    const { scale, zero } = chooseParameters(min, max);
    storeScale(row, scale);
    storeZero(row, zero);
  }
}

export interface QuantizeRowsArgs {
  readonly x: Tensor;
  readonly scales: Tensor;
  readonly zeros: Tensor;
  readonly min: number;
  readonly max: number;
  readonly out: Tensor;
}

/** out = clamp(round(x / scale) + zero, min, max). */
export const quantizeRowsReference = denseKernel<QuantizeRowsArgs>("quantize_rows", (args) => {
  const { x, min, max, out } = args;
  const values = numbersOf(x);
  const scales = numbersOf(args.scales);
  const zeros = numbersOf(args.zeros);
  const dim = x.shape.at(-1)!;
  const store = storeInto(out);
  for (let i = 0; i < values.length; i++) {
    const row = Math.floor(i / dim);
    const inverse = Math.fround(1 / Math.fround(scales[row]!));
    const q = roundHalfEven(Math.fround(values[i]! * inverse)) + zeros[row]!;
    store(i, Math.min(max, Math.max(min, q)));
  }
});

/** out = (q - zero) * scale. */
export const dequantizeRowsReference = denseKernel<QuantizeRowsArgs>("dequantize_rows", ({ x, scales, zeros, out }) => {
  const values = numbersOf(x);
  const scaleOf = numbersOf(scales);
  const zeroOf = numbersOf(zeros);
  const dim = x.shape.at(-1)!;
  const store = storeInto(out);
  for (let i = 0; i < values.length; i++) {
    const row = Math.floor(i / dim);
    store(i, (values[i]! - zeroOf[row]!) * scaleOf[row]!);
  }
});
