/** Kernels of linear layers. Best first: the reference fits everything and is last. */
import { listed } from "../../family.ts";
import * as native from "../../native/families.ts";
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
export const linearA8 = listed("linear_a8", native.packedLinear, [linearA8Wasm, linearA8Reference]);
/** Of activations in blocks with a scale each. */
export const linearA8Blocks = listed("linear_a8b32", native.packedLinear, [
  linearA8BlocksWasm,
  linearA8BlocksReference,
]);
/** y [m, n / 2]: the first half of the linear layer's columns gates the second. */
export const linearA8Swiglu = listed("linear_a8_swiglu", native.packedLinear, [linearA8SwigluReference]);
export const linearA8BlocksSwiglu = listed("linear_a8b32_swiglu", native.packedLinear, [linearA8BlocksSwigluReference]);
export const linearWeightOnly = listed("linear_weight_only", native.packedLinear, [
  linearWeightOnlyWasm,
  linearWeightOnlyReference,
]);
export const linearFloat = listed("linear_float", native.floatLinear, [linearFloatWasm, linearFloatReference]);
