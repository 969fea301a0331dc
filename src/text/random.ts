/** Seeded random numbers: xoshiro128** (Blackman and Vigna, 2018), state filled by SplitMix64 as its authors advise. */

const MASK_64 = (1n << 64n) - 1n;

export interface Random {
  /** A whole number from 0 to 2^32-1. */
  uint32(): number;
  /** A number in [0, 1) with 53 random bits. */
  uniform(): number;
}

/** Random numbers from a seed, a whole number from 0 to 2^53-1; equal seeds give equal sequences on every machine. */
export function createRandom(seed: number): Random {
  const nextSplit = splitMix64(BigInt(seed));
  const state = new Uint32Array(4);
  for (let i = 0; i < 4; i += 2) {
    const bits = nextSplit();
    state[i] = Number(bits & 0xffffffffn);
    state[i + 1] = Number(bits >> 32n);
  }
  return xoshiro128(state);
}

/** SplitMix64 (Steele, Lea and Flood, 2014). */
export function splitMix64(seed: bigint): () => bigint {
  let state = seed;
  return () => {
    state = (state + 0x9e3779b97f4a7c15n) & MASK_64;
    let z = state;
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK_64;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK_64;
    return z ^ (z >> 31n);
  };
}

/** xoshiro128** 1.1 over `state`, four words that are not all zero; it changes them. */
export function xoshiro128(state: Uint32Array): Random {
  const uint32 = () => {
    const result = Math.imul(rotateLeft(Math.imul(state[1]!, 5), 7), 9) >>> 0;
    const shifted = state[1]! << 9;
    state[2]! ^= state[0]!;
    state[3]! ^= state[1]!;
    state[1]! ^= state[2]!;
    state[0]! ^= state[3]!;
    state[2]! ^= shifted;
    state[3] = rotateLeft(state[3]!, 11);
    return result;
  };
  return { uint32, uniform: () => ((uint32() >>> 5) * 2 ** 26 + (uint32() >>> 6)) / 2 ** 53 };
}

function rotateLeft(word: number, count: number): number {
  return (word << count) | (word >>> (32 - count));
}
