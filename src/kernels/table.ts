/** The rows: every kernel of every family, best first. The reference fits everything and is last. */
import * as native from "./native/families.ts";
import { nativeKernels } from "./native/rows.ts";
import {
  addReference,
  argmaxReference,
  gegluReference,
  scaleReference,
  selectReference,
  softcapReference,
  softmaxReference,
  swigluReference,
} from "./reference/elementwise.ts";
import { embeddingFloatReference, embeddingPackedReference, embeddingSharedReference } from "./reference/embedding.ts";
import { int4PackReference } from "./reference/int4.ts";
import { linearA8Reference, linearFloatReference, linearWeightOnlyReference } from "./reference/linear.ts";
import { attentionReference, rmsNormReference, ropeAnglesReference, ropeReference } from "./reference/transformer.ts";
import { linearA8Wasm } from "./wasm/linear.ts";

export const linearA8 = [...nativeKernels("linear_a8", native.packedLinear), ...linearA8Wasm, linearA8Reference];
export const linearWeightOnly = [
  ...nativeKernels("linear_weight_only", native.packedLinear),
  linearWeightOnlyReference,
];
export const linearFloat = [...nativeKernels("linear_float", native.floatLinear), linearFloatReference];
export const embeddingFloat = [...nativeKernels("embedding_float", native.embeddingFloat), embeddingFloatReference];
export const embeddingPacked = [...nativeKernels("embedding_packed", native.embeddingPacked), embeddingPackedReference];
export const embeddingShared = [...nativeKernels("shared_embedding", native.embeddingShared), embeddingSharedReference];
export const rmsNorm = [...nativeKernels("rms_norm", native.rmsNorm), rmsNormReference];
export const ropeAngles = [...nativeKernels("rope_angles", native.ropeAngles), ropeAnglesReference];
export const rope = [...nativeKernels("rope", native.rope), ropeReference];
export const attention = [...nativeKernels("attention", native.attention), attentionReference];
export const add = [...nativeKernels("add", native.binary), addReference];
export const swiglu = [...nativeKernels("swiglu", native.binary), swigluReference];
export const geglu = [...nativeKernels("geglu", native.binary), gegluReference];
export const scale = [...nativeKernels("scale", native.unary), scaleReference];
export const softcap = [...nativeKernels("softcap", native.unary), softcapReference];
export const softmax = [...nativeKernels("softmax", native.rows), softmaxReference];
export const argmax = [...nativeKernels("argmax", native.rows), argmaxReference];
export const select = [...nativeKernels("select", native.select), selectReference];
export const int4Pack = [int4PackReference];
