/** Finds values that are adjacent columns of one value. */
import type { GraphValue } from "../graph.ts";
import type { Uses } from "./uses.ts";

/** The value of which `values` are all columns, in this order; null when there is none. */
export function columnsOf(values: readonly GraphValue[], uses: Uses): GraphValue | null {
  let whole: GraphValue | null = null;
  let start = 0;
  for (const value of values) {
    const slice = uses.maker(value);
    if (slice?.operator !== "aten::slice_copy.Tensor_out") return null;
    const [from, dim, first, , step] = slice.args;
    const source = from as GraphValue;
    const last = source.spec.shape.length - 1;
    if ((whole !== null && whole !== source) || (dim !== -1 && dim !== last) || first !== start || step !== 1)
      return null;
    whole = source;
    start += value.spec.shape.at(-1)!;
  }
  return whole !== null && whole.spec.shape.at(-1) === start ? whole : null;
}
