/** Stand-in without caches off the graph, which only programs of other exporters have. */
import type * as original from "../../../../executorch/operators/kvcache.ts";

export const kvcacheOperators: typeof original.kvcacheOperators = [];
export const hasOffGraphCaches: typeof original.hasOffGraphCaches = () => false;
export const withOffGraphCaches: typeof original.withOffGraphCaches = (program) => program;
