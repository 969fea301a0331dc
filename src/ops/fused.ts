/** Operators that passes make of several: gates of halves, sum and norm, rotary embedding and attention. */
import type { HalvesArgs, RopeAttentionArgs } from "../kernels/arguments.ts";
import type { Kernel } from "../kernels/contract.ts";
import { addRmsNorm, gegluHalves, ropeAttention, swigluHalves } from "../kernels/table.ts";
import { isSameShape, type Tensor } from "../tensor.ts";
import {
  attentionBytes,
  attentionMultiplications,
  cacheArgs,
  checkCaches,
  checkScales,
  noScales,
  scaleArgs,
} from "./attention.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { rowCount } from "./linear.ts";
import { defineOperator, type Operator } from "./operator.ts";

function halvesOperator(name: string, kernels: readonly Kernel<HalvesArgs>[]): Operator {
  return defineOperator({
    schema: `${name}.out(Tensor gate_up, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels,
    shape(args) {
      const { shape } = args.tensor("gate_up", "f32");
      const width = shape.at(-1) ?? 0;
      if (width === 0 || width % 2 !== 0) args.fail("gate_up", `expected an even last dimension but found [${shape}]`);
      return { dtype: "f32", shape: shape.with(-1, width / 2) };
    },
    prepare: (args) => ({
      dim: args.tensor("out").shape.at(-1)!,
      x: args.tensor("gate_up").data as Float32Array,
      y: args.tensor("out").data as Float32Array,
    }),
  });
}

/** out = silu(gate) * up, where gate_up [..., 2n] holds the columns of gate, then those of up. */
const swigluHalvesOperator = halvesOperator("lowbit::swiglu_halves", swigluHalves);

/** out = gelu(gate) * up, likewise. */
const gegluHalvesOperator = halvesOperator("lowbit::geglu_halves", gegluHalves);

/** x += alpha * addend; out = x / sqrt(mean(x^2) + eps) * weight over the last dimension: a residual sum and its norm. */
const addRmsNormOperator = defineOperator({
  schema:
    "lowbit::add_rms_norm.out(Tensor(a!) x, Tensor addend, Tensor weight, float eps, Scalar alpha=1, *, Tensor(b!) out) -> Tensor(b!)",
  kernels: addRmsNorm,
  inPlace: ["addend"],
  shape(args) {
    const { shape } = args.tensor("x", "f32");
    const [addend, weight] = [args.tensor("addend", "f32"), args.tensor("weight", "f32")];
    if (!isSameShape(addend.shape, shape))
      args.fail("addend", `expected the shape of x [${shape}] but found [${addend.shape}]`);
    if (!isSameShape(weight.shape, [shape.at(-1)!]))
      args.fail("weight", `expected shape [${shape.at(-1)}] but found [${weight.shape}]`);
    return { dtype: "f32", shape };
  },
  prepare: (args) => ({
    dim: args.tensor("weight").shape[0]!,
    x: args.tensor("x").data as Float32Array,
    addend: args.tensor("addend").data as Float32Array,
    alpha: args.number("alpha"),
    weight: args.tensor("weight").data as Float32Array,
    eps: args.number("eps"),
    y: args.tensor("out").data as Float32Array,
  }),
});

/** Checks what both operators have; gives what comes out. */
function ropeAttentionShape(args: Arguments<TensorSpec>, ...cacheTypes: ("f32" | "f16" | "i8")[]): TensorSpec {
  const { shape } = args.tensor("qkv", "f32");
  const { capacity, kvHeads, headDim } = checkCaches(args, ...cacheTypes);
  const tokens = rowCount(shape);
  const queries = (shape.at(-1) ?? 0) - 2 * kvHeads * headDim;
  if (queries <= 0 || queries % (kvHeads * headDim) !== 0 || tokens > capacity)
    args.fail(
      "qkv",
      `expected shape [1, at most ${capacity}, a multiple of ${kvHeads * headDim}, three times that or more] but found [${shape}]`,
    );
  const angles = args.tensor("angles", "f32").shape;
  if (angles.length !== 3 || angles[0] !== tokens || angles[1] !== 2 || 2 * angles[2]! > headDim)
    args.fail("angles", `expected shape [${tokens}, 2, at most ${headDim / 2}] but found [${angles}]`);
  return { dtype: "f32", shape: shape.with(-1, queries) };
}

function ropeAttentionArgs(args: Arguments<Tensor>): Omit<RopeAttentionArgs, "keyScales" | "valueScales"> {
  const angles = args.tensor("angles");
  return {
    ...cacheArgs(args),
    qkv: args.tensor("qkv").data as Float32Array,
    angles: angles.data as Float32Array,
    half: angles.shape[2]!,
  };
}

/** What both operators have alike. */
const ropeAttentionCalls = {
  kernels: ropeAttention,
  indices: {
    argument: "input_pos",
    limit: (args: Arguments<Tensor>) => args.tensor("key_cache").shape[1]! - rowCount(args.tensor("qkv").shape) + 1,
  },
  multiplications: (args: Arguments<TensorSpec>) =>
    attentionMultiplications(args.tensor("qkv"), rowCount(args.tensor("qkv").shape)),
  query: (args: Arguments<Tensor>) => ({ layout: null, bits: null, m: rowCount(args.tensor("qkv").shape) }),
  bytes: attentionBytes,
};

/** lowbit::attention of columns of qkv [1, T, (heads + 2 * kvHeads) * D], queries and keys turned by lowbit::rope first. */
const ropeAttentionOperator = defineOperator<RopeAttentionArgs>({
  schema:
    "lowbit::rope_attention.out(Tensor qkv, Tensor angles, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor input_pos, float scale, int window=0, float softcap=0, *, Tensor(c!) out) -> Tensor(c!)",
  ...ropeAttentionCalls,
  shape: (args) => ropeAttentionShape(args, "f32", "f16"),
  prepare: (args) => ({ ...ropeAttentionArgs(args), ...noScales }),
});

/** Rotary embedding and attention over caches of int8, as lowbit::attention_int8_cache has them. */
const ropeAttentionInt8Operator = defineOperator<RopeAttentionArgs>({
  schema:
    "lowbit::rope_attention_int8_cache.out(Tensor qkv, Tensor angles, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor(c!) key_scales, Tensor(d!) value_scales, Tensor input_pos, float scale, int window=0, float softcap=0, *, Tensor(e!) out) -> Tensor(e!)",
  ...ropeAttentionCalls,
  shape(args) {
    const spec = ropeAttentionShape(args, "i8");
    checkScales(args);
    return spec;
  },
  prepare: (args) => ({ ...ropeAttentionArgs(args), ...scaleArgs(args) }),
});

export const fusedOperators: readonly Operator[] = [
  swigluHalvesOperator,
  gegluHalvesOperator,
  addRmsNormOperator,
  ropeAttentionOperator,
  ropeAttentionInt8Operator,
];
