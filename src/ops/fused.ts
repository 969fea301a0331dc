/** Operators that passes make of several: gates of halves, sum and norm. ./sequences.ts has the one of rotary embedding and attention. */
import type { HalvesArgs } from "../kernels/arguments.ts";
import type { Kernel } from "../kernels/contract.ts";
import { addRmsNorm, gegluHalves, swigluHalves } from "../kernels/table.ts";
import { isSameShape } from "../tensor.ts";
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

export const fusedOperators: readonly Operator[] = [swigluHalvesOperator, gegluHalvesOperator, addRmsNormOperator];
