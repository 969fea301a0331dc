/** Reference kernels of the sampler's passes over the logits. All kernels give the same bits. */

import { type Kernel, referenceRow } from "../../contract.ts";
import { BLOCK_TOKENS, type VocabularyMaximaArgs, type VocabularyWeightsArgs } from "./fields.ts";

export const vocabularyMaximaReference: Kernel<VocabularyMaximaArgs> = {
  ...referenceRow,
  name: "vocabulary_maxima_f32_1x1x1_reference",
  bind: (args) => () => {
    for (let block = 0; block < args.maxima.length; block++) {
      mask(args, block);
      args.maxima[block] = largest(args.x, block * BLOCK_TOKENS);
    }
  },
};

function mask({ x, allowed }: VocabularyMaximaArgs, block: number): void {
  const words = BLOCK_TOKENS / 32;
  for (let word = block * words; word < (block + 1) * words; word++) {
    const bits = allowed[word]! | 0;
    if (bits === -1) continue;
    for (let bit = 0; bit < 32; bit++) if (((bits >>> bit) & 1) === 0) x[32 * word + bit] = Number.NEGATIVE_INFINITY;
  }
}

function largest(x: Float32Array, first: number): number {
  let most = Number.NEGATIVE_INFINITY;
  for (let i = first; i < first + BLOCK_TOKENS; i++) {
    const value = x[i]!;
    if (value > most) most = value;
    else if (Number.isNaN(value)) return value;
  }
  return most;
}

/**
 * Lanes of a sum: lane l adds elements l, l + 16, … of a block; then the upper half is added to the lower until one lane is
 * left.
 */
export const SUM_LANES = 16;
/** Adding and subtracting this rounds a smaller float32 to an integer, ties to even. */
export const WHOLE = 1.5 * 2 ** 23;
/** Smaller exponents give the weight 0, so that all other weights are normal numbers. */
export const LEAST_EXPONENT = -125;
/** Coefficients of (2^f - 1) / f for |f| <= 1/2, highest power first: Chebyshev interpolation, a relative error of 1e-7. */
export const POWER = [
  0.00015453163359779865, 0.0013390863314270973, 0.009618083015084267, 0.055503569543361664, 0.24022650718688965,
  0.6931471824645996,
] as const;

const round = Math.fround;
/** 2^-n for n from 0 on. */
const powers = Float64Array.from({ length: 1 - LEAST_EXPONENT }, (_, n) => 2 ** -n);

/** 2^exponent for a float32 exponent of at most 0; every operation is rounded to float32. */
function power(exponent: number): number {
  if (!(exponent >= LEAST_EXPONENT)) return 0;
  const whole = round(round(exponent + WHOLE) - WHOLE);
  const rest = exponent - whole;
  let sum = round(round(POWER[0] * rest) + POWER[1]);
  sum = round(round(sum * rest) + POWER[2]);
  sum = round(round(sum * rest) + POWER[3]);
  sum = round(round(sum * rest) + POWER[4]);
  sum = round(round(sum * rest) + POWER[5]);
  return round(round(sum * rest) + 1) * powers[-whole]!;
}

export const vocabularyWeightsReference: Kernel<VocabularyWeightsArgs> = {
  ...referenceRow,
  name: "vocabulary_weights_f32_1x1x1_reference",
  bind: (args) => {
    const lanes = new Float32Array(SUM_LANES);
    return () => {
      const { maxima, settings, sums } = args;
      for (let block = 0; block < maxima.length; block++)
        sums[block] = maxima[block]! >= settings[2]! ? weigh(args, block * BLOCK_TOKENS, lanes) : 0;
    };
  },
};

/** Computes the weights of a block and returns their sum. */
function weigh({ x, settings, weights }: VocabularyWeightsArgs, first: number, lanes: Float32Array): number {
  const [most, scale, least] = settings as unknown as readonly [number, number, number];
  lanes.fill(0);
  for (let i = first; i < first + BLOCK_TOKENS; i++) {
    const value = x[i]!;
    const weight = value >= least ? power(round(round(value - most) * scale)) : 0;
    weights[i] = weight;
    lanes[i % SUM_LANES]! += weight;
  }
  for (let width = SUM_LANES / 2; width >= 1; width /= 2)
    for (let lane = 0; lane < width; lane++) lanes[lane]! += lanes[lane + width]!;
  return lanes[0]!;
}
