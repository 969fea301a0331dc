/** Operators of a transformer block: RMSNorm, rotary embedding, gated activations. Attention: attention.ts. */

import type { BinaryArgs, ClampedGateArgs } from "../kernels/arguments.ts";
import type { Kernel } from "../kernels/contract.ts";
import {
  clampedGate,
  erfGeglu,
  geglu,
  quickGeglu,
  reglu,
  rmsNorm,
  rope,
  ropeAngles,
  sigmoidGate,
  squaredReglu,
  swiglu,
} from "../kernels/table.ts";
import { isSameShape } from "../tensor.ts";
import { rowCount } from "./linear.ts";
import { defineOperator, type Operator } from "./operator.ts";

/** y = x / sqrt(mean(x^2) + eps) * weight over the last dimension (Zhang & Sennrich 2019). */
export const rmsNormOperator = defineOperator({
  schema: "lowbit::rms_norm.out(Tensor x, Tensor weight, float eps, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: rmsNorm,
  inPlace: ["x"],
  rowwise: ["x"],
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

/** cos and sin [T, 2, half] of the angles of T tokens [1, T] at positions input_pos [T] or [1, T], or [1] for the first of them. */
export const ropeAnglesOperator = defineOperator({
  schema:
    "lowbit::rope_angles.out(Tensor tokens, Tensor input_pos, Tensor inverse_frequencies, float scale, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: ropeAngles,
  shape(args) {
    const tokens = args.tensor("tokens").shape;
    const positions = args.tensor("input_pos", "i64").shape;
    const frequencies = args.tensor("inverse_frequencies", "f32").shape;
    if (tokens.length === 0) args.fail("tokens", "expected shape [1, T] but found a scalar");
    const each = [[tokens.at(-1)!], [1, tokens.at(-1)!]];
    if (!isSameShape(positions, [1]) && !each.some((shape) => isSameShape(positions, shape)))
      args.fail("input_pos", `expected shape [1] or [${tokens.at(-1)}] but found [${positions}]`);
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
  inPlace: ["x"],
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

function gatedOperator(name: string, kernels: readonly Kernel<BinaryArgs>[]): Operator {
  return defineOperator({
    schema: `${name}.out(Tensor gate, Tensor up, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels,
    inPlace: ["gate", "up"],
    rowwise: ["gate", "up"],
    shape(args) {
      const gate = args.tensor("gate", "f32");
      const up = args.tensor("up", "f32");
      if (!isSameShape(gate.shape, up.shape))
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

/** y = (clamp(up, -limit, limit) + 1) * c * sigmoid(slope * c), c = min(gate, limit): the gate of gpt-oss (OpenAI 2025). */
export const clampedGateOperator = defineOperator<ClampedGateArgs>({
  schema: "lowbit::clamped_gate.out(Tensor gate, Tensor up, float slope, float limit, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: clampedGate,
  inPlace: ["gate", "up"],
  rowwise: ["gate", "up"],
  shape(args) {
    const gate = args.tensor("gate", "f32");
    const up = args.tensor("up", "f32");
    if (!isSameShape(gate.shape, up.shape))
      args.fail("up", `expected the shape of gate [${gate.shape}] but found [${up.shape}]`);
    return { dtype: "f32", shape: gate.shape };
  },
  prepare: (args) => ({
    a: args.tensor("gate").data as Float32Array,
    b: args.tensor("up").data as Float32Array,
    slope: args.number("slope"),
    limit: args.number("limit"),
    y: args.tensor("out").data as Float32Array,
  }),
});

/** y = f(gate) * up (Shazeer 2020), by functions f. */
export const gatedOperators: readonly Operator[] = [
  gatedOperator("lowbit::swiglu", swiglu),
  // GELU's approximation by tanh (Hendrycks & Gimpel 2016)
  gatedOperator("lowbit::geglu", geglu),
  // GELU
  gatedOperator("lowbit::erf_geglu", erfGeglu),
  // x sigmoid(1.702 x)
  gatedOperator("lowbit::quick_geglu", quickGeglu),
  // 1 / (1 + exp(-x))
  gatedOperator("lowbit::sigmoid_gate", sigmoidGate),
  // max(x, 0)
  gatedOperator("lowbit::reglu", reglu),
  // its square
  gatedOperator("lowbit::squared_reglu", squaredReglu),
];
