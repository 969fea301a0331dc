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

/** Linear layers with activations quantized by rows, each with a scale and a zero point. */
export const linearA8 = family("linear_a8", packedLinearFields, {
  args: "packed_linear",
  wasm: linearA8Wasm,
  reference: linearA8Reference,
});
/** Linear layers with activations quantized in blocks, each with a scale. */
export const linearA8Blocks = family("linear_a8b32", packedLinearFields, {
  args: "packed_linear",
  wasm: linearA8BlocksWasm,
  reference: linearA8BlocksReference,
});
/** Gated linear layers, y [m, n / 2]: the first half of the columns gates the second. */
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
