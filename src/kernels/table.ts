/** The rows: every kernel of every family, best first. The reference fits everything and is last. */
import { packedLinear } from "./native/families.ts";
import { nativeKernels } from "./native/rows.ts";
import {
  addReference,
  argmaxReference,
  selectReference,
  softmaxReference,
  swigluReference,
} from "./reference/elementwise.ts";
import { embeddingFloatReference, embeddingPackedReference, embeddingSharedReference } from "./reference/embedding.ts";
import { linearA8Reference, linearFloatReference, linearWeightOnlyReference } from "./reference/linear.ts";
import { attentionReference, rmsNormReference, ropeAnglesReference, ropeReference } from "./reference/transformer.ts";

export const linearA8 = [...nativeKernels("linear_a8", packedLinear), linearA8Reference];
export const linearWeightOnly = [linearWeightOnlyReference];
export const linearFloat = [linearFloatReference];
export const embeddingFloat = [embeddingFloatReference];
export const embeddingPacked = [embeddingPackedReference];
export const embeddingShared = [embeddingSharedReference];
export const rmsNorm = [rmsNormReference];
export const ropeAngles = [ropeAnglesReference];
export const rope = [ropeReference];
export const attention = [attentionReference];
export const add = [addReference];
export const swiglu = [swigluReference];
export const softmax = [softmaxReference];
export const argmax = [argmaxReference];
export const select = [selectReference];
