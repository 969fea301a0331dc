/** Operators of a transformer block: RMSNorm, rotary embedding, attention over a KV cache, gated activations. */

import type { BinaryArgs } from "../kernels/arguments.ts";
import type { Kernel } from "../kernels/contract.ts";
import { attention, geglu, rmsNorm, rope, ropeAngles, swiglu } from "../kernels/table.ts";
import { rowCount } from "./linear.ts";
import { type Arguments, defineOperator, type Operator, type TensorSpec } from "./operator.ts";

function checkPosition(args: Arguments<TensorSpec>): void {
  const { shape } = args.tensor("input_pos", "i64");
  if (shape.join() !== "1") args.fail("input_pos", `expected shape [1] but found [${shape}]`);
}

/** y = x / sqrt(mean(x^2) + eps) * weight over the last dimension (Zhang & Sennrich 2019). */
export const rmsNormOperator = defineOperator({
  schema: "lowbit::rms_norm.out(Tensor x, Tensor weight, float eps, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: rmsNorm,
  shape(args) {
    const x = args.tensor("x", "f32");
    const weight = args.tensor("weight", "f32");
    const dim = x.shape.at(-1) ?? 0;
    if (weight.shape.length !== 1 || dim === 0 || dim % weight.shape[0]! !== 0)
      args.fail("weight", `expected shape [${dim}], or one that divides it, but found [${weight.shape}]`);
    return { dtype: "f32", shape: x.shape };
  },
  prepare: (args) => ({
    dim: args.tensor("weight").shape[0]!,
    x: args.tensor("x").data as Float32Array,
    weight: args.tensor("weight").data as Float32Array,
    eps: args.number("eps"),
    y: args.tensor("out").data as Float32Array,
  }),
});

/** cos and sin [T, 2, half] of the angles at positions input_pos .. input_pos + T - 1, for T tokens [1, T]. */
export const ropeAnglesOperator = defineOperator({
  schema:
    "lowbit::rope_angles.out(Tensor tokens, Tensor input_pos, Tensor inverse_frequencies, float scale, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: ropeAngles,
  shape(args) {
    checkPosition(args);
    const tokens = args.tensor("tokens").shape;
    const frequencies = args.tensor("inverse_frequencies", "f32").shape;
    if (tokens.length === 0) args.fail("tokens", "expected shape [1, T] but found a scalar");
    if (frequencies.length !== 1)
      args.fail("inverse_frequencies", `expected a vector but found shape [${frequencies}]`);
    return { dtype: "f32", shape: [tokens.at(-1)!, 2, frequencies[0]!] };
  },
  prepare: (args) => ({
    tokens: args.tensor("tokens").shape.at(-1)!,
    position: args.tensor("input_pos").data as BigInt64Array,
    inverseFrequencies: args.tensor("inverse_frequencies").data as Float32Array,
    scale: args.number("scale"),
    angles: args.tensor("out").data as Float32Array,
  }),
});

/** Rotary position embedding of x [1, T, heads * head_dim] (Su et al. 2021), halves convention of Hugging Face. */
export const ropeOperator = defineOperator({
  schema: "lowbit::rope.out(Tensor x, Tensor angles, int head_dim, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: rope,
  shape(args) {
    const x = args.tensor("x", "f32");
    const angles = args.tensor("angles", "f32");
    const headDim = args.integer("head_dim", 1);
    if (x.shape.length < 2 || x.shape.at(-1)! % headDim !== 0)
      args.fail("x", `expected shape [1, T, a multiple of ${headDim}] but found [${x.shape}]`);
    const [tokens, two, half] = angles.shape;
    if (angles.shape.length !== 3 || tokens !== rowCount(x.shape) || two !== 2 || 2 * half! > headDim)
      args.fail(
        "angles",
        `expected shape [${rowCount(x.shape)}, 2, at most ${headDim / 2}] but found [${angles.shape}]`,
      );
    return { dtype: "f32", shape: x.shape };
  },
  prepare(args) {
    const x = args.tensor("x");
    const headDim = args.number("head_dim");
    return {
      tokens: rowCount(x.shape),
      heads: x.shape.at(-1)! / headDim,
      headDim,
      half: args.tensor("angles").shape[2]!,
      x: x.data as Float32Array,
      angles: args.tensor("angles").data as Float32Array,
      y: args.tensor("out").data as Float32Array,
    };
  },
});

/**
 * Causal grouped-query attention. q [1, T, heads * D]; k, v [1, T, kvHeads * D] are first written to the caches
 * [1, capacity, kvHeads, D], f32 or f16, at input_pos. window: last positions seen, 0 for all. softcap: 0 for none (Gemma 2).
 */
export const attentionOperator = defineOperator({
  schema:
    "lowbit::attention.out(Tensor q, Tensor k, Tensor v, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor input_pos, float scale, int window=0, float softcap=0, *, Tensor(c!) out) -> Tensor(c!)",
  kernels: attention,
  indices: {
    argument: "input_pos",
    limit: (args) => args.tensor("key_cache").shape[1]! - rowCount(args.tensor("q").shape) + 1,
  },
  shape(args) {
    const q = args.tensor("q", "f32");
    const { dtype, shape: cache } = args.tensor("key_cache", "f32", "f16");
    checkPosition(args);
    const [batch, capacity, kvHeads, headDim] = cache as [number, number, number, number];
    if (cache.length !== 4 || batch !== 1 || kvHeads * headDim === 0)
      args.fail("key_cache", `expected shape [1, capacity, heads, D] but found [${cache}]`);
    if (args.tensor("value_cache", dtype).shape.join() !== cache.join())
      args.fail("value_cache", `expected the shape of key_cache [${cache}]`);
    const width = kvHeads * headDim;
    const tokens = rowCount(q.shape);
    if (q.shape.length === 0 || q.shape.at(-1)! % width !== 0 || tokens > capacity)
      args.fail("q", `expected shape [1, at most ${capacity}, a multiple of ${width}] but found [${q.shape}]`);
    for (const name of ["k", "v"]) {
      const { shape } = args.tensor(name, "f32");
      if (shape.at(-1) !== width || rowCount(shape) !== tokens)
        args.fail(name, `expected shape [1, ${tokens}, ${width}] but found [${shape}]`);
    }
    args.integer("window", 0);
    return { dtype: "f32", shape: q.shape };
  },
  query: (args) => ({ layout: null, bits: null, m: rowCount(args.tensor("q").shape) }),
  prepare(args) {
    const q = args.tensor("q");
    const [, capacity, kvHeads, headDim] = args.tensor("key_cache").shape;
    return {
      tokens: rowCount(q.shape),
      heads: q.shape.at(-1)! / headDim!,
      kvHeads: kvHeads!,
      headDim: headDim!,
      capacity: capacity!,
      q: q.data as Float32Array,
      k: args.tensor("k").data as Float32Array,
      v: args.tensor("v").data as Float32Array,
      keyCache: args.tensor("key_cache").data as Float32Array | Uint16Array,
      valueCache: args.tensor("value_cache").data as Float32Array | Uint16Array,
      position: args.tensor("input_pos").data as BigInt64Array,
      scale: args.number("scale"),
      window: args.number("window"),
      softcap: args.number("softcap"),
      y: args.tensor("out").data as Float32Array,
    };
  },
});

function gatedOperator(name: string, kernels: readonly Kernel<BinaryArgs>[]): Operator {
  return defineOperator({
    schema: `${name}.out(Tensor gate, Tensor up, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels,
    shape(args) {
      const gate = args.tensor("gate", "f32");
      const up = args.tensor("up", "f32");
      if (gate.shape.join() !== up.shape.join())
        args.fail("up", `expected the shape of gate [${gate.shape}] but found [${up.shape}]`);
      return { dtype: "f32", shape: gate.shape };
    },
    prepare: (args) => ({
      a: args.tensor("gate").data as Float32Array,
      b: args.tensor("up").data as Float32Array,
      alpha: 1,
      y: args.tensor("out").data as Float32Array,
    }),
  });
}

/** y = silu(gate) * up (Shazeer 2020). */
export const swigluOperator = gatedOperator("lowbit::swiglu", swiglu);

/** y = gelu(gate) * up with GELU's approximation by tanh (Hendrycks & Gimpel 2016; Shazeer 2020). */
export const gegluOperator = gatedOperator("lowbit::geglu", geglu);
