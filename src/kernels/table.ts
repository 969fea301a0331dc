/** The rows: every kernel of every family, best first. The reference fits everything and is last. */

import { attentionReference, updateAndAttendReference } from "./families/attention/reference.ts";
import { ropeUpdateAndAttendReference } from "./families/attention/rope-attention-reference.ts";
import { ropeAnglesReference, ropeReference } from "./families/attention/rope-reference.ts";
import { attendTextsReference, poolTextsReference } from "./families/attention/texts-reference.ts";
import {
  attentionRelaxedWasm,
  attentionWasm,
  ropeUpdateAndAttendRelaxedWasm,
  ropeUpdateAndAttendWasm,
  updateAndAttendRelaxedWasm,
  updateAndAttendWasm,
} from "./families/attention/wasm/attention.ts";
import { ropeAnglesWasm, ropeWasm } from "./families/attention/wasm/rope.ts";
import { attendTextsWasm } from "./families/attention/wasm/texts.ts";
import { gatherColumnsReference, selectReference } from "./families/copy/reference.ts";
import { gatherColumnsWasm } from "./families/copy/wasm-gather-columns.ts";
import { selectWasm } from "./families/copy/wasm-select.ts";
import {
  embeddingFloatReference,
  embeddingPackedReference,
  embeddingSharedReference,
} from "./families/embedding/reference.ts";
import { embeddingFloatWasm, embeddingSharedWasm } from "./families/embedding/wasm/embedding.ts";
import { embeddingPackedWasm } from "./families/embedding/wasm/embedding-packed.ts";
import {
  combineExpertsReference,
  expertLinearFloatReference,
  expertLinearPackedReference,
  expertRowsReference,
  routeReference,
} from "./families/experts/reference.ts";
import { expertLinearFloatWasm, expertLinearPackedWasm } from "./families/experts/wasm/expert-linear.ts";
import { combineExpertsWasm, expertRowsWasm, routeWasm } from "./families/experts/wasm/router.ts";
import { linearA8BlocksSwigluReference, linearA8SwigluReference } from "./families/linear/gated-reference.ts";
import {
  linearA8BlocksReference,
  linearA8Reference,
  linearFloatReference,
  linearWeightOnlyReference,
} from "./families/linear/reference.ts";
import { linearFloatWasm } from "./families/linear/wasm/float.ts";
import { linearA8BlocksWasm, linearA8Wasm } from "./families/linear/wasm/linear.ts";
import { linearWeightOnlyWasm } from "./families/linear/wasm/weight-only.ts";
import { int4PackReference } from "./families/packing/int4-reference.ts";
import { linearRecurrenceReference, shortConvolutionReference } from "./families/recurrent/reference.ts";
import { linearRecurrenceRelaxedWasm, linearRecurrenceWasm } from "./families/recurrent/wasm/linear-recurrence.ts";
import { shortConvolutionWasm } from "./families/recurrent/wasm/short-convolution.ts";
import * as native from "./native/families.ts";
import { nativeKernels } from "./native/rows.ts";

export * from "./families/index.ts";

/** Of activations with one scale and zero point a row. */
export const linearA8 = [...nativeKernels("linear_a8", native.packedLinear), ...linearA8Wasm, linearA8Reference];
/** Of activations in blocks with a scale each. */
export const linearA8Blocks = [
  ...nativeKernels("linear_a8b32", native.packedLinear),
  ...linearA8BlocksWasm,
  linearA8BlocksReference,
];
/** y [m, n / 2]: the first half of the linear layer's columns gates the second. */
export const linearA8Swiglu = [...nativeKernels("linear_a8_swiglu", native.packedLinear), linearA8SwigluReference];
export const linearA8BlocksSwiglu = [
  ...nativeKernels("linear_a8b32_swiglu", native.packedLinear),
  linearA8BlocksSwigluReference,
];
export const linearWeightOnly = [
  ...nativeKernels("linear_weight_only", native.packedLinear),
  ...linearWeightOnlyWasm,
  linearWeightOnlyReference,
];
export const linearFloat = [
  ...nativeKernels("linear_float", native.floatLinear),
  ...linearFloatWasm,
  linearFloatReference,
];
export const embeddingFloat = [
  ...nativeKernels("embedding_float", native.embeddingFloat),
  embeddingFloatWasm,
  embeddingFloatReference,
];
export const embeddingPacked = [
  ...nativeKernels("embedding_packed", native.embeddingPacked),
  embeddingPackedWasm,
  embeddingPackedReference,
];
export const embeddingShared = [
  ...nativeKernels("shared_embedding", native.embeddingShared),
  embeddingSharedWasm,
  embeddingSharedReference,
];
export const ropeAngles = [...nativeKernels("rope_angles", native.ropeAngles), ropeAnglesWasm, ropeAnglesReference];
export const rope = [...nativeKernels("rope", native.rope), ropeWasm, ropeReference];
export const attention = [
  ...nativeKernels("attention", native.attention),
  attentionRelaxedWasm,
  attentionWasm,
  attentionReference,
];
/** Over the pages of several sequences. */
export const updateAndAttend = [
  ...nativeKernels("update_and_attend", native.updateAndAttend),
  updateAndAttendRelaxedWasm,
  updateAndAttendWasm,
  updateAndAttendReference,
];
export const ropeUpdateAndAttend = [
  ...nativeKernels("rope_update_and_attend", native.ropeUpdateAndAttend),
  ropeUpdateAndAttendRelaxedWasm,
  ropeUpdateAndAttendWasm,
  ropeUpdateAndAttendReference,
];
/** Over the states of several sequences. */
export const shortConvolution = [
  ...nativeKernels("short_convolution", native.shortConvolution),
  shortConvolutionWasm,
  shortConvolutionReference,
];
export const linearRecurrence = [
  ...nativeKernels("linear_recurrence", native.linearRecurrence),
  linearRecurrenceRelaxedWasm,
  linearRecurrenceWasm,
  linearRecurrenceReference,
];
/** Over rows that are several texts. */
export const attendTexts = [
  ...nativeKernels("attend_texts", native.attendTexts),
  attendTextsWasm,
  attendTextsReference,
];
export const poolTexts = [poolTextsReference];
export const gatherColumns = [
  ...nativeKernels("gather_columns", native.gatherColumns),
  gatherColumnsWasm,
  gatherColumnsReference,
];
export const select = [...nativeKernels("select", native.select), selectWasm, selectReference];
export const int4Pack = [int4PackReference];
export const route = [...nativeKernels("route", native.route), routeWasm, routeReference];
export const expertRows = [...nativeKernels("expert_rows", native.expertRows), expertRowsWasm, expertRowsReference];
export const combineExperts = [
  ...nativeKernels("combine_experts", native.expertRows),
  combineExpertsWasm,
  combineExpertsReference,
];
/** Over rows in the order of their experts; the kernels of linear layers multiply. */
export const expertLinearPacked = [
  ...nativeKernels("expert_linear_packed", native.expertPacked),
  expertLinearPackedWasm,
  expertLinearPackedReference,
];
export const expertLinearFloat = [
  ...nativeKernels("expert_linear_float", native.expertFloat),
  expertLinearFloatWasm,
  expertLinearFloatReference,
];
