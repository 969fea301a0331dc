/** Cases of rotary embedding, of attention over one cache, and of packed sequences. */
import { casesOf, floats } from "../../cases.ts";
import { attendPacked, attention, rope, ropeAngles } from "./kernels.ts";

/** Positions in the KV cache before a model's step. */
const CONTEXT = 2000;

export const ropeCases = casesOf(rope, {
  small: [
    { tokens: 7, heads: 2, headDim: 32, half: 16 },
    { tokens: 3, heads: 3, headDim: 22, half: 7 },
  ],
  model: (tokens, { heads, headDim }) => ({ tokens, heads, headDim, half: headDim / 2 }),
});

export const ropeAnglesCases = casesOf(ropeAngles, {
  small: [
    { tokens: 7, position: BigInt64Array.of(3n), inverseFrequencies: floats(64).map(Math.abs), scale: 1 },
    { tokens: 2, position: BigInt64Array.of(9n, 4n), inverseFrequencies: floats(5).map(Math.abs), scale: 0.5 },
  ],
  model: (tokens, { headDim }) => ({
    ...{ tokens, position: BigInt64Array.of(BigInt(CONTEXT)), scale: 1 },
    inverseFrequencies: floats(headDim / 2).map(Math.abs),
  }),
});

export const attentionCases = casesOf(attention, {
  small: [1, 17].map((tokens) => ({
    ...{ tokens, heads: 4, kvHeads: 2, headDim: 64, capacity: 48, scale: 1 / 8, window: 0, softcap: 0 },
    position: BigInt64Array.of(20n),
  })),
  model: (tokens, { heads, kvHeads, headDim }) => ({
    ...{ tokens, heads, kvHeads, headDim, capacity: CONTEXT + tokens, scale: headDim ** -0.5, window: 0, softcap: 0 },
    position: BigInt64Array.of(BigInt(CONTEXT)),
  }),
});

export const attendPackedCases = casesOf(attendPacked, {
  // Sequences of 3 and 14 tokens; heads that fit local variables (headDim 16), and others.
  small: [16, 22].map((headDim) => ({
    ...{ rows: 17, heads: 4, kvHeads: 2, headDim, scale: 0.5, before: 9, after: 4 },
    offsets: BigInt64Array.of(0n, 3n, 17n),
  })),
  model: (rows, { heads, headDim }) => ({
    ...{ rows, heads, kvHeads: heads, headDim, scale: headDim ** -0.5, before: 2 ** 31 - 1, after: 2 ** 31 - 1 },
    offsets: BigInt64Array.of(0n, BigInt(rows)),
  }),
});
