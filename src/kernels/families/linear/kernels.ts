/** Kernels of linear layers. Best first: the reference fits everything and is last. */
import { family } from "../../family.ts";
import { floatLinearFields, gatedLinearFields, packedLinearFields } from "./fields.ts";
import { linearA8BlocksSwigluReference, linearA8SwigluReference } from "./gated-reference.ts";
import {
  linearA8BlocksReference,
  linearA8Reference,
  linearFloatReference,
  linearWeightOnlyReference,
} from "./reference.ts";
import { linearFloatWasm } from "./wasm/float.ts";
import { linearA8BlocksWasm, linearA8Wasm } from "./wasm/linear.ts";
import { linearWeightOnlyWasm } from "./wasm/weight-only.ts";

/** Of activations with one scale and zero point a row. */
export const linearA8 = family("linear_a8", packedLinearFields, {
  args: "packed_linear",
  wasm: linearA8Wasm,
  reference: linearA8Reference,
});
/** Of activations in blocks with a scale each. */
export const linearA8Blocks = family("linear_a8b32", packedLinearFields, {
  args: "packed_linear",
  wasm: linearA8BlocksWasm,
  reference: linearA8BlocksReference,
});
/** y [m, n / 2]: the first half of the linear layer's columns gates the second. */
export const linearA8Swiglu = family("linear_a8_swiglu", gatedLinearFields, {
  args: "packed_linear",
  wasm: [],
  reference: linearA8SwigluReference,
});
export const linearA8BlocksSwiglu = family("linear_a8b32_swiglu", gatedLinearFields, {
  args: "packed_linear",
  wasm: [],
  reference: linearA8BlocksSwigluReference,
});
export const linearWeightOnly = family("linear_weight_only", packedLinearFields, {
  args: "packed_linear",
  wasm: linearWeightOnlyWasm,
  reference: linearWeightOnlyReference,
});
export const linearFloat = family("linear_float", floatLinearFields, {
  wasm: linearFloatWasm,
  reference: linearFloatReference,
});
