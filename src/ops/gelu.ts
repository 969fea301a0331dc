/** GELU by itself, for MLPs without a gate. */
import { gelu } from "../kernels/families/index.ts";
import { result } from "./elementwise.ts";
import { defineOperator, type Operator } from "./operator.ts";

/** aten::gelu of float32: `approximate` is "none" (by erf) or "tanh". */
export const geluOperator: Operator = defineOperator({
  schema: "aten::gelu.out(Tensor self, str approximate, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: gelu,
  inPlace: ["self"],
  rowwise: ["self"],
  shape: (args) => ({ dtype: "f32", shape: args.tensor("self", "f32").shape }),
  prepare: (args) => ({
    x: args.tensor("self").data as Float32Array,
    approximate: args.string("approximate") === "tanh" ? ("tanh" as const) : ("none" as const),
    ...result(args),
  }),
});
