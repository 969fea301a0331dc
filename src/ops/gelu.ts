/** GELU as an operator of its own, between the matrices of an MLP that is not gated. */
import type { UnaryArgs } from "../kernels/arguments.ts";
import type { Kernel } from "../kernels/contract.ts";
import { gelu, geluTanh } from "../kernels/table.ts";
import { anyGelu } from "./aten/pointwise.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { defineOperator, type Operator, overload } from "./operator.ts";

/** aten::gelu of float32: `approximate` is "none" (by erf) or "tanh". */
function ofFloats(kernels: readonly Kernel<UnaryArgs>[]): Operator {
  return defineOperator<UnaryArgs>({
    schema: "aten::gelu.out(Tensor self, str approximate, *, Tensor(a!) out) -> Tensor(a!)",
    kernels,
    inPlace: ["self"],
    rowwise: ["self"],
    shape: (args) => ({ dtype: "f32", shape: args.tensor("self", "f32").shape }),
    prepare: (args) => ({
      x: args.tensor("self").data as Float32Array,
      value: 0,
      y: args.tensor("out").data as Float32Array,
    }),
  });
}

const isOfFloats = (approximate: "none" | "tanh") => (args: Arguments<TensorSpec>) =>
  args.tensor("self").dtype === "f32" && (args.string("approximate") === "tanh") === (approximate === "tanh");

/** Floats have kernels of their own. */
const byErf = overload(anyGelu, { operator: ofFloats(gelu), fits: isOfFloats("none") });
export const geluOperator: Operator = overload(byErf, { operator: ofFloats(geluTanh), fits: isOfFloats("tanh") });
