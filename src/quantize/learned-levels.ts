/** Codebooks learned from weights: k-means of the weights, each divided by the scale of its group. */
import { dequantize, groupCount, type QuantizedWeights } from "../quantized.ts";
import { codebooks, learnedLevelMax, oddZeroOf } from "./codebooks.ts";

/** Rows of a matrix [n, k], and the importance of errors in each of its columns; null if all count alike. */
export interface LevelSample {
  readonly n: number;
  readonly k: number;
  readonly values: Float32Array;
  readonly importance: Float32Array | null;
}

/** Quantizes a sample with a codebook. */
export type RoundSample = (sample: LevelSample, levels: Int8Array) => Promise<QuantizedWeights>;

/** Number of iterations; later ones gain less than a thousandth. */
const TURNS = 8;
/**
 * Learns 2^bits rising levels that minimize the sum of importance * error^2 of sample weights; their largest magnitude is 63,
 * or 127 for 4 bits: levels of at most 63 have 7 bits when they are made unsigned, which WebAssembly multiplies faster. Those
 * of 4 bits lie too close together around 0 for that: means that are rounded by up to half a level there are off in the same
 * way in many weights (KL 0.184 and 0.147 with levels up to 127, on SmolLM2-135M).
 *
 * Each iteration quantizes the samples with the levels, which chooses scales and integers; then each level becomes the mean of
 * its weights in units of their scales, weighted by importance times the square of the scale. It begins with `codebooks` and
 * returns the best levels that it saw.
 */
export async function learnLevels(
  samples: readonly LevelSample[],
  bits: number,
  round: RoundSample,
): Promise<Int8Array> {
  let levels = scaled(Array.from(codebooks[bits]!), bits);
  let best = levels;
  let least = Number.POSITIVE_INFINITY;
  const tried = new Set<string>();
  for (let turn = 0; turn < TURNS && !tried.has(levels.join()); turn++) {
    tried.add(levels.join());
    const sums = new LevelSums(bits);
    for (const sample of samples) sums.add(sample, await round(sample, levels));
    if (sums.error < least) [least, best] = [sums.error, levels];
    levels = sums.levels(levels);
  }
  return best;
}

/** Scales levels to the largest magnitude of so many bits; less, where the shift by the zero point of odd scales needs room. */
function scaled(levels: readonly number[], bits: number): Int8Array {
  const most = learnedLevelMax(bits);
  const zero = oddZeroOf(bits, most) ?? 0;
  const reach = (sign: number, limit: number) => Math.max(...levels.map((level) => (sign * level * most) / limit));
  const largest = Math.max(reach(1, most + Math.min(0, zero)), reach(-1, most - Math.max(0, zero)));
  return Int8Array.from(levels, (level) => Math.round((level * most) / largest));
}

/** Mean of the weights at each level, and the total error. */
class LevelSums {
  error = 0;
  readonly #offset: number;
  readonly #products: Float64Array;
  readonly #counts: Float64Array;

  constructor(bits: number) {
    this.#offset = 2 ** (bits - 1);
    this.#products = new Float64Array(2 ** bits);
    this.#counts = new Float64Array(2 ** bits);
  }

  add({ n, k, values, importance }: LevelSample, weights: QuantizedWeights): void {
    const { qvals, scales, zeros, groupSize } = weights;
    const groups = groupCount(weights);
    const rounded = dequantize(weights);
    for (let r = 0, i = 0; r < n; r++)
      for (let c = 0; c < k; c++, i++) {
        const counts = importance ? importance[c]! : 1;
        const group = r * groups + Math.floor(c / groupSize);
        const [scale, zero] = [scales[group]!, zeros?.[group] ?? 0];
        const difference = values[i]! - rounded[i]!;
        this.error += counts * difference * difference;
        this.#products[qvals[i]! + this.#offset]! += counts * scale * (values[i]! + zero * scale);
        this.#counts[qvals[i]! + this.#offset]! += counts * scale * scale;
      }
  }

  /** The means as levels that rise; a level without weights stays, and all stay where two would be one. */
  levels(before: Int8Array): Int8Array {
    const means = Array.from(before, (level, i) =>
      this.#counts[i]! > 0 ? this.#products[i]! / this.#counts[i]! : level,
    );
    const after = scaled(means, Math.log2(before.length));
    return after.every((level, i) => i === 0 || level > after[i - 1]!) ? after : before;
  }
}
