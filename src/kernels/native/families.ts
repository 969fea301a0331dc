/**
 * How the arguments of each kernel family become numbers and buffers of a native call. The C++ side reads them in this
 * order; the scratch buffer follows the ones listed here.
 */
import type { PackedLinearArgs } from "../arguments.ts";

export interface NativeArguments {
  readonly scalars: readonly number[];
  readonly buffers: readonly ArrayBufferView[];
}

/** scalars: m; buffers: x, packed weights, y. */
export function packedLinear({ m, x, weights, y }: PackedLinearArgs): NativeArguments {
  return { scalars: [m], buffers: [x, weights.bytes, y] };
}
