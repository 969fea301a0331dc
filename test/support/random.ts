/** Reproducible random numbers and random logical weights for tests. */
import { e4m3Table } from "../../src/float8.ts";
import { f16Table, f32ToBf16, f32ToF16 } from "../../src/half.ts";
import type { FloatWeights } from "../../src/kernels/records.ts";
import {
  groupCount,
  hasFactors,
  type QuantizedWeights,
  SUPER_GROUP,
  superGroupCount,
  type WeightSpec,
} from "../../src/quantized.ts";

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
    const values = new Float32Array(length);
    for (let i = 0; i < length; i++) values[i] = size * (2 * this.next() - 1);
    return values;
  }
}

export interface RandomWeightsOptions {
  readonly n: number;
  readonly k: number;
  readonly bits: number;
  readonly groupSize: number;
  readonly zeros?: boolean;
  readonly levels?: boolean;
  /** Levels have 7 bits, which some kernels multiply in a way of their own. */
  readonly narrowLevels?: boolean;
  readonly scaleDType?: WeightSpec["scaleDType"];
  readonly minima?: boolean;
  /** Zero point of groups with odd scales, where scales are integers. */
  readonly oddZero?: number;
  /** Scales are 1/2, 1 or 2, and minima multiples of 1/2, so that products with integers are exact. */
  readonly exactScales?: boolean;
}

/** What weights are made of in tests of layouts and of kernels that read them. */
export const weightVariants: readonly Partial<RandomWeightsOptions>[] = [
  {},
  { zeros: true },
  { levels: true },
  { scaleDType: "f16" },
  { zeros: true, scaleDType: "f16" },
  { minima: true },
  { minima: true, scaleDType: "f16" },
  { scaleDType: "i8" },
  { minima: true, scaleDType: "i8" },
  { levels: true, scaleDType: "i8" },
  { levels: true, scaleDType: "i8", oddZero: -20 },
  { levels: true, narrowLevels: true, scaleDType: "i8", oddZero: 5 },
  { levels: true, narrowLevels: true, scaleDType: "f16" },
  { levels: true, scaleDType: "e4m3" },
];

/** Logical weights of random integers, scales and zero points over their whole ranges. */
export function randomWeights(random: Random, options: RandomWeightsOptions): QuantizedWeights {
  const { n, k, bits, groupSize, zeros = false, levels = false, scaleDType = "f32" } = options;
  const { minima = false, exactScales = false } = options;
  const oddZero = scaleDType === "i8" ? options.oddZero : undefined;
  const most = options.narrowLevels ? 63 : 127;
  const [leastLevel, mostLevel] = [-most - 1 + Math.max(0, oddZero ?? 0), most + Math.min(0, oddZero ?? 0)];
  const low = -(2 ** (bits - 1));
  const high = -low - 1;
  const integers = (length: number) => {
    const values = new Int8Array(length);
    for (let i = 0; i < length; i++) values[i] = random.integer(low, high);
    return values;
  };
  const form = minima && { hasMinima: true };
  const odd = oddZero !== undefined && { oddZero };
  const hasZeros = zeros || oddZero !== undefined;
  const spec = { n, k, bits, groupSize, hasZeros, hasLevels: levels, scaleDType, ...form, ...odd };
  const count = n * groupCount(spec);
  const scale = () => {
    if (exactScales) return random.pick([0.5, 1, 2]);
    return scaleDType === "f16" ? f16Table()[random.integer(1, 0x7bff)]! : Math.fround(random.next() + 1e-3);
  };
  const minimum = () => (exactScales ? random.integer(-40, 40) / 2 : random.pick([-1, 1]) * scale());
  const numbers = (value: () => number): ReturnType<typeof products> => {
    return { values: Float32Array.from({ length: count }, value) };
  };
  const nested = hasFactors(spec);
  const scales = nested ? products(random, spec, exactScales) : numbers(scale);
  const least = nested ? products(random, spec, exactScales) : numbers(minimum);
  return {
    ...spec,
    qvals: integers(n * k),
    scales: scales.values,
    zeros: zeros ? integers(count) : oddZero === undefined ? null : zerosOf(spec, scales, oddZero),
    levels: levels ? Int8Array.from({ length: 2 ** bits }, () => random.integer(leastLevel, mostLevel)) : null,
    ...(scales.factors && { superScales: scales.factors }),
    ...(minima && { minima: least.values }),
    ...(minima && least.factors && { superMinima: least.factors }),
  };
}

/** Zero points that the parities of integer scales tell. */
function zerosOf(
  { n, k, groupSize, ...spec }: WeightSpec,
  { values, factors }: ReturnType<typeof products>,
  oddZero: number,
): Int8Array {
  const [groups, supers] = [groupCount({ k, groupSize }), superGroupCount({ k, ...spec })];
  return Int8Array.from({ length: n * groups }, (_, i) => {
    const factor = factors![Math.floor(i / groups) * supers + Math.floor(((i % groups) * groupSize) / SUPER_GROUP)]!;
    return factor !== 0 && Math.abs(Math.round(values[i]! / factor)) % 2 === 1 ? oddZero : 0;
  });
}

/** Integers times float16 factors for the groups of weights, or e4m3 numbers times floats. */
function products(
  random: Random,
  spec: Pick<WeightSpec, "n" | "k" | "groupSize" | "scaleDType">,
  isExact: boolean,
): { readonly values: Float32Array; readonly factors?: Float32Array } {
  const [groups, supers] = [groupCount(spec), superGroupCount(spec)];
  const isInteger = spec.scaleDType === "i8";
  const anyFactor = () => (isInteger ? f16Table()[random.integer(0x0001, 0x3c00)]! : Math.fround(random.next() / 100));
  const factor = () => (isExact ? random.pick([0.5, 1]) : anyFactor());
  const anyNumber = () =>
    isInteger ? random.integer(-128, 127) : random.pick([-1, 1, 1]) * e4m3Table()[random.integer(0, 0x7e)]!;
  const number = () => (isExact ? random.pick([-2, 1, 1, 2]) : anyNumber());
  const factors = Float32Array.from({ length: spec.n * supers }, (_, i) => (i % 11 === 5 && !isExact ? 0 : factor()));
  const values = Float32Array.from({ length: spec.n * groups }, (_, i) => {
    const [row, group] = [Math.floor(i / groups), i % groups];
    const place = isInteger ? Math.floor((group * spec.groupSize) / SUPER_GROUP) : 0;
    const product = number() * factors[row * supers + place]!;
    return product + 0;
  });
  return { values, factors };
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
