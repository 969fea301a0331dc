/** Kernels of recurrent layers, over the states of several sequences. Best first: the reference fits everything and is last. */
import { listed } from "../../family.ts";
import * as native from "../../native/families.ts";
import { linearRecurrenceReference, shortConvolutionReference } from "./reference.ts";
import { linearRecurrenceRelaxedWasm, linearRecurrenceWasm } from "./wasm/linear-recurrence.ts";
import { shortConvolutionWasm } from "./wasm/short-convolution.ts";

/** Over the states of several sequences. */
export const shortConvolution = listed("short_convolution", native.shortConvolution, [
  shortConvolutionWasm,
  shortConvolutionReference,
]);
export const linearRecurrence = listed("linear_recurrence", native.linearRecurrence, [
  linearRecurrenceRelaxedWasm,
  linearRecurrenceWasm,
  linearRecurrenceReference,
]);
