/** Reproducible random numbers and random logical weights for tests. */
import { f16Table, f32ToBf16, f32ToF16 } from "../../src/half.ts";
import type { FloatWeights } from "../../src/kernels/arguments.ts";
import { groupCount, type QuantizedWeights, type ScaleDType } from "../../src/quantized.ts";

/** A mulberry32 generator: numbers in [0, 1), the same for the same seed. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from `low` to `high`, both included. */
  integer(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  pick<V>(items: readonly V[]): V {
    return items[this.integer(0, items.length - 1)]!;
  }

  /** Floats evenly spread over -size .. size. */
  floats(length: number, size = 1): Float32Array {
    return Float32Array.from({ length }, () => size * (2 * this.next() - 1));
  }
}

export interface RandomWeightsOptions {
  readonly n: number;
  readonly k: number;
  readonly bits: number;
  readonly groupSize: number;
  readonly zeros?: boolean;
  readonly levels?: boolean;
  readonly scaleDType?: ScaleDType;
  /** Scales are 1/2, 1 or 2, so that products with integers are exact. */
  readonly exactScales?: boolean;
}

/** What weights are made of in tests of layouts and of kernels that read them. */
export const weightVariants: readonly Partial<RandomWeightsOptions>[] = [
  {},
  { zeros: true },
  { levels: true },
  { scaleDType: "f16" },
  { zeros: true, scaleDType: "f16" },
];

/** Logical weights of random integers, scales and zero points over their whole ranges. */
export function randomWeights(random: Random, options: RandomWeightsOptions): QuantizedWeights {
  const { n, k, bits, groupSize, zeros = false, levels = false, scaleDType = "f32", exactScales = false } = options;
  const low = -(2 ** (bits - 1));
  const high = -low - 1;
  const integers = (length: number) => Int8Array.from({ length }, () => random.integer(low, high));
  const spec = { n, k, bits, groupSize, hasZeros: zeros, hasLevels: levels, scaleDType };
  const count = n * groupCount(spec);
  const scale = () => {
    if (exactScales) return random.pick([0.5, 1, 2]);
    return scaleDType === "f16" ? f16Table()[random.integer(1, 0x7bff)]! : Math.fround(random.next() + 1e-3);
  };
  return {
    ...spec,
    qvals: integers(n * k),
    scales: Float32Array.from({ length: count }, scale),
    zeros: zeros ? integers(count) : null,
    levels: levels ? Int8Array.from({ length: 2 ** bits }, () => random.integer(-128, 127)) : null,
  };
}

/** Random float weights of each stored type, and their exact values. */
export function randomFloatWeights(random: Random, length: number): { stored: FloatWeights; values: Float32Array }[] {
  const values = random.floats(length);
  const f16 = Uint16Array.from(values, f32ToF16);
  const bf16 = Uint16Array.from(values, f32ToBf16);
  const fromBf16 = new Float32Array(Uint32Array.from(bf16, (bits) => bits * 65536).buffer);
  return [
    { stored: { dtype: "f32", data: values }, values },
    { stored: { dtype: "f16", data: f16 }, values: Float32Array.from(f16, (bits) => f16Table()[bits]!) },
    { stored: { dtype: "bf16", data: bf16 }, values: fromBf16 },
  ];
}
