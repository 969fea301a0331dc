/** Norms over the last dimension. */
import { addRmsNorm, layerNorm, rmsNorm } from "../kernels/families/index.ts";
import { isSameShape } from "../tensor.ts";
import { rowsOf } from "./linear.ts";
import { defineOperator } from "./operator.ts";

/** out = x / sqrt(mean(x^2) + eps) * weight over the last dimension (Zhang & Sennrich 2019). */
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
    ...rowsOf(args.tensor("x"), args.tensor("weight").shape[0]!),
    x: args.tensor("x").data as Float32Array,
    weight: args.tensor("weight").data as Float32Array,
    eps: args.number("eps"),
    y: args.tensor("out").data as Float32Array,
  }),
});

/**
 * x += alpha * addend; out = x / sqrt(mean(x^2) + eps) * weight over the last dimension: a residual addition and its norm.
 */
export const addRmsNormOperator = defineOperator({
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
    ...rowsOf(args.tensor("x")),
    x: args.tensor("x").data as Float32Array,
    addend: args.tensor("addend").data as Float32Array,
    alpha: args.number("alpha"),
    weight: args.tensor("weight").data as Float32Array,
    eps: args.number("eps"),
    y: args.tensor("out").data as Float32Array,
  }),
});

/** out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias over the last dimension (Ba et al. 2016). */
export const layerNormOperator = defineOperator({
  schema: "lowbit::layer_norm.out(Tensor x, Tensor weight, Tensor? bias, float eps, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: layerNorm,
  inPlace: ["x"],
  rowwise: ["x"],
  shape(args) {
    const x = args.tensor("x", "f32");
    const dim = x.shape.at(-1) ?? 0;
    for (const name of ["weight", "bias"]) {
      const factors = args.optionalTensor(name, "f32");
      if (factors && (dim === 0 || !isSameShape(factors.shape, [dim])))
        args.fail(name, `expected shape [${dim}] but found [${factors.shape}]`);
    }
    args.tensor("weight");
    return { dtype: "f32", shape: x.shape };
  },
  prepare: (args) => ({
    ...rowsOf(args.tensor("x")),
    x: args.tensor("x").data as Float32Array,
    weight: args.tensor("weight").data as Float32Array,
    bias: (args.optionalTensor("bias")?.data as Float32Array | undefined) ?? null,
    eps: args.number("eps"),
    y: args.tensor("out").data as Float32Array,
  }),
});
