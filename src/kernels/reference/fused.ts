/** Fused operators as what they are made of: the very values of the single reference kernels. */
import type {
  AddRmsNormArgs,
  AttentionArgs,
  BinaryArgs,
  HalvesArgs,
  PackedLinearArgs,
  RopeAttentionArgs,
} from "../arguments.ts";
import type { Kernel } from "../contract.ts";
import { addReference, gegluReference, swigluReference } from "./elementwise.ts";
import { linearA8Reference } from "./linear.ts";
import { attentionReference, rmsNormReference, ropeReference } from "./transformer.ts";

const anyShape = { target: "reference", layouts: null, bits: null, needs: [], mStep: 1, nStep: 1 } as const;
const noScratch = new Uint8Array(0);

function halves(operator: string, gate: Kernel<BinaryArgs>): Kernel<HalvesArgs> {
  return {
    ...anyShape,
    name: `${operator}_f32_1x1x1_reference`,
    bind({ dim, x, y }) {
      const row = (i: number) => {
        const [a, b] = [x.subarray(2 * i * dim, (2 * i + 1) * dim), x.subarray((2 * i + 1) * dim, 2 * (i + 1) * dim)];
        return gate.bind({ a, b, alpha: 1, y: y.subarray(i * dim, (i + 1) * dim) }, noScratch, 1);
      };
      const rows = Array.from({ length: y.length / dim }, (_, i) => row(i));
      return () => {
        for (const run of rows) run();
      };
    },
  };
}

export const swigluHalvesReference = halves("swiglu_halves", swigluReference);
export const gegluHalvesReference = halves("geglu_halves", gegluReference);

/** Results of the linear layer [m, n] come first in scratch. */
export const linearA8SwigluReference: Kernel<PackedLinearArgs> = {
  ...linearA8Reference,
  name: "linear_a8_swiglu_wx_1x1x1_reference",
  scratchBytes: (args, threads) =>
    Math.ceil((args.m * args.weights.spec.n) / 2) * 8 + linearA8Reference.scratchBytes!(args, threads),
  bind({ m, x, weights, y }, scratch, threads) {
    const whole = new Float32Array(scratch.buffer, scratch.byteOffset, m * weights.spec.n);
    const rest = scratch.subarray(Math.ceil(whole.length / 2) * 8);
    const multiply = linearA8Reference.bind({ m, x, weights, y: whole }, rest, threads);
    const gate = swigluHalvesReference.bind({ dim: y.length / m, x: whole, y }, noScratch, threads);
    return () => {
      multiply();
      gate();
    };
  },
};

export const addRmsNormReference: Kernel<AddRmsNormArgs> = {
  ...anyShape,
  name: "add_rms_norm_f32_1x1x1_reference",
  bind({ addend, alpha, ...norm }) {
    const add = addReference.bind({ a: norm.x, b: addend, alpha, y: norm.x }, noScratch, 1);
    const scale = rmsNormReference.bind(norm, noScratch, 1);
    return () => {
      add();
      scale();
    };
  },
};

/** Where queries, keys and values [tokens, heads, headDim] lie in scratch, one after the other, in floats. */
export function rotatedPlaces({ tokens, heads, kvHeads, headDim }: RopeAttentionArgs) {
  const q = tokens * heads * headDim;
  const kv = tokens * kvHeads * headDim;
  return { q: 0, k: q, v: q + kv, length: q + 2 * kv };
}

export const ropeAttentionReference: Kernel<RopeAttentionArgs> = {
  ...anyShape,
  name: "rope_attention_f32_1x1x1_reference",
  scratchBytes: (args, threads) =>
    Math.ceil(rotatedPlaces(args).length / 2) * 8 +
    attentionReference.scratchBytes!(args as unknown as AttentionArgs, threads),
  bind({ qkv, angles, half, ...rest }, scratch, threads) {
    const { tokens, heads, kvHeads, headDim } = rest;
    const args = { qkv, angles, half, ...rest };
    const places = rotatedPlaces(args);
    const rotated = new Float32Array(scratch.buffer, scratch.byteOffset, places.length);
    const [q, k, v] = [rotated.subarray(0, places.k), rotated.subarray(places.k, places.v), rotated.subarray(places.v)];
    const turn = (x: Float32Array, count: number) =>
      ropeReference.bind({ tokens, heads: count, headDim, half, x, angles, y: x }, noScratch, 1);
    const turns = [turn(q, heads), turn(k, kvHeads)];
    const free = scratch.subarray(Math.ceil(places.length / 2) * 8);
    const attend = attentionReference.bind({ ...rest, q, k, v }, free, threads);
    const [columns, kv] = [(heads + 2 * kvHeads) * headDim, kvHeads * headDim];
    return () => {
      for (let t = 0; t < tokens; t++) {
        const row = qkv.subarray(t * columns, (t + 1) * columns);
        q.set(row.subarray(0, columns - 2 * kv), t * heads * headDim);
        k.set(row.subarray(columns - 2 * kv, columns - kv), t * kv);
        v.set(row.subarray(columns - kv), t * kv);
      }
      for (const run of turns) run();
      attend();
    };
  },
};
