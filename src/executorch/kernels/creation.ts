/** Fills tensors with numbers. */
import type { Tensor } from "../../tensor.ts";
import { denseKernel, storeInto } from "./dense.ts";

export interface FillArgs {
  /** Element i is first + i * step. */
  readonly first: number;
  readonly step: number;
  readonly out: Tensor;
}

export const fillReference = denseKernel<FillArgs>("fill", ({ first, step, out }) => {
  const store = storeInto(out);
  for (let i = 0; i < out.data.length; i++) store(i, first + i * step);
});
