/** Kernels of recurrent layers, over the states of several sequences. Best first: the reference fits everything and is last. */
import { family } from "../../family.ts";
import { linearRecurrenceFields, shortConvolutionFields } from "./fields.ts";
import { linearRecurrenceReference, shortConvolutionReference } from "./reference.ts";
import { linearRecurrenceRelaxedWasm, linearRecurrenceWasm } from "./wasm/linear-recurrence.ts";
import { shortConvolutionWasm } from "./wasm/short-convolution.ts";

export const shortConvolution = family("short_convolution", shortConvolutionFields, {
  wasm: [shortConvolutionWasm],
  reference: shortConvolutionReference,
});
export const linearRecurrence = family("linear_recurrence", linearRecurrenceFields, {
  wasm: [linearRecurrenceRelaxedWasm, linearRecurrenceWasm],
  reference: linearRecurrenceReference,
});
